"""What the machine can do with nothing around it: the store, SQLite and the encoders in plain loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import orjson
import pyarrow as pa

from queuey.ids import EPOCH_TICKS, MAX_ID, ZERO_ID, MessageId
from queuey.model import AppendRequest, Message, ReadRequest, Span
from tests.bench.measure import BenchFailed, rate_of
from tests.bench.plan import BATCH, PAGE, PARTITIONS
from tests.bench.servers import APPLICATION
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
        return rate_of(lambda: len(store.messages.append(request).wait().placed), seconds)


_PLAIN = """
create table messages (
    seq integer primary key, place blob not null, ticks integer not null, tail integer not null, expires integer not null,
    seal integer not null, content_type blob, key blob, body blob not null
);
create index messages_in_order on messages (place, ticks, tail, expires);
"""
"""A row a message, by arrival, with a covering index: what the store has for messages that came one by one."""
_PLAIN_INSERT = "insert into messages (place, ticks, tail, expires, seal, body) values (?, ?, ?, ?, 0, ?)"


def plain_copy(folder: Path, queue: str, target: Path) -> apsw.Connection:
    """The first partition of a queue as plain rows, with as much page cache as the event loop's reader has."""
    connection = apsw.Connection(str(target))
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = off")
    connection.execute(_PLAIN)
    with connection:
        for message in messages_of(folder, queue):
            connection.execute(_PLAIN_INSERT, (PLACE, *message[:3], message.body))
    connection.execute("pragma cache_size = -8192")
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # as the store does: no plan is made twice
    return connection


PLACE: Place = bytes(16) + b"\1"
"""Of a plain copy."""


def messages_of(folder: Path, queue: str, *, with_bodies: bool = True) -> Iterator[Message]:
    """Every message of a queue's first partition, in order."""
    with open_store(folder) as store:
        found = store.metadata.find_queue(APPLICATION, queue).wait()
        if found is None:
            raise BenchFailed(f"there is no queue {queue}")
        after, more = ZERO_ID, True
        upto = MessageId.last_of(store.messages.watermark(found.consistency))
        while more:
            request = ReadRequest(found.partition(1), Span(after, upto), 10_000, with_bodies=with_bodies)
            page = store.messages.read(request, now_ticks=0).wait()
            yield from page.messages
            after, more = page.messages[-1].id if page.messages else after, page.more


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
