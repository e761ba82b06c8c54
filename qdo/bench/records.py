"""What the generator writes down: rows of fixed size, in files that each have one writer.

The rows of a file are in the order of time of their writer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

STORED, REFUSED, UNKNOWN = 0, 1, 2
"""What became of a request to send: acknowledged; surely not stored; no answer."""
CORRUPT, FOREIGN, FAILED = 1, 2, 4
"""Of a receipt: changed on its way; no message of this run; given back as a failure."""
_ROWS_A_READ = 4096


class SentRow(NamedTuple):
    """A request that sent the messages ``first`` to ``first + messages - 1`` of a stream. Times are in nanoseconds."""

    stream: int
    first: int
    messages: int
    outcome: int
    due: int
    free: int
    """When the sender was done with its request before."""
    begun: int
    """When it sent this one."""
    ended: int
    """When it had the answer."""


class ReceivedRow(NamedTuple):
    """A message that a receiver got. Times are in nanoseconds."""

    subscription: int
    consumer: int
    stream: int
    number: int
    key: int
    flags: int
    due: int
    sent: int
    not_before: int
    asked: int
    """When the receiver asked for it."""
    arrived: int
    held_until: int
    """Until then it is surely leased to this receiver, unless it is settled before; 0 without a lease."""
    settled: int
    """When its acknowledgement was confirmed; 0 if it never was."""
    settling: int
    """When an acknowledgement was sent that settled it, or may have; 0 if there was none, or it came too late."""


SENT = struct.Struct("<IIHBqqqq")
RECEIVED = struct.Struct("<HIIIIBqqqqqqqq")


class Writer:
    """Writes the rows of one file."""

    def __init__(self, path: Path, form: struct.Struct) -> None:
        self._file = path.open("wb", buffering=1 << 18)
        self._pack = form.pack

    def write(self, row: SentRow | ReceivedRow) -> None:
        self._file.write(self._pack(*row))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._file.close()


def read_sent(path: Path) -> Iterator[SentRow]:
    """The rows of a file, a bounded number in memory at a time."""
    return map(SentRow._make, _rows(path, SENT))


def read_received(path: Path) -> Iterator[ReceivedRow]:
    """As :func:`read_sent`."""
    return map(ReceivedRow._make, _rows(path, RECEIVED))


def _rows(path: Path, form: struct.Struct) -> Iterator[tuple[int, ...]]:
    with path.open("rb") as file:
        while piece := file.read(form.size * _ROWS_A_READ):
            yield from form.iter_unpack(piece)
