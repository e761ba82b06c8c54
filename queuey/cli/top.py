"""``queuey top``: a server, its queues and their lease groups, live in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import click

from queuey.errors import Forbidden, NotFound
from queuey.terminal.completion import complete_queues
from queuey.terminal.live import has_terminal, show_live
from queuey.terminal.numbers import Number
from queuey.terminal.options import with_client
from queuey.terminal.sizes import shown_size

if TYPE_CHECKING:
    from qdo.client import ApplicationFigures, Client, QueueFigures, ServerFigures

__all__ = ["Glance", "top_command", "view"]

ROWS = 25
"""Queues that are shown, unless the command says otherwise: a page of the server."""
MOST_GROUPS = 20
"""Lease groups that are shown. Each is a request."""
_RATES = ("appended", "read", "received", "settled")


class HeldByGroup(NamedTuple):
    """What a lease group of a queue holds."""

    queue: str
    name: str
    held: int
    leased: int


class Glance(NamedTuple):
    """What one glance at a server found."""

    url: str
    figures: ApplicationFigures
    server: ServerFigures | None
    """None for a caller that is no operator."""
    groups: Sequence[HeldByGroup]
    are_all: bool
    """There are no more groups than these."""


@click.command("top")
@click.option("--prefix", default="", shell_complete=complete_queues, help="Only queues whose names begin like this.")
@click.option(
    "--start",
    default="",
    metavar="NAME",
    shell_complete=complete_queues,
    help="The first queue to show; they come by name.",
)
@click.option(
    "-n", "--queues", "rows", type=click.IntRange(1, 100), default=ROWS, show_default=True, help="Queues to show."
)
@click.option("--interval", type=Number(0.2), default=2.0, show_default=True, help="Seconds between two updates.")
@click.option("--once", is_flag=True, help="Print the view once; so it is without a terminal.")
@with_client
def top_command(client: Client, prefix: str, start: str, rows: int, interval: float, once: bool) -> None:
    """The server, queues and lease groups of the application, live.

    It shows what 'GET /v1/APPLICATION?stats=true' says, and with an operator's key the server as well. It ends with q or
    Ctrl-C. The first view has no rates but an operator's: they are between two looks.

    Example: queuey top --interval 5
    """
    before: Glance | None = None

    def lines() -> list[str]:
        nonlocal before
        looked = _look(client, prefix, start, rows)
        shown = view(looked, before)
        before = looked
        return shown

    if once or not has_terminal():
        click.echo("\n".join(lines()))
    else:
        show_live(lines, interval)


def _look(client: Client, prefix: str, start: str, rows: int) -> Glance:
    figures = client.figures(prefix=prefix, start=start, limit=rows)
    try:
        server = client.server_figures(limit=1, history=1)
    except Forbidden:
        server = None
    groups = list(islice(_groups(client, figures), MOST_GROUPS + 1))
    return Glance(client.url, figures, server, groups[:MOST_GROUPS], len(groups) <= MOST_GROUPS)


def _groups(client: Client, figures: ApplicationFigures) -> Iterator[HeldByGroup]:
    for queue in figures.queues:
        try:
            for name in client.lease_groups(queue.name):
                partitions = client.lease_group(queue.name, name).partitions
                yield HeldByGroup(
                    queue.name, name, sum(one.held for one in partitions), sum(one.leased for one in partitions)
                )
        except NotFound:  # the queue or the group has gone meanwhile
            continue


def view(now: Glance, before: Glance | None) -> list[str]:
    """The lines that show a look.

    :param before: the look before it, for rates; None for the first.
    """
    return [*_server_lines(now), *_application_lines(now, before), "", *_queue_lines(now, before), *_group_lines(now)]


def _server_lines(now: Glance) -> Iterator[str]:
    if now.server is None:
        yield f"queuey at {now.url}"
        return
    state = now.server.server
    yield f"queuey {state['version']} at {now.url}, {state['storage']}"
    for kind in ("problems", "warnings"):
        yield from (f"{kind[:-1].upper()}: {one}" for one in state[kind])
    sizes = [
        f"{name} {shown_size(state[field])}"
        for name, field in (
            ("memory", "memory_bytes"),
            ("in flight", "bytes_in_flight"),
            ("disk free", "disk_free_bytes"),
        )
        if state[field] is not None
    ]
    waits = f"{state['requests_in_progress']} requests, {state['waiters']} waiting readers"
    yield ", ".join([waits, *sizes, f"clock error {state['clock_error_seconds']:.3g} s"])
    if now.server.samples:
        newest = now.server.samples[-1]
        yield (
            "server     "
            + "  ".join(f"{name} {newest[name]:,.0f}/s" for name in (*_RATES, "requests", "errors"))
            + f"  p50 {newest['p50'] * 1000:g} ms  p99 {newest['p99'] * 1000:g} ms"
        )


def _application_lines(now: Glance, before: Glance | None) -> Iterator[str]:
    counters = now.figures.counters
    seconds = 0.0 if before is None else now.figures.time - before.figures.time
    told = []
    for name in _RATES:
        grown = counters[name] - before.figures.counters[name] if before else 0
        rate = f" ({grown / seconds:,.1f}/s)" if seconds > 0 and grown >= 0 else ""
        told.append(f"{name} {counters[name]:,}{rate}")
    yield f"{now.figures.application}  " + "  ".join([*told, f"dead letters {counters['dead_letters']:,}"])


def _queue_lines(now: Glance, before: Glance | None) -> Iterator[str]:
    if not now.figures.queues:
        yield "no queues"
        return
    earlier = {} if before is None else {queue.name: queue for queue in before.figures.queues}
    seconds = 0.0 if before is None else now.figures.time - before.figures.time
    width = max(len("QUEUE"), *(len(queue.name) for queue in now.figures.queues))
    yield f"{'QUEUE':{width}}  {'DEPTH':>12}  {'CHANGE':>12}  {'SCHEDULED':>10}  {'BYTES':>10}  {'OLDEST':>10}"
    for queue in now.figures.queues:
        if queue.depth is None or queue.bytes is None:
            yield f"{queue.name:{width}}  {'not counted':>12}"
            continue
        known = earlier.get(queue.name)
        change = ""
        if known is not None and known.depth is not None and seconds > 0:
            change = f"{(queue.depth - known.depth) / seconds:+,.1f}/s"
        yield (
            f"{queue.name:{width}}  {queue.depth:>12,}  {change:>12}  {queue.scheduled or 0:>10,}"
            f"  {shown_size(queue.bytes):>10}  {_age(now, queue):>10}"
        )


def _age(now: Glance, queue: QueueFigures) -> str:
    """How old the oldest message is."""
    if queue.oldest_timestamp is None:
        return ""
    seconds = max(now.figures.time - float(queue.oldest_timestamp), 0.0)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def _group_lines(now: Glance) -> Iterator[str]:
    if not now.groups:
        return
    width = max(len("LEASE GROUP"), *(len(group.queue) + len(group.name) + 1 for group in now.groups))
    yield ""
    yield f"{'LEASE GROUP':{width}}  {'HELD':>12}  {'LEASED':>12}"
    for group in now.groups:
        yield f"{f'{group.queue}/{group.name}':{width}}  {group.held:>12,}  {group.leased:>12,}"
    if not now.are_all:
        yield f"only the first {MOST_GROUPS} lease groups: --prefix and --start choose others"
