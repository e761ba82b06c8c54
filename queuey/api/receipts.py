"""Receipts: texts that name a lease. They prove nothing about the caller."""

from __future__ import annotations

import base64
import binascii
import struct
from typing import NamedTuple
from uuid import UUID

from queuey.errors import InvalidReceipt
from queuey.ids import MessageId

__all__ = ["Receipt"]

_FORM = struct.Struct(">16sQB16sI")
_MOST_SHOWN, _MOST_READ = 40, 100
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
        raw = _FORM.pack(self.queue.bytes, self.token, self.partition, self.id.bytes, self.delivery)
        return base64.urlsafe_b64encode(raw).decode()

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """A receipt has one spelling, so two texts never name one lease.

        :raises InvalidReceipt: this is no receipt.
        """
        try:
            queue, token, partition, message_id, delivery = _FORM.unpack(base64.urlsafe_b64decode(text[:_MOST_READ]))
            receipt = cls(UUID(bytes=queue), token, partition, MessageId.from_bytes(message_id), delivery)
        except (binascii.Error, struct.error, ValueError) as error:
            raise InvalidReceipt(_REFUSAL.format(text[:_MOST_SHOWN])) from error
        if not partition or receipt.text() != text:
            raise InvalidReceipt(_REFUSAL.format(text[:_MOST_SHOWN]))
        return receipt
