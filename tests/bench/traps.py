"""Roads that look good and are not: for the record, so that nobody need try them again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import choice
from statistics import median

import apsw

from tests.bench.drivers import append_one, drive, in_turn
from tests.bench.measure import alternate, rate_of, ratios
from tests.bench.plan import BODY, CONNECTIONS, PARTITIONS, Plan
from tests.bench.servers import Server, front, pyramid, queuey
from tests.bench.table import Row, number

QUEUE = "trap"
_GROUPS = (CONNECTIONS, 1000)
"""Rows of a transaction: what 32 writers share, and what only the pages of the table limit."""
_WAL_PAGES = 4000
_FEW = 10

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


def clustered(plan: Plan) -> Iterator[Row]:
    """Appends over all queues against appends over ten: what each layout of the table loses."""
    every = sorted(os.urandom(16) + b"\x01" for _ in range(plan.queues))
    few = every[:: max(len(every) // _FEW, 1)]
    for name, schema in (("arrival", _BY_ARRIVAL), ("queue", _BY_QUEUE)):
        connection = _open(plan.fresh(f"by-{name}") / "t.db", schema, every)

        def rate(places: list[bytes], rows: int, connection: apsw.Connection = connection) -> float:
            return rate_of(lambda: _append(connection, places, rows), plan.seconds)

        for rows in _GROUPS:
            below, ours = alternate(partial(rate, few, rows), partial(rate, every, rows), plan.rounds)
            yield Row(
                f"trap: a table clustered by {name}, {rows} rows a transaction, over {plan.queues:,} queues",
                f"{number(median(below))} rows/s over {_FEW}",
                f"{number(median(ours))} rows/s",
                ratios(ours, below),
            )
        connection.close()


def _open(path: Path, schema: str, places: list[bytes]) -> apsw.Connection:
    """A table with one message in each queue; laid down in its own order, which is quickest."""
    connection = apsw.Connection(str(path))
    connection.execute("pragma journal_mode = wal; pragma synchronous = full; pragma cache_size = -16384")
    connection.execute(f"pragma wal_autocheckpoint = {_WAL_PAGES}")
    connection.execute(schema)
    with connection:
        connection.executemany(_INSERT, (_row(place, 0) for place in places))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    return connection


_INSERT = "insert into messages (place, ticks, tail, expires, seal, body) values (?, ?, ?, ?, ?, ?)"


def _row(place: bytes, ticks: int) -> tuple[bytes, int, int, int, int, bytes]:
    return place, ticks, 0, ticks + 1, 0, BODY.encode()


def _append(connection: apsw.Connection, places: list[bytes], rows: int) -> int:
    """One durable transaction; ids rise, queues are any."""
    first = connection.total_changes() + 1
    connection.execute("begin immediate")
    connection.executemany(_INSERT, [_row(choice(places), first + turn) for turn in range(rows)])
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


def parser(plan: Plan) -> Iterator[Row]:
    """The shipped server's front, whose parser runs on the loop, beside granian's, which runs in a thread of its own, and uvicorn's."""
    script = in_turn([append_one(QUEUE)])
    for name, interface in (("granian", "rsgi"), ("uvicorn", "asgi")):
        with front(interface) as other, front("own") as ours:
            for connections in (1, CONNECTIONS):
                below, above = alternate(
                    partial(lambda server, count: drive(server, script, count, plan.seconds).rate, other, connections),
                    partial(lambda server, count: drive(server, script, count, plan.seconds).rate, ours, connections),
                    plan.rounds,
                )
                yield Row(
                    f"the shipped server's front with nothing behind it, {connections} connection{'s'[: connections - 1]}",
                    f"{number(median(below))} answers/s by {name}",
                    f"{number(median(above))} answers/s",
                    ratios(above, below),
                )
