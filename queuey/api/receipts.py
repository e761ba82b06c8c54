"""Receipts: texts that name a lease. They prove nothing about the caller."""

from __future__ import annotations

import struct
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple
from uuid import UUID

from queuey.errors import InvalidReceipt
from queuey.ids import MAX_TICKS, MessageId

__all__ = ["Receipt", "receipt_ends", "receipt_start"]

_START = struct.Struct(">16sQ")
"""The queue's incarnation and the group's token: the first 32 characters, which all receipts of a group share."""
_END = struct.Struct(">BqqI")
"""Partition, message and delivery: the other 28 characters."""
_START_TEXT, _END_TEXT = 32, 28
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
        (end,) = receipt_ends(self.partition, [ticks], [tail], [self.delivery])
        return receipt_start(self.queue, self.token) + end

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """A receipt has one spelling, so two texts never name one lease.

        :raises InvalidReceipt: this is no receipt.
        """
        try:
            if len(text) == _START_TEXT + _END_TEXT:
                queue, token = _parsed_start(text[:_START_TEXT])
                partition, ticks, tail, delivery = _END.unpack(_decoded(text[_START_TEXT:]))
                if partition and 0 <= ticks <= MAX_TICKS and tail < _HIGHEST_TAIL:
                    return cls(queue, token, partition, MessageId(ticks, tail), delivery)
        except (Error, ValueError):
            pass
        raise InvalidReceipt(_REFUSAL.format(text[:_MOST_SHOWN]))


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


@lru_cache(maxsize=1024)
def _parsed_start(text: str) -> tuple[UUID, int]:
    queue, token = _START.unpack(_decoded(text))
    return UUID(bytes=queue), token


def _encoded(raw: bytes) -> str:
    """In base64, of which each character counts: the bytes are as many as three goes into."""
    return b2a_base64(raw, newline=False).translate(_URL_SAFE).decode()


def _decoded(text: str) -> bytes:
    """:raises ValueError: a character is none of base64."""
    return a2b_base64(text.encode("ascii").translate(_STANDARD), strict_mode=True)
