"""``python -m qdo.cli``."""

from __future__ import annotations

from qdo.cli import main

if __name__ == "__main__":  # the processes of --processes import this module again
    main(prog_name="qdo")
