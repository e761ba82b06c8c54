"""Files of an archive: what is known of a file, and how Spark writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from qdo.pipeline.rows import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

__all__ = [
    "FILE_COLUMNS",
    "ArchivedFile",
    "Staged",
    "checksum_of",
    "is_compacted",
    "messages_in",
    "newest_in",
    "stem_of_day",
    "tail_of",
    "writing",
]

FILE_COLUMNS = tuple(name for name in COLUMNS if name != "queue")
"""Of a file. Its folder says the queue."""
_PARQUET = {
    "compression": "snappy",
    "parquet.column.statistics.enabled#body": "false",
    **{f"parquet.enable.dictionary#{name}": "false" for name in ("message_id", "timestamp", "body", "expires")},
}
"""How Spark writes the files. Values that hardly repeat get no dictionary: that saves a seventh of the time of writing, and
the files are no larger (measured). Nobody looks for bodies in a range, so a file does not say its least and greatest body."""
_DAY, _UPTO = "day-", "-to-"
_TIMES = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True)
class ArchivedFile:
    """One file of the archive, as its manifest describes it."""

    name: str
    """Below the archive's folder."""
    queue: str
    day: str
    messages: int
    first: str
    """The id of its earliest message."""
    last: str
    """The id of its latest message."""
    checksum: int
    """Of all its messages together, in any order."""


class Staged(NamedTuple):
    """A file that was written aside, as its writer describes it."""

    name: str
    """Below the folder for files written aside. It ends with queue, day and file."""
    messages: int
    first: str
    """The id of its earliest message."""
    last: str
    """The id of its latest message."""


@contextmanager
def writing(frame: DataFrame) -> Iterator[DataFrameWriter]:
    """A writer of Parquet files with times as the archive has them.

    The setting of the session does not matter.

    Times are microseconds since 1970, in UTC. Spark's default, INT96, leaves out between which times a file lies, and a
    session may be set to cut times to milliseconds.
    """
    conf = frame.sparkSession.conf
    before = conf.get(_TIMES)
    conf.set(_TIMES, "TIMESTAMP_MICROS")
    try:
        yield frame.write.options(**_PARQUET)
    finally:
        if before is not None:
            conf.set(_TIMES, before)


def tail_of(name: str) -> str:
    """The part of a name that says queue, day and file."""
    return "/".join(name.split("/")[-3:])


def stem_of_day(day: str, newest: str) -> str:
    """How the names of the files begin that have the messages of a day in their order.

    :param newest: of the files that they replace, by :func:`newest_in`.

    >>> stem_of_day("2026-11-21", "batch-000000004-00000")
    'day-2026-11-21-to-batch-000000004-00000'
    """
    return f"{_DAY}{day}{_UPTO}{newest}"


def is_compacted(file: ArchivedFile) -> bool:
    """Whether it has messages of several files, or a part of them, in their order."""
    return file.name.rpartition("/")[2].startswith(_DAY)


def newest_in(file: ArchivedFile) -> str:
    """The newest of the files that it was made of, or the file itself: the name without its ending.

    So the names of files that are compacted again and again do not grow.
    """
    return file.name.rpartition("/")[2].partition(".")[0].rpartition(_UPTO)[2]


def messages_in(files: Iterable[ArchivedFile]) -> int:
    return sum(file.messages for file in files)


def checksum_of(files: Iterable[ArchivedFile]) -> int:
    found = 0
    for file in files:
        found ^= file.checksum
    return found
