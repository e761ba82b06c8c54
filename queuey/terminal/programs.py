"""Where the programs begin. It imports nothing that takes time, so that Ctrl-C in the first moment ends one in a word."""

from __future__ import annotations

import signal
import sys
from importlib import import_module

__all__ = ["qdo", "qdo_worker", "queuey"]


def queuey() -> None:
    """``queuey``."""
    _run("queuey.cli")


def qdo() -> None:
    """``qdo``."""
    _run("qdo.cli")


def qdo_worker() -> None:
    """``qdo-worker``."""
    _run("qdo.compat.cli")


def _run(module: str) -> None:
    try:
        main = import_module(module).main
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    sys.exit(main())
