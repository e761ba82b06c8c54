"""Reads: pages of a hundred as JSON, and a whole partition as an Arrow stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

import apsw
import pyarrow as pa

from queuey.ids import MessageId
from tests.bench import baselines
from tests.bench.drivers import drive, in_turn, read_page
from tests.bench.measure import BenchFailed, alternate, rate_of, ratios
from tests.bench.plan import PAGE, Plan
from tests.bench.servers import APPLICATION, AUTHORIZATION, Server, queuey
from tests.bench.store import fill, make_queue, open_store
from tests.bench.table import Row, number

QUEUE = "read"
_STARTS = 500
_CHUNK = 1 << 20


class Reading(NamedTuple):
    """A server with one full partition."""

    server: Server
    plain: apsw.Connection
    """The same messages as plain rows."""
    starts: list[MessageId]
    """First messages of pages, all over the partition."""
    rows: int


@contextmanager
def reading(folder: Path, rows: int) -> Iterator[Reading]:
    with open_store(folder) as store:
        fill(store, [make_queue(store, QUEUE, 1)], rows)
    plain = baselines.plain_copy(folder, QUEUE, folder / "plain.db")
    ids = [message.id for message in baselines.messages_of(folder, QUEUE, with_bodies=False)]
    starts = ids[: -PAGE : max((len(ids) - PAGE) // _STARTS, 1)]
    with queuey(folder) as server:
        server.settle()
        yield Reading(server, plain, starts, len(ids))
    plain.close()


def pages_script(starts: list[MessageId]) -> str:
    return in_turn([read_page(QUEUE, start.hex) for start in starts])


def json_pages(plan: Plan) -> Iterator[Row]:
    """Pages of a hundred, by one reader and by eight, against one loop over the same file."""
    with reading(plan.fresh("read"), plan.rows) as there:
        _check_same_page(there)
        script = pages_script(there.starts)
        for readers in (1, 8):
            below, ours = alternate(
                lambda: baselines.json_pages(there.plain, baselines.PLACE, there.starts, plan.seconds),
                lambda readers=readers: PAGE * drive(there.server, script, readers, plan.seconds).rate,  # type: ignore[misc]
                plan.rounds,
            )
            yield Row(
                f"read pages of 100 as JSON, {readers} reader{'s' if readers > 1 else ''}",
                f"{number(median(below))} msg/s selected and encoded in one loop",
                f"{number(median(ours))} msg/s",
                ratios(ours, below),
                first="ratio >= 0.5",
                goal="ratio >= 0.8",
            )


def _check_same_page(there: Reading) -> None:
    """The baseline does the whole of the work."""
    since = there.starts[len(there.starts) // 2]
    sent = there.server.ask("GET", f"/v1/{APPLICATION}/{QUEUE}?since={since.hex}&limit=100").content
    if sent != baselines.json_page(there.plain, baselines.PLACE, since):
        raise BenchFailed("the baseline and the server make different pages of the same messages")


def arrow(plan: Plan) -> Iterator[Row]:
    """The whole partition as one stream, to a reader that only takes bytes and to one that decodes them."""
    with reading(plan.fresh("arrow"), plan.rows) as there:
        if stream_decoded(there.server) != there.rows:
            raise BenchFailed("the stream has not all rows")
        for what, take in (("taken as bytes", stream_raw), ("decoded by pyarrow", stream_decoded)):
            below, ours = alternate(
                lambda: baselines.arrow_rows(there.plain, QUEUE, baselines.PLACE, plan.seconds),
                lambda take=take: rate_of(lambda: take(there.server) and there.rows, plan.seconds),  # type: ignore[misc]
                plan.rounds,
            )
            yield Row(
                f"read as Arrow, one reader, {what}",
                f"{number(median(below))} rows/s selected into batches in one loop",
                f"{number(median(ours))} rows/s",
                ratios(ours, below),
                first="ratio >= 0.5",
                goal="ratio >= 0.8",
            )


@contextmanager
def _stream(server: Server) -> Iterator[HTTPResponse]:
    connection = HTTPConnection(urlsplit(server.url).netloc)
    headers = {**AUTHORIZATION, "Accept": "application/vnd.apache.arrow.stream"}
    connection.request("GET", f"/v1/{APPLICATION}/{QUEUE}", headers=headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise BenchFailed(f"{answer.status} for a stream")
    yield answer
    connection.close()


def stream_raw(server: Server) -> int:
    """:returns: the bytes of one whole stream."""
    room, size = bytearray(_CHUNK), 0
    with _stream(server) as answer:
        while got := answer.readinto(room):
            size += got
    return size


def stream_decoded(server: Server) -> int:
    """:returns: the rows of one whole stream, as its end mark says too."""
    rows, said = 0, -1
    with _stream(server) as answer, pa.ipc.open_stream(answer) as reader:
        while said < 0:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
            rows += batch.num_rows
            if not batch.num_rows:
                said = int(metadata[b"queuey.rows"])
    if rows != said:
        raise BenchFailed(f"a stream of {rows} rows says it has {said}")
    return rows
