"""Purge: all messages of a queue go, leases included."""

from __future__ import annotations

from typing import Any

from queuey.clock import Clock
from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model import Queue, Span
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
        number = place["partition"]
        span = self._scheduled(queue) if place["phase"] == _SCHEDULED else Span(ZERO_ID, _upto(task))
        if place["after"] is not None:
            span = Span(max(span.after, MessageId(*place["after"])), span.upto)
        found = await self._log.delete_span(queue, number, span, most=MOST_TOGETHER)
        place["after"] = [*found.upto]
        if found.upto >= span.upto:
            place |= {"partition": number + 1, "after": None}
        if place["partition"] > queue.partitions:
            place |= {"phase": _DUE if place["phase"] == _SCHEDULED else _ENDED, "partition": 1}
        return found.messages

    def _scheduled(self, queue: Queue) -> Span:
        """Where only scheduled messages lie, whatever is appended now and the clocks of other servers show."""
        return Span(MessageId.last_of(self._log.newest_ticks(queue)), MAX_ID)

    async def _settle(self, task: StoredTask, queue: Queue, partitions: int) -> None:
        await self._leases.pass_over(queue, dict.fromkeys(range(1, partitions + 1), _upto(task)))

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
