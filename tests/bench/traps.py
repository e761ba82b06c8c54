"""Roads that look good and are not: for the record, so that nobody need try them again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

import apsw

from tests.bench.drivers import append_one, drive, in_turn
from tests.bench.measure import alternate, rate_of, ratios
from tests.bench.plan import BODY, CONNECTIONS, PARTITIONS, Plan
from tests.bench.servers import Server, pyramid, queuey
from tests.bench.table import Row, number

QUEUE = "trap"
_GROUPS = (CONNECTIONS, 1000)
"""Rows of a transaction: what 32 writers share, and what only the pages of the table limit."""
_WAL_PAGES = 4000

_BY_ARRIVAL = """
create table messages (
    seq integer primary key, place blob, ticks integer, tail integer, expires integer, seal integer, body blob
);
create index messages_in_order on messages (place, ticks, tail, expires);
"""
_BY_QUEUE = """
create table messages (
    place blob, ticks integer, tail integer, expires integer, seal integer, body blob, primary key (place, ticks, tail)
) without rowid;
"""


class _Layout(NamedTuple):
    """A table and how far its clock has got."""

    connection: apsw.Connection
    places: list[bytes]
    dice: Random


def clustered(plan: Plan) -> Iterator[Row]:
    """Appends to queues at random: a table clustered by queue against the store's, clustered by arrival."""
    places = sorted(os.urandom(16) + b"\x01" for _ in range(plan.queues))
    by_arrival = _open(plan.fresh("by-arrival") / "t.db", _BY_ARRIVAL, places)
    by_queue = _open(plan.fresh("by-queue") / "t.db", _BY_QUEUE, places)
    for rows in _GROUPS:
        below, ours = alternate(
            lambda rows=rows: rate_of(lambda: _append(by_arrival, rows), plan.seconds),  # type: ignore[misc]
            lambda rows=rows: rate_of(lambda: _append(by_queue, rows), plan.seconds),  # type: ignore[misc]
            plan.rounds,
        )
        yield Row(
            f"trap: a table clustered by queue, {plan.queues:,} queues, {rows} rows a transaction",
            f"{number(median(below))} rows/s into one clustered by arrival",
            f"{number(median(ours))} rows/s",
            ratios(ours, below),
        )
    by_arrival.connection.close()
    by_queue.connection.close()


def _open(path: Path, schema: str, places: list[bytes]) -> _Layout:
    """A table with one message in each queue; laid down in its own order, which is quickest."""
    connection = apsw.Connection(str(path))
    connection.execute("pragma journal_mode = wal; pragma synchronous = full; pragma cache_size = -16384")
    connection.execute(f"pragma wal_autocheckpoint = {_WAL_PAGES}")
    connection.execute(schema)
    layout = _Layout(connection, places, Random(7))
    with connection:
        connection.executemany(_INSERT, (_row(place, 0) for place in places))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    return layout


_INSERT = "insert into messages (place, ticks, tail, expires, seal, body) values (?, ?, ?, ?, ?, ?)"


def _row(place: bytes, ticks: int) -> tuple[bytes, int, int, int, int, bytes]:
    return place, ticks, 0, ticks + 1, 0, BODY.encode()


def _append(layout: _Layout, rows: int) -> int:
    """One durable transaction; ids rise, queues are any."""
    connection, places, dice = layout
    first = connection.total_changes() + 1
    connection.execute("begin immediate")
    connection.executemany(_INSERT, [_row(dice.choice(places), first + turn) for turn in range(rows)])
    connection.execute("commit")
    return rows


def threads(plan: Plan) -> Iterator[Row]:
    """A waiting thread for each request, against the event loop: the same service behind both."""
    script = in_turn([append_one(QUEUE)])

    def rate(server: Server) -> float:
        found = drive(server, script, CONNECTIONS, plan.seconds).rate
        server.settle()
        return found

    with queuey(plan.fresh("loop")) as loop, pyramid(plan.fresh("threads"), CONNECTIONS) as waiting:
        for server in (loop, waiting):
            server.create(QUEUE, PARTITIONS)
        below, ours = alternate(lambda: rate(loop), lambda: rate(waiting), plan.rounds)
    yield Row(
        f"trap: a thread that waits for each request ({CONNECTIONS} of waitress, Pyramid)",
        f"{number(median(below))} appends/s on the event loop",
        f"{number(median(ours))} appends/s",
        ratios(ours, below),
    )
