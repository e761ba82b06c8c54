"""Tasks of a queue: purge it, watch what runs, cancel it."""

from __future__ import annotations

from typing import Any

from queuey.api.fields import check_nothing
from queuey.api.params import Problems, integer
from queuey.api.queues import next_link
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import format_timestamp
from queuey.model.tasks import StoredTask
from queuey.service import Service
from queuey.service.tasks import PURGE

__all__ = ["MAX_TASKS_LISTED", "cancel", "list_tasks", "purge", "show", "task_answer"]

_SHOWN = ("from", "queue", "group_only", "rate", "filter")
"""What a redrive was asked for, as answers show it."""
MAX_TASKS_LISTED = 1000
"""Tasks in one page."""


async def purge(service: Service, call: Call, target: Target) -> Answer:
    """Begin to remove all messages of a queue, and answer with the task that does it."""
    check_nothing(call, "this removes all messages of the queue; to remove some, name their ids in the path")
    return task_answer(await service.tasks.purge(target.queue), 202)


async def show(service: Service, call: Call, target: Target) -> Answer:
    """The newest task of a name."""
    return task_answer(await service.tasks.find(target.queue, call.below))


async def cancel(service: Service, call: Call, target: Target) -> Answer:
    """Let a task stop where it is."""
    check_nothing(call, "this cancels the task; what it has done stays done")
    return task_answer(await service.tasks.cancel(target.queue, call.below))


async def list_tasks(service: Service, call: Call, target: Target) -> Answer:
    """The tasks of a queue by name, the newest of each."""
    query, problems = call.query, Problems()
    limit = problems.take("limit", integer(1, MAX_TASKS_LISTED), query.get("limit"), MAX_TASKS_LISTED)
    problems.check()
    found = await service.tasks.page(target.queue, start=query.get("offset", ""), limit=limit + 1)
    following = found[limit].name if len(found) > limit else None
    return json_answer(
        {"status": "ok", "tasks": [_shown(task) for task in found[:limit]]}, headers=next_link(call, following)
    )


def task_answer(task: StoredTask, status: int = 200) -> Answer:
    """An answer with one task."""
    return json_answer({"status": "ok", "task": _shown(task)}, status)


def _shown(task: StoredTask) -> dict[str, Any]:
    """A task as answers show it."""
    shown: dict[str, Any] = {
        "name": task.name,
        "id": task.id.hex,
        "state": str(task.state),
        "reason": task.reason or None,
        "started": format_timestamp(task.started),
        "finished": format_timestamp(task.finished) if task.finished else None,
        "left": task.left,
    }
    if task.kind == PURGE:
        return shown | {"removed": task.done}
    shown |= {"moved": task.done, "failed": task.failed}
    return shown | {name: task.asked[name] for name in _SHOWN if name in task.asked}
