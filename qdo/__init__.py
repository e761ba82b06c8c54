"""The client side of Queuey: :class:`~qdo.client.Client` with its values, and :class:`~qdo.worker.Worker`."""

from __future__ import annotations

import typing

from qdo.client import (
    Appended,
    Arrivals,
    ArrowStream,
    Client,
    GroupOffset,
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
from qdo.job import Context, RetryPolicy, StopWorker

if typing.TYPE_CHECKING:
    from qdo.worker import Worker

__all__ = [
    "Appended",
    "Arrivals",
    "ArrowStream",
    "Client",
    "Context",
    "GroupOffset",
    "Message",
    "MessageStream",
    "NewMessage",
    "NewToken",
    "Page",
    "PartitionInfo",
    "QueueInfo",
    "QueueSettings",
    "RetryPolicy",
    "StopWorker",
    "StreamEnd",
    "Worker",
]


def __getattr__(name: str) -> object:
    """The worker is imported when it is asked for: who only talks to a server starts without it."""
    if name == "Worker":
        from qdo.worker import Worker

        return Worker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
