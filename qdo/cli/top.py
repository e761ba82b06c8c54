"""``qdo top``: the status of a group, shown again and again until q."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

import click

from qdo.cli.lease_status import lease_headline, lease_rows
from qdo.cli.options import Workplace, queues_option, refuse_without_meaning, with_workplace
from qdo.cli.status import headline, member_rows, shown
from qdo.client import Client
from qdo.groups.lag import Lag, PartitionStatus, total
from qdo.groups.view import most_lag_first, view_of
from queuey.terminal.live import has_terminal, show_live
from queuey.terminal.numbers import Number


@click.command("top")
@with_workplace
@queues_option
@click.option("--interval", type=Number(0.2), default=2.0, show_default=True, help="Seconds between two updates.")
@click.option("--lease", is_flag=True, help="Show what the lease group of this name holds, in each queue that has it.")
def top_command(workplace: Workplace, queues: tuple[str, ...], interval: float, lease: bool) -> None:
    """The status of a group, live: workers, and the partitions with the most lag.

    It ends with q or Ctrl-C.

    Example: qdo top -g reports --lease
    """
    if not has_terminal():
        raise click.UsageError(
            "a live view needs a terminal: 'qdo status' prints once, 'qdo status -o json' for programs."
        )
    if lease:
        refuse_without_meaning({})
        with workplace.server.client() as client:
            show_live(lambda: _leased(client, workplace, queues), interval)
        return
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator:
        before: tuple[float, Lag] | None = None

        def looked() -> list[str]:
            nonlocal before
            view = view_of(client, coordinator, workplace.group, queues)
            now = time.monotonic(), total(view.found)
            title, _, lag = headline(workplace, view).partition("; ")
            what = "partitions" if view.queues is None else "slots"
            lines = [title, lag + trend(before, now), ""]
            lines += [f"{each['member']}  {each['host']}  {each['partitions']} {what}" for each in member_rows(view)]
            before = now
            return [*lines, "", *worst(view.found)]

        show_live(looked, interval)


def _leased(client: Client, workplace: Workplace, queues: Sequence[str]) -> list[str]:
    """What a lease group holds, most first."""
    rows, _ = lease_rows(client, workplace, queues)
    most_first = sorted(rows, key=lambda row: -row["held"])
    return [
        lease_headline(workplace, rows),
        "",
        *(f"{row['held']:9,} held {row['leased']:9,} leased  {row['queue']}:{row['partition']}" for row in most_first),
    ]


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
