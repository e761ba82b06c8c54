"""Files of an archive: what is known of one, what they have in common, and how Spark writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from qdo.pipeline.rows import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

__all__ = ["FILE_COLUMNS", "ArchivedFile", "Staged", "checksum_of", "messages_in", "tail_of", "writing"]

FILE_COLUMNS = tuple(name for name in COLUMNS if name != "queue")
"""Of a file, whose folder says the queue."""
_PARQUET = {
    "compression": "snappy",
    "parquet.column.statistics.enabled#body": "false",
    **{f"parquet.enable.dictionary#{name}": "false" for name in ("message_id", "timestamp", "body", "expires")},
}
"""How Spark writes the files. Of values that hardly repeat no dictionary is tried: a seventh of the time of writing, and the files are no larger (measured). Nobody
looks for bodies between two others, so a file does not say which are its least and greatest."""
_TIMES = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True)
class ArchivedFile:
    """One file of the archive, as its manifest has it."""

    name: str
    """Below the archive's folder."""
    queue: str
    day: str
    messages: int
    first: str
    """The id of its earliest message,"""
    last: str
    """and of its latest."""
    checksum: int
    """Of all its messages together, in whatever order they are."""


class Staged(NamedTuple):
    """A file that was written aside, as who wrote it tells of it."""

    name: str
    """Below the folder of what is written aside; ends with the queue, the day and the file."""
    messages: int
    first: str
    """The id of its earliest message,"""
    last: str
    """and of its latest."""


@contextmanager
def writing(frame: DataFrame) -> Iterator[DataFrameWriter]:
    """A writer of Parquet files as the archive has them, whatever the session says of times.

    They are microseconds since 1970, in UTC. As Spark writes them by itself, INT96, no file says between which times it lies; and a session
    may have them cut to milliseconds.
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
    """Queue, day and file."""
    return "/".join(name.split("/")[-3:])


def messages_in(files: Iterable[ArchivedFile]) -> int:
    return sum(file.messages for file in files)


def checksum_of(files: Iterable[ArchivedFile]) -> int:
    found = 0
    for file in files:
        found ^= file.checksum
    return found
