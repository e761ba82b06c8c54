"""Pauses a lease group that makes too many dead letters: what fails then is not the messages."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from uuid import UUID

from queuey.clock import Clock
from queuey.ids import MAX_ID, TICKS_PER_SECOND, MessageId
from queuey.locks import new_lock
from queuey.model import Queue, ReadRequest, Span
from queuey.model.dead_letters import story_of
from queuey.model.headers import decode_headers
from queuey.model.lease_groups import UNTIL_RESUMED, Breaker, GroupSettings
from queuey.monitor.metrics import BREAKERS_TRIPPED, Monitor
from queuey.storage import Stores

__all__ = ["Breakers"]

log = logging.getLogger(__name__)

MOST_GROUPS = 10_000
"""Groups whose dead letters are counted. One that is forgotten is counted anew from its letters."""
_PAGE, _PAGES = 1000, 10
"""Letters that are looked at for a count: other groups may write to the same queue."""

GroupName = tuple[UUID, str]


class Breakers:
    """Counts the dead letters that this server has moved lately, of each group with a breaker. Thread-safe.

    The letters are their own record: after a restart a group's count begins with those in the dead-letter queue that
    are newer than its last pause by the breaker.
    """

    def __init__(self, stores: Stores, clock: Clock, monitor: Monitor) -> None:
        self._stores, self._clock, self._monitor = stores, clock, monitor
        self._moved: OrderedDict[GroupName, deque[int]] = OrderedDict()
        """When the last letters of each group were moved, in ticks. The group that was used last comes last."""
        self._lock = new_lock()

    async def prepare(self, queue: Queue, name: str, settings: GroupSettings, dead: Queue) -> None:
        """Count what was moved before this server began. Call it before a letter is stored."""
        breaker = settings.breaker
        if breaker is None or (queue.uuid, name) in self._moved:
            return
        since = max(self._clock.now_ticks() - round(breaker.seconds * TICKS_PER_SECOND), settings.tripped_ticks + 1)
        found = await self._letters(queue, name, breaker, dead, MessageId.first_of(since))
        with self._lock:
            self._moved.setdefault((queue.uuid, name), deque(found, breaker.dead + 1))
            while len(self._moved) > MOST_GROUPS:
                self._moved.popitem(last=False)

    async def _letters(self, queue: Queue, name: str, breaker: Breaker, dead: Queue, since: MessageId) -> list[int]:
        """When the group's letters were stored that count now, in order."""
        now = self._clock.now_ticks()
        found: list[int] = []
        for number in range(1, dead.partitions + 1):
            span = Span(since.before(), MAX_ID)
            for _ in range(_PAGES):
                request = ReadRequest(dead.partition(number), span, _PAGE, newest_first=True, skip_corrupt=True)
                page = await self._stores.messages.read(request, now_ticks=now)
                for message in page.messages:
                    try:
                        story = story_of(decode_headers(message.headers))
                    except ValueError:
                        continue
                    if (story.queue, story.group) == (queue.name, name):
                        found.append(message.id.ticks)
                if not page.more or len(found) > breaker.dead:
                    break
                span = Span(span.after, page.messages[-1].id.before())
        return sorted(found)[-breaker.dead - 1 :]

    async def note(self, queue: Queue, name: str, breaker: Breaker, stored: int) -> None:
        """Count one more letter, and pause the group if it is one too many.

        :param stored: when it was stored, in ticks.
        """
        now = max(self._clock.now_ticks(), stored)
        key = (queue.uuid, name)
        with self._lock:
            moved = deque(self._moved.pop(key, ()), breaker.dead + 1)
            moved.append(now)
            while moved[0] < now - breaker.seconds * TICKS_PER_SECOND:
                moved.popleft()
            trips = len(moved) > breaker.dead
            self._moved[key] = deque(maxlen=breaker.dead + 1) if trips else moved
        if trips:
            await self._pause(queue, name, breaker, now)

    async def _pause(self, queue: Queue, name: str, breaker: Breaker, now: int) -> None:
        reason = f"breaker: more than {breaker.dead} dead letters within {breaker.seconds:g} seconds"
        while True:
            before = await self._stores.leases.find_group(queue.uuid, name)
            if before is None or before.settings.is_paused(self._clock.now_ticks()):
                return
            settings = before.settings._replace(paused_until=UNTIL_RESUMED, paused_reason=reason, tripped_ticks=now)
            if await self._stores.leases.keep_group(queue.uuid, name, before._replace(settings=settings), before):
                break
        self._monitor.count(BREAKERS_TRIPPED, 1, queue.application)
        log.warning("lease group %s of queue %s/%s is paused: %s", name, queue.application, queue.name, reason)
