"""The key of a partition in an embedded store's file, and a message as a row."""

from __future__ import annotations

from uuid import UUID

from queuey.ids import MessageId
from queuey.model import Message, PartitionId
from queuey.storage.checksums import Beside, checksum_of
from queuey.storage.sqlite.transaction import Row

__all__ = ["BEFORE_ALL", "PARTITION_BYTES", "key_of", "message_of_row", "message_row", "partition_of"]

PARTITION_BYTES = [number.to_bytes(1, "big") for number in range(256)]
"""The last byte of a partition's key, by its number."""
BEFORE_ALL = -1
"""A moment before anything expires."""


def key_of(partition: PartitionId) -> bytes:
    """The column ``partition_key`` of a partition.

    It is the uuid of the queue's incarnation, then the number in one byte.
    """
    return partition.queue.bytes + PARTITION_BYTES[partition.number]


def partition_of(key: bytes) -> PartitionId:
    """The partition of a key: the inverse of :func:`key_of`."""
    return PartitionId(UUID(bytes=key[:-1]), key[-1])


def message_row(partition_key: bytes, message_id: MessageId, expires: int, body: bytes, beside: Beside) -> Row:
    """A message in the form that :meth:`Transaction.insert` takes."""
    kind, key, headers = beside
    return partition_key, *message_id, expires, checksum_of(message_id, beside, body), kind, key, body, headers


def message_of_row(row: Row) -> Message:
    """The inverse of :func:`message_row`."""
    _, ticks, tail, expires, _, kind, key, body, headers = row
    content_type, name = (None if text is None else text.decode() for text in (kind, key))
    return Message(ticks, tail, expires, content_type, name, body, headers)
