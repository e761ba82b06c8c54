"""``qdo top``: the status of a group, shown again and again until q."""

from __future__ import annotations

import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from io import StringIO
from shutil import get_terminal_size

import click

from qdo.cli.options import Workplace, queues_option, with_workplace
from qdo.cli.status import headline, member_rows, shown
from qdo.groups.lag import Lag, PartitionStatus, total
from qdo.groups.view import most_lag_first, view_of
from queuey.errors import QueueyError
from queuey.terminal.output import visible

_BEGIN_ANEW = "\x1b[H"
_CLEAR_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"


@click.command("top")
@with_workplace
@queues_option
@click.option(
    "--interval", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between two updates."
)
def top_command(workplace: Workplace, queues: tuple[str, ...], interval: float) -> None:
    """The status of a group, live: workers, and the partitions with the most lag. Ends with q or Ctrl-C."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "a live view needs a terminal: 'qdo status' prints once, 'qdo status --json' for programs."
        )
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator, _keys():
        before: tuple[float, Lag] | None = None
        while True:
            try:
                view = view_of(client, coordinator, workplace.group, queues)
                now = time.monotonic(), total(view.found)
                title, _, lag = headline(workplace, view).partition("; ")
                what = "partitions" if view.queues is None else "slots"
                lines = [title, lag + trend(before, now), ""]
                lines += [
                    f"{each['member']}  {each['host']}  {each['partitions']} {what}" for each in member_rows(view)
                ]
                before = now
                lines += ["", *worst(view.found)]
            except QueueyError as error:
                lines = [f"{error.code}: {error}", "Trying again."]
            sys.stdout.write(screen(lines, *get_terminal_size()))
            sys.stdout.flush()
            if _quit(interval):
                return


def trend(before: tuple[float, Lag] | None, now: tuple[float, Lag]) -> str:
    """How fast the lag grows or falls, if both values are exact.

    >>> trend((1.0, Lag(100)), (3.0, Lag(40)))
    ' (-30.0 messages/s)'
    """
    if before is None or not (before[1].exact and now[1].exact) or now[0] <= before[0]:
        return ""
    return f" ({(now[1].messages - before[1].messages) / (now[0] - before[0]):+.1f} messages/s)"


def worst(found: Sequence[PartitionStatus]) -> list[str]:
    """The partitions, with the most lag first."""
    known = [(status, status.lag or Lag()) for status in most_lag_first(found)]
    return [
        f"{lag.seconds:9.1f} s {shown(lag):>9}  {status.partition!s:30}  {status.owner or 'nobody'}"
        for status, lag in known
    ]


def screen(lines: Sequence[str], columns: int, rows: int) -> str:
    """The text that makes a terminal show these lines, as far as they fit, and how to end."""
    out = StringIO(_BEGIN_ANEW)
    out.seek(0, 2)
    for line in [*lines[: rows - 2], "q ends"]:
        out.write(f"{visible(line)[:columns]}{_CLEAR_LINE}\n")
    out.write(_CLEAR_BELOW)
    return out.getvalue()


@contextmanager
def _keys() -> Iterator[None]:
    """Read keys one by one, without showing them."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    sys.stdout.write("\x1b[2J")
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _quit(seconds: float) -> bool:
    """Whether q is typed within this time."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0] and sys.stdin.read(1) in ("q", "Q", ""):
            return True
    return False
