"""Purge: all messages of a queue go, leases included."""

from __future__ import annotations

from typing import Any

from queuey.clock import Clock
from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model import Location, Queue, Span, SpanRemoval
from queuey.model.tasks import StoredTask, TaskState
from queuey.monitor.metrics import MESSAGES_PURGED, Monitor
from queuey.service.leases import Leases
from queuey.service.log import Log
from queuey.service.tasks.kinds import Stepped, TaskKind

__all__ = ["PURGE", "PurgeKind"]

PURGE = "purge"
"""The name of the task."""
MOST_TOGETHER = 2000
"""Messages that are removed together: a few milliseconds of an embedded store's writer."""
_MOST_SCHEDULED = 500
"""Of scheduled messages: they are removed one by one."""
_STEP_SECONDS = 0.25
_MOST_PARTS = 20
_SCHEDULED, _DUE, _ENDED = "scheduled", "due", "ended"


class PurgeKind(TaskKind):
    """Removes what was appended before the purge began, partition by partition.

    First come the messages that are still to come due, then all others up to the moment at which the purge was asked
    for. In the end each lease group settles what is gone.
    """

    def __init__(self, log: Log, leases: Leases, clock: Clock, monitor: Monitor) -> None:
        self._log, self._leases, self._clock, self._monitor = log, leases, clock, monitor

    async def step(self, task: StoredTask, queue: Queue) -> Stepped:
        place: dict[str, Any] = {"phase": _SCHEDULED, "partition": 1, "after": None, **task.place}
        if place["phase"] == _DUE and self._log.watermark(queue) < _upto(task).ticks:
            return Stepped(task, 0.5)  # what was appended before may still appear
        until, removed = self._clock.elapsed() + _STEP_SECONDS, 0
        for _ in range(_MOST_PARTS):
            removed += await self._remove_some(task, queue, place)
            if place["phase"] != task.place.get("phase", _SCHEDULED) or self._clock.elapsed() >= until:
                break
        self._monitor.count(MESSAGES_PURGED, removed, task.application)
        task = task.changed(place=place, done=task.done + removed, looked=task.looked + removed)
        if place["phase"] != _ENDED:
            return Stepped(task)
        await self._settle(task, queue, queue.partitions)
        return Stepped(task.changed(state=TaskState.DONE))

    async def _remove_some(self, task: StoredTask, queue: Queue, place: dict[str, Any]) -> int:
        """Remove some messages, and go on to the next place."""
        number, after = place["partition"], ZERO_ID if place["after"] is None else MessageId(*place["after"])
        if place["phase"] == _SCHEDULED:
            span = Span(max(after, _upto(task)), MAX_ID)
            found = await self._remove_scheduled(queue, number, span, task.asked["upto"])
        else:
            span = Span(after, _upto(task))
            found = await self._log.delete_span(queue, number, span, most=MOST_TOGETHER)
        place["after"] = [*found.upto]
        if found.upto >= span.upto:
            place |= {"partition": number + 1, "after": None}
        if place["partition"] > queue.partitions:
            place |= {"phase": _DUE if place["phase"] == _SCHEDULED else _ENDED, "partition": 1}
        return found.messages

    async def _remove_scheduled(self, queue: Queue, number: int, span: Span, upto: int) -> SpanRemoval:
        """Remove the first scheduled messages that were appended up to a moment.

        Those of a span that was all in the future when the purge was asked for lie among messages that are appended
        since, and may have come due.
        """
        page = await self._log.read_ids(queue, number, span, _MOST_SCHEDULED)
        newest = self._log.newest_ticks(queue)  # only now: at or behind all that the page has, but for scheduled ones
        wanted = [Location(number, found.id) for found in page.messages if _appended(found.id, newest) <= upto]
        if wanted:
            await self._log.delete(queue, wanted)
        return SpanRemoval(len(wanted), page.messages[-1].id if page.more else span.upto)

    async def _settle(self, task: StoredTask, queue: Queue, partitions: int) -> None:
        await self._leases.pass_over(queue, dict.fromkeys(range(1, partitions + 1), _upto(task)))

    async def abandon(self, task: StoredTask) -> None:
        """A purge makes nothing outside of its queue."""

    async def end(self, task: StoredTask, queue: Queue) -> StoredTask:
        """Lease groups settle what is gone; the rest of the messages stays."""
        place = task.place
        if place.get("phase") == _ENDED:
            await self._settle(task, queue, queue.partitions)
        elif place.get("phase") == _DUE:
            await self._settle(task, queue, place["partition"] - 1)
            if place["after"] is not None:
                await self._leases.pass_over(queue, {place["partition"]: MessageId(*place["after"])})
        return task


def _upto(task: StoredTask) -> MessageId:
    """Behind all messages that were appended when the purge was asked for, but for scheduled ones."""
    return MessageId.last_of(task.asked["upto"])


def _appended(id_: MessageId, newest: int) -> int:
    """The ticks at which a message was appended; 0 if it was put under an id of the future, so that nobody knows."""
    at = id_.scheduled_at(newest)
    return at if at is not None else id_.ticks if id_.ticks <= newest else 0
