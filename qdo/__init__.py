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
    from qdo.tasks import DeclaredTask, TaskFailed, TaskRemoved, TaskResult, TaskTimeout, current_context, task
    from qdo.worker import Worker
    from qdo.worker.job import Context, RejectMessage, RetryLater, RetryPolicy, StopWorker

__all__ = [
    "Appended",
    "ArrowStream",
    "ChangedQueues",
    "Client",
    "Context",
    "DeclaredTask",
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
    "RetryLater",
    "RetryPolicy",
    "Settle",
    "Settled",
    "StopWorker",
    "StreamEnd",
    "TaskFailed",
    "TaskRemoved",
    "TaskResult",
    "TaskTimeout",
    "Worker",
    "current_context",
    "task",
]

_OF_WORKERS = ("Context", "RejectMessage", "RetryLater", "RetryPolicy", "StopWorker", "Worker")
_OF_TASKS = ("DeclaredTask", "TaskFailed", "TaskRemoved", "TaskResult", "TaskTimeout", "current_context", "task")


def __getattr__(name: str) -> object:
    """Import workers and tasks when they are asked for.

    A program that only talks to a server starts without them.
    """
    if name in _OF_WORKERS:
        from qdo import worker

        return getattr(worker, name)
    if name in _OF_TASKS:
        from qdo import tasks

        return getattr(tasks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
