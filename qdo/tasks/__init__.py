"""Tasks: functions that workers call, sent as messages.

::

    from qdo import task

    @task(queue="mail", retries=5)
    def send_mail(to: str, subject: str = "hello") -> None: ...

    send_mail.send(to="ann@example.org")

:func:`~qdo.tasks.declaring.task` declares one, ``qdo work --tasks MODULE`` runs a worker. :mod:`qdo.tasks.wire` says how a
task stands in a message, and :mod:`qdo.tasks.schedules` how schedules send tasks by themselves.
"""

from __future__ import annotations

import typing

from qdo.tasks.declaring import DeclaredTask, TaskOptions, TaskSender, task
from qdo.tasks.results import TaskFailed, TaskRemoved, TaskResult
from qdo.tasks.timing import TaskTimeout

if typing.TYPE_CHECKING:
    from qdo.tasks.running import current_context
    from qdo.tasks.worker import TaskWorker

__all__ = [
    "DeclaredTask",
    "TaskFailed",
    "TaskOptions",
    "TaskRemoved",
    "TaskResult",
    "TaskSender",
    "TaskTimeout",
    "TaskWorker",
    "current_context",
    "task",
]


def __getattr__(name: str) -> object:
    """Import the worker when it is asked for: a program that only sends starts without it."""
    if name == "TaskWorker":
        from qdo.tasks.worker import TaskWorker

        return TaskWorker
    if name == "current_context":
        from qdo.tasks.running import current_context

        return current_context
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
