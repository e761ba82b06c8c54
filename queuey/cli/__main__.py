"""``python -m queuey.cli``."""

from __future__ import annotations

from queuey.cli import main

main(prog_name="queuey")
