"""PurgeQueue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from queuey.errors import TaskNotFound, TaskRunning, TooManyTasks
from queuey.model import Queue
from queuey.security.permissions import Permission
from queuey.service.tasks import PURGE
from queuey.sqs.actions.queues import change_attributes, unix_now
from queuey.sqs.attributes import QueueAttributes, attributes_of
from queuey.sqs.errors import SqsError
from queuey.sqs.request import SqsRequest

__all__ = ["begin_noted_purge", "purge_queue"]


async def purge_queue(asked: SqsRequest) -> Mapping[str, Any]:
    """Remove all messages. A FIFO queue also forgets what was sent to it before.

    One change of the attributes notes both. If the server dies behind it, the next receive begins the purge.
    """
    queue = await asked.queue(Permission.CONFIGURE)
    now, wait = unix_now(asked), asked.service.settings.sqs.purge_wait_seconds
    if 0 <= now - attributes_of(queue).purged < wait:  # a clock that was set back shortens the wait
        raise SqsError(
            "PurgeQueueInProgress", f"Only one PurgeQueue operation on {queue.name} is allowed every {wait} seconds."
        )
    if await _is_under_way(asked, queue):
        raise SqsError("PurgeQueueInProgress", f"A purge of {queue.name} is under way.")
    upto = asked.service.log.newest_ticks(queue)

    def change(before: QueueAttributes) -> QueueAttributes:
        purging = max(upto, before.purging)
        return replace(before, purges=before.purges + 1, purged=now, purging=purging, waits_until=0)

    await begin_noted_purge(asked, await change_attributes(asked, queue, change))
    return {}


async def _is_under_way(asked: SqsRequest, queue: Queue) -> bool:
    try:
        return (await asked.service.tasks.find(queue, PURGE)).is_open
    except TaskNotFound:
        return False


async def begin_noted_purge(asked: SqsRequest, queue: Queue) -> None:
    """Begin the purge that the attributes of a queue note.

    While another purge goes on, or the application has too many tasks, it stays noted, and no call is refused: the note
    is made already.
    """
    upto = attributes_of(queue).purging
    try:
        await asked.service.tasks.purge(queue, upto)
    except (TaskRunning, TooManyTasks):
        return

    def change(before: QueueAttributes) -> QueueAttributes:
        return replace(before, purging=0) if before.purging == upto else before

    await change_attributes(asked, queue, change)
