"""Checksums of messages (G6).

They distinguish an unchanged message from a damaged one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from queuey.errors import CorruptMessage, StorageUnavailable
from queuey.ids import MessageId

__all__ = [
    "NONSENSE",
    "NOTHING_BESIDE",
    "Beside",
    "all_match",
    "beside",
    "checksum_of",
    "checksum_of_change",
    "checksums_of",
    "corrupt",
    "making_sense",
    "nonsense",
]


NONSENSE = (ValueError, TypeError, LookupError, ArithmeticError, struct.error)
"""Errors that damaged rows raise: a flipped bit makes text of a number, or an id that leads nowhere."""


@contextmanager
def making_sense() -> Iterator[None]:
    """Guard the reads inside a write: what was stored before may be damaged.

    :raises StorageUnavailable: it is damaged.
    """
    try:
        yield
    except NONSENSE as error:
        raise nonsense(error) from error


def nonsense(error: Exception) -> StorageUnavailable:
    """The refusal of a write that met what makes no sense."""
    return StorageUnavailable(f"the store holds what makes no sense ({error}); nothing was stored: run 'queuey verify'")


def checksum_of(message_id: MessageId, beside: Beside, body: bytes) -> int:
    """The value that a row must match when it is read.

    It is the row's length, and a CRC32C bound to its id.

    >>> checksum_of(MessageId(0, 0), (None, None, None), b"123456789") == 9 << 32 | 0xE3069283
    True
    """
    crc = crc32c(body) if beside is NOTHING_BESIDE else _with_rest(crc32c(body), *beside)
    return len(body) << 32 | ((crc ^ message_id.ticks ^ message_id.tail) & 0xFFFFFFFF)


def checksum_of_change(token: int, number: int, change: bytes) -> int:
    """The same of a change of what a lease group holds, bound to the group's token and to the change's number."""
    return checksum_of(MessageId(number, token), NOTHING_BESIDE, change)


Beside = tuple[bytes | None, bytes | None, bytes | None]
"""What a row has beside its body: content type, key and headers, encoded."""


def beside(content_type: str | None, key: str | None, headers: bytes | None) -> Beside:
    """What a row has beside its body, in the form that stores use."""
    if (
        content_type is None and key is None and headers is None
    ):  # so it is for most messages, and nothing is compared later
        return NOTHING_BESIDE
    return (
        None if content_type is None else content_type.encode(),
        None if key is None else key.encode(),
        headers,
    )


NOTHING_BESIDE: Beside = (None, None, None)


def _with_rest(crc: int, content_type: bytes | None, key: bytes | None, headers: bytes | None) -> int:
    """A body's CRC, continued over what is beside the body."""
    if content_type is key is headers is None:
        return crc
    extended: int = crc32c_extend(crc, b"%b\n%b\n%b" % (content_type or b"", key or b"", headers or b""))
    return extended


Column = Sequence[Any]


def checksums_of(ticks: Column, tails: Column, beside: Sequence[Column], bodies: Column) -> list[int]:
    """:func:`checksum_of` for columns of rows, in few steps of the interpreter.

    :param beside: content types, keys and headers.
    """
    crcs = map(crc32c, bodies)
    if sum([column.count(None) for column in beside]) < 3 * len(ticks):
        crcs = map(_with_rest, crcs, *beside)
    return [
        len(body) << 32 | ((crc ^ tick ^ tail) & 0xFFFFFFFF)
        for crc, tick, tail, body in zip(crcs, ticks, tails, bodies, strict=True)
    ]


def all_match(checksums: Column, ticks: Column, tails: Column, beside: Sequence[Column], bodies: Column) -> bool:
    """Whether all rows, given by column, are undamaged.

    :param beside: content types, keys and headers.
    """
    try:
        return list(checksums) == checksums_of(ticks, tails, beside, bodies)
    except TypeError:  # a flipped bit changed the type of a blob
        return False


def corrupt(message_id: MessageId) -> CorruptMessage:
    """The error that names a message which does not match its checksum."""
    return CorruptMessage(f"message {message_id.hex} does not match its checksum: step over it with skip_corrupt=true")
