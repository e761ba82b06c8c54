"""The client side of Queuey: :class:`~qdo.client.Client` and the values it takes and gives."""

from __future__ import annotations

from qdo.client import (
    Appended,
    ArrowStream,
    Client,
    Message,
    MessageStream,
    NewMessage,
    NewToken,
    Page,
    PartitionInfo,
    QueueInfo,
    QueueSettings,
    StreamEnd,
)

__all__ = [
    "Appended",
    "ArrowStream",
    "Client",
    "Message",
    "MessageStream",
    "NewMessage",
    "NewToken",
    "Page",
    "PartitionInfo",
    "QueueInfo",
    "QueueSettings",
    "StreamEnd",
]
