"""``qdo completion``."""

from __future__ import annotations

from queuey.terminal.completion import script_command

__all__ = ["completion_command"]

completion_command = script_command("qdo")
