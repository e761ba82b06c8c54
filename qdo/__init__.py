"""The client side of Queuey: a client, and workers.

See :class:`~qdo.client.Client` with its values, and :class:`~qdo.worker.Worker`.
"""

from __future__ import annotations

import typing

from qdo.client import (
    Appended,
    ArrowStream,
    ChangedQueues,
    Client,
    Delivery,
    Extend,
    ExtendAll,
    GroupOffset,
    Lease,
    LeaseGroup,
    LeasePartition,
    Message,
    MessageStream,
    NewMessage,
    NewToken,
    Page,
    PartitionInfo,
    QueueInfo,
    QueueSettings,
    Receive,
    Reject,
    Release,
    Settle,
    Settled,
    StreamEnd,
)

if typing.TYPE_CHECKING:
    from qdo.worker import Worker
    from qdo.worker.job import Context, RejectMessage, RetryPolicy, StopWorker

__all__ = [
    "Appended",
    "ArrowStream",
    "ChangedQueues",
    "Client",
    "Context",
    "Delivery",
    "Extend",
    "ExtendAll",
    "GroupOffset",
    "Lease",
    "LeaseGroup",
    "LeasePartition",
    "Message",
    "MessageStream",
    "NewMessage",
    "NewToken",
    "Page",
    "PartitionInfo",
    "QueueInfo",
    "QueueSettings",
    "Receive",
    "Reject",
    "RejectMessage",
    "Release",
    "RetryPolicy",
    "Settle",
    "Settled",
    "StopWorker",
    "StreamEnd",
    "Worker",
]


def __getattr__(name: str) -> object:
    """Import the worker when it is asked for.

    A program that only talks to a server starts without it.
    """
    if name in ("Context", "RejectMessage", "RetryPolicy", "StopWorker", "Worker"):
        from qdo import worker

        return getattr(worker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
