"""Receipts: texts that name a lease. They prove nothing about the caller."""

from __future__ import annotations

import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import repeat
from typing import NamedTuple
from uuid import UUID

from queuey.errors import InvalidReceipt
from queuey.ids import MAX_TICKS, MessageId

__all__ = ["Receipt", "Receipts", "parse_receipts", "receipt_end", "receipt_ends", "receipt_start"]

_START = struct.Struct(">16sQ")
"""The queue's incarnation and the group's token: the first 32 characters, which all receipts of a group share."""
_END = struct.Struct(">BqqI")
"""Partition, message and delivery: the other 28 characters."""
_WHOLE = struct.Struct(">24sBqqI")
_END_TEXT, _TEXT = 28, 60
_HIGHEST_TAIL = -1 << 62
"""Above the tail of every message: it has the variant of RFC 4122."""
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_STANDARD = bytes.maketrans(b"-_+/", b"+/--")
"""What stands for nothing in a receipt becomes what stands for nothing in base64."""
_MOST_SHOWN = 40
_REFUSAL = '"{}" is no receipt'


class Receipt(NamedTuple):
    """A lease of one delivery of one message."""

    queue: UUID
    """The queue's incarnation."""
    token: int
    """Of the group."""
    partition: int
    id: MessageId
    delivery: int

    def text(self) -> str:
        """The receipt as receivers get it: 60 characters that may stand in a URL.

        >>> message_id = MessageId.parse("1f9f6640e56711f189bf02fc00000001")
        >>> receipt = Receipt(UUID(int=1), 2, 3, message_id, 6)
        >>> Receipt.parse(receipt.text()) == receipt, len(receipt.text())
        (True, 60)
        """
        ticks, tail = self.id
        return receipt_start(self.queue, self.token) + receipt_end(self.partition, ticks, tail, self.delivery)

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """A receipt has one spelling, so two texts never name one lease.

        :raises InvalidReceipt: this is no receipt.
        """
        found = parse_receipts([text])
        if found is None:
            raise InvalidReceipt(_REFUSAL.format(text[:_MOST_SHOWN]))
        return cls(found.queue, found.token, found.partitions[0], found.ids[0], found.deliveries[0])


class Receipts(NamedTuple):
    """Receipts of one group, by column."""

    queue: UUID
    token: int
    partitions: Sequence[int]
    ids: Sequence[MessageId]
    deliveries: Sequence[int]

    def by_partition(self) -> Iterator[tuple[int, Sequence[MessageId], Sequence[int]]]:
        """The number, the ids and the deliveries of each partition, in the order of the receipts."""
        partitions = self.partitions
        if partitions.count(partitions[0]) == len(partitions):
            yield partitions[0], self.ids, self.deliveries
            return
        found: dict[int, list[int]] = {}
        for at, number in enumerate(partitions):
            found.setdefault(number, []).append(at)
        for number, ats in found.items():
            yield number, [self.ids[at] for at in ats], [self.deliveries[at] for at in ats]


_new_id = partial(tuple.__new__, MessageId)
"""Without the interpreter step that the constructor takes."""


def parse_receipts(texts: Sequence[str]) -> Receipts | None:
    """Receipts of one group, at least one; None if one is no receipt, or they are of several groups.

    :param texts: others than texts are no receipts.
    """
    if len(texts) == 1:
        return _parse_receipt(texts[0])
    try:
        text = "".join(texts)
        if len(text) != _TEXT * len(texts) or (len(texts) > 1 and {*map(len, texts)} != {_TEXT}):
            return None
        starts, partitions, ticks, tails, deliveries = zip(*_WHOLE.iter_unpack(_decoded(text)), strict=True)
    except (TypeError, ValueError):
        return None
    if 0 in partitions or min(ticks) < 0 or max(ticks) > MAX_TICKS or max(tails) >= _HIGHEST_TAIL:
        return None
    if starts.count(starts[0]) < len(starts):
        return None
    queue, token = _parsed_start(starts[0])
    return Receipts(queue, token, partitions, [*map(_new_id, zip(ticks, tails, strict=True))], deliveries)


def _parse_receipt(text: str) -> Receipts | None:
    """The same of one receipt: most requests have one."""
    if type(text) is not str or len(text) != _TEXT:
        return None
    try:
        start, partition, ticks, tail, delivery = _WHOLE.unpack(_decoded(text))
    except ValueError:
        return None
    if not partition or not 0 <= ticks <= MAX_TICKS or tail >= _HIGHEST_TAIL:
        return None
    queue, token = _parsed_start(start)
    return Receipts(queue, token, (partition,), (MessageId(ticks, tail),), (delivery,))


@lru_cache(maxsize=1024)
def receipt_start(queue: UUID, token: int) -> str:
    """What the receipts of a group begin with."""
    return _encoded(_START.pack(queue.bytes, token))


def receipt_ends(
    partition: int, ticks: Iterable[int], tails: Iterable[int], deliveries: Iterable[int]
) -> Sequence[str]:
    """What the receipts of messages of one partition end with."""
    text = _encoded(b"".join(map(_END.pack, repeat(partition), ticks, tails, deliveries)))
    return [text[at : at + _END_TEXT] for at in range(0, len(text), _END_TEXT)]


def receipt_end(partition: int, ticks: int, tail: int, delivery: int) -> str:
    """What the receipt of one message ends with."""
    return _encoded(_END.pack(partition, ticks, tail, delivery))


@lru_cache(maxsize=1024)
def _parsed_start(raw: bytes) -> tuple[UUID, int]:
    queue, token = _START.unpack(raw)
    return UUID(bytes=queue), token


def _encoded(raw: bytes) -> str:
    """In base64, of which each character counts: the bytes are as many as three goes into."""
    return b2a_base64(raw, newline=False).translate(_URL_SAFE).decode()


def _decoded(text: str) -> bytes:
    """:raises ValueError: a character is none of base64."""
    return a2b_base64(text.encode("ascii").translate(_STANDARD), strict_mode=True)
