"""The version, alone, so that whatever needs it imports nothing else."""

from __future__ import annotations

__version__ = "1.0.0a1"
