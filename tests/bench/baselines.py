"""What the machine can do with nothing around it: the store, SQLite and the encoders in plain loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import orjson
import pyarrow as pa

from queuey.ids import EPOCH_TICKS, MAX_ID, ZERO_ID, MessageId
from queuey.model import AppendRequest
from tests.bench.measure import rate_of
from tests.bench.plan import BATCH, PAGE, PARTITIONS
from tests.bench.store import drafts, make_queue, open_store

ARROW_ROWS = 4000
_SELECT = """
select ticks, tail, content_type, key, body from messages
where place = ? and (ticks, tail) > (?, ?) and (ticks, tail) <= (?, ?) and expires > 0
order by ticks, tail limit ?
"""
Place = bytes
"""A partition, as the store's tables name it."""


def bulk_inserts(folder: Path, seconds: float) -> float:
    """Messages a second that the store takes in transactions of a hundred, one after the other."""
    with open_store(folder) as store:
        request = AppendRequest(make_queue(store, "bulk", PARTITIONS), drafts(BATCH, PARTITIONS))
        return rate_of(lambda: len(store.append(request).wait().placed), seconds)


def open_reader(folder: Path) -> apsw.Connection:
    """A connection beside the server's, with as much page cache as the event loop's reader has."""
    connection = apsw.Connection(str(folder / "queuey.db"), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5000)
    connection.execute("pragma cache_size = -8192")
    return connection


def place_of(connection: apsw.Connection, queue: str, partition: int = 1) -> Place:
    found: list[Any] = connection.execute("select uuid from queues where name = ?", (queue,)).fetchall()
    ((raw,),) = found
    return bytes(raw) + partition.to_bytes(1, "big")


def ids_of(connection: apsw.Connection, place: Place) -> list[MessageId]:
    """Every id of a partition, in order."""
    rows: Any = connection.execute("select ticks, tail from messages where place = ? order by ticks, tail", (place,))
    return [MessageId(*row) for row in rows]


def json_page(connection: apsw.Connection, place: Place, since: MessageId) -> bytes:
    """The bytes of a page as the server sends them: select, shape, encode."""
    rows: list[Any] = connection.execute(_SELECT, (place, *since.before(), *MAX_ID, PAGE)).fetchall()
    return orjson.dumps({"status": "ok", "messages": [_entry(place[16], *row) for row in rows]})


def _entry(
    partition: int, ticks: int, tail: int, content_type: str | None, key: str | None, body: bytes
) -> dict[str, Any]:
    message_id = MessageId(ticks, tail)
    entry = {
        "message_id": message_id.hex,
        "timestamp": message_id.timestamp,
        "partition": partition,
        "body": body.decode(),
    }
    if content_type is not None:
        entry["content_type"] = content_type
    if key is not None:
        entry["key"] = key
    return entry


def json_pages(connection: apsw.Connection, place: Place, starts: list[MessageId], seconds: float) -> float:
    """Messages a second, in pages of a hundred, in one loop."""
    at = 0

    def page() -> int:
        nonlocal at
        at = (at + 1) % len(starts)
        json_page(connection, place, starts[at])
        return PAGE

    return rate_of(page, seconds)


_SCHEMA = pa.schema(
    [
        ("queue", pa.string()),
        ("partition", pa.int32()),
        ("message_id", pa.string()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("content_type", pa.string()),
        ("body", pa.binary()),
    ]
)


def arrow_batches(connection: apsw.Connection, queue: str, place: Place) -> Iterator[pa.RecordBatch]:
    """A whole partition as record batches."""
    after = ZERO_ID
    while rows := _rows(connection, place, after):
        after = MessageId(rows[-1][0], rows[-1][1])
        columns = [
            [queue] * len(rows),
            [place[16]] * len(rows),
            [MessageId(row[0], row[1]).hex for row in rows],
            [(row[0] - EPOCH_TICKS) // 10 for row in rows],
            [row[2] for row in rows],
            [row[4] for row in rows],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _rows(connection: apsw.Connection, place: Place, after: MessageId) -> list[Any]:
    return connection.execute(_SELECT, (place, *after, *MAX_ID, ARROW_ROWS)).fetchall()


def arrow_rows(connection: apsw.Connection, queue: str, place: Place, seconds: float) -> float:
    """Rows a second into Arrow batches, in one loop."""
    work: Callable[[], int] = lambda: sum(batch.num_rows for batch in arrow_batches(connection, queue, place))  # noqa: E731
    return rate_of(work, seconds)
