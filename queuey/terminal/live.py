"""A view in a terminal that is drawn again and again until q is typed."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from shutil import get_terminal_size

from queuey.errors import QueueyError
from queuey.terminal.ending import ended_by_signals
from queuey.visible import visible

__all__ = ["has_terminal", "screen", "show_live"]

_BEGIN_ANEW = "\x1b[H"
_CLEAR_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"
_MOST_TYPED = 1024


def has_terminal() -> bool:
    """Whether a person reads, and can type q."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def show_live(look: Callable[[], list[str]], interval_seconds: float) -> None:
    """Show what ``look`` gives, again and again until q or Ctrl-C. An error of Queuey is shown, and the next look may succeed."""
    with _keys():
        while True:
            try:
                lines = look()
            except QueueyError as error:
                lines = [f"{error.code}: {error}", "Trying again."]
            sys.stdout.write(screen(lines, *get_terminal_size()))
            sys.stdout.flush()
            if _quit(interval_seconds):
                return


def screen(lines: Sequence[str], columns: int, rows: int) -> str:
    """The text that makes a terminal show these lines, as far as they fit.

    A last line says how to end.
    """
    out = StringIO(_BEGIN_ANEW)
    out.seek(0, 2)
    for line in [*lines[: rows - 2], "q ends"]:
        out.write(f"{visible(line)[:columns]}{_CLEAR_LINE}\n")
    out.write(_CLEAR_BELOW)
    return out.getvalue()


@contextmanager
def _keys() -> Iterator[None]:
    """Read keys one by one, without showing them. However the block ends, the terminal is as it was."""
    before = termios.tcgetattr(sys.stdin)
    with ended_by_signals(signal.SIGTERM):
        try:
            tty.setcbreak(sys.stdin)
            sys.stdout.write("\x1b[2J")
            yield
        except KeyboardInterrupt:
            return
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _quit(seconds: float) -> bool:
    """Whether q is typed within this time."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0]:
            # Not by sys.stdin: select says nothing of keys that lie in its buffer.
            typed = os.read(sys.stdin.fileno(), _MOST_TYPED)
            if not typed or b"q" in typed.lower():
                return True
    return False
