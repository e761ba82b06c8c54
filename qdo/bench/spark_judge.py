"""The judge in Spark, for runs with more receipts than one process should read.

What is judged of a message depends on the other messages of its producer, in its view, and on nothing else. So the rows
are brought together by view and producer and sorted by time, which Spark does on disk, and each group goes through the
:class:`~qdo.bench.judge.Judge` that reads the files of smaller runs. The figures are the same; the examples may be others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from qdo.bench.judge import Findings, Judge
from qdo.bench.measuring import Meter, Times
from qdo.bench.records import RECEIVED, SENT, ReceivedRow, SentRow
from qdo.bench.unsettled import Quiet
from qdo.bench.workload import Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNK_ROWS = 500_000
"""Of a file, that a task reads."""
GROUPED_ROWS = 2_000_000
"""That a task judges, if the producers are many."""


class _Chunk(NamedTuple):
    path: Path
    file: int
    first: int
    rows: int
    is_received: bool


class _Place(NamedTuple):
    """What rows are sorted by. What was sent comes before all receipts, and receipts of one moment as in their files."""

    view: int
    stream: int
    is_received: bool
    moment: int
    file: int
    row: int


_Row = tuple[_Place, bytes]


def judged_in_spark(
    spark: SparkSession, workload: Workload, start: int, files: tuple[Sequence[Path], Sequence[Path]], quiet: Quiet
) -> tuple[Findings, Times]:
    """What a run did wrong, and its times.

    :param start: of the load.
    :param files: of the senders, and of the receivers, which all workers of Spark can read.
    :param quiet: how the run ended.
    """
    sent, received = files
    chunks = [*_chunks(sent, is_received=False), *_chunks(received, is_received=True)]
    parts = 2 + sum(chunk.rows for chunk in chunks) // GROUPED_ROWS
    read = partial(_rows_of, views=workload.views)
    judge = partial(_judged_part, workload=workload, start=start, quiet=quiet)
    findings, times = Findings(), Meter(workload, start).times
    rows = spark.sparkContext.parallelize(chunks, len(chunks)).flatMap(read)
    for found, taken in rows.repartitionAndSortWithinPartitions(parts, _part_of).mapPartitions(judge).collect():
        findings.add(found)
        times.add(taken)
    return findings, times


def _chunks(paths: Sequence[Path], *, is_received: bool) -> Iterator[_Chunk]:
    size = (RECEIVED if is_received else SENT).size
    for at, path in enumerate(paths):
        rows = path.stat().st_size // size
        for first in range(0, rows, CHUNK_ROWS):
            yield _Chunk(path.resolve(), at, first, min(CHUNK_ROWS, rows - first), is_received)


# In the workers of Spark.


def _rows_of(chunk: _Chunk, views: int) -> Iterator[_Row]:
    """The rows of a chunk; those of senders once for each view."""
    size = (RECEIVED if chunk.is_received else SENT).size
    with chunk.path.open("rb") as file:
        file.seek(chunk.first * size)
        for at in range(chunk.first, chunk.first + chunk.rows):
            text = file.read(size)
            if chunk.is_received:
                row = ReceivedRow._make(RECEIVED.unpack(text))
                yield _Place(row.subscription, row.stream, True, row.arrived, chunk.file, at), text
            else:
                sent = SentRow._make(SENT.unpack(text))
                for view in range(views):
                    yield _Place(view, sent.stream, False, sent.due, chunk.file, at), text


def _part_of(place: _Place) -> int:
    """Rows of one view and producer are judged together."""
    return place[0] * 40_503 + place[1]


def _judged_part(
    rows: Iterable[_Row], workload: Workload, start: int, quiet: Quiet
) -> Iterator[tuple[Findings, Times]]:
    """What the groups of this part say together."""
    meter, whole = Meter(workload, start), Findings()
    for (view, _), group in groupby(rows, key=lambda row: row[0][:2]):
        whole.add(_judged_group(Judge(workload, [view], quiet), meter, group, is_first=view == 0))
    yield whole, meter.times


def _judged_group(judge: Judge, meter: Meter, rows: Iterable[_Row], *, is_first: bool) -> Findings:
    """What one view saw of one producer. What was sent counts in the first view alone."""
    for place, text in rows:
        if place[2]:
            row = ReceivedRow._make(RECEIVED.unpack(text))
            meter.take_received(row)
            judge.received(row)
            continue
        sent = SentRow._make(SENT.unpack(text))
        if is_first:
            meter.take_sent(sent)
        judge.sent(sent)
    found = judge.end()
    return found if is_first else replace(found, sent=0, stored=0, unknown=0, refused=0)
