"""How tests run Java."""

from __future__ import annotations

__all__ = ["BRIEF"]

BRIEF = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For what runs a minute and not a day: the quick one of the two compilers alone, and no threads for garbage. Spark under test takes a third less of the processor."""
