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
_MOST_SHOWN = 40


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

        >>> receipt = Receipt(UUID(int=1), 2, 3, MessageId(10**17, 5), 6)
        >>> Receipt.parse(receipt.text()) == receipt, len(receipt.text())
        (True, 60)
        """
        raw = _FORM.pack(self.queue.bytes, self.token, self.partition, self.id.bytes, self.delivery)
        return base64.urlsafe_b64encode(raw).decode()

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """:raises InvalidReceipt: this is no receipt."""
        try:
            queue, token, partition, message_id, delivery = _FORM.unpack(base64.urlsafe_b64decode(text))
            return cls(UUID(bytes=queue), token, partition, MessageId.from_bytes(message_id), delivery)
        except (binascii.Error, struct.error, ValueError) as error:
            raise InvalidReceipt(f'"{text[:_MOST_SHOWN]}" is no receipt') from error
