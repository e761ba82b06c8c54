"""Servers of one store publish where messages came.

So no waiting reader has to ask the store again and again.

Each server gathers the partitions it appended to and publishes them in one notice, a few times a second and only when there
is something to publish. A server with waiting readers polls the notices of all others at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from uuid import UUID

from queuey.clock import Clock
from queuey.future import Future
from queuey.locks import new_lock
from queuey.model import Location, PartitionId
from queuey.storage import AppendNotice, Peers

log = logging.getLogger(__name__)

PUBLISH_SECONDS = 0.25
"""Between two notices of one server, at least."""
POLL_SECONDS = 0.5
"""Between two polls, while somebody waits."""
MOST_PARTITIONS = 4096
"""Partitions in one notice; with more it names none, and every waiting reader looks."""

Hear = Callable[[Sequence[PartitionId] | None, int], None]


class Notices:
    """What this server publishes, and what it polls.

    The one thread of the waiting readers drives it.
    """

    def __init__(self, peers: Peers, clock: Clock) -> None:
        self._peers = peers
        self._clock = clock
        self._lock = new_lock()
        self._partitions: set[PartitionId] = set()
        self._too_many = False
        self._newest = 0
        self._published_at = self._polled_at = -inf
        self._publishing = self._polling = False

    def note(self, queue: UUID, placed: Sequence[Location]) -> bool:
        """Messages were acknowledged by this server.

        :returns: whether there was nothing to publish before, so that :meth:`work` has to be called.
        """
        now = self._clock.now_ticks()
        with self._lock:
            first = not self._partitions and not self._too_many
            self._newest = max(self._newest, now)
            for number, _ in placed:
                self._partitions.add(PartitionId(queue, number))
            self._bound()
        return first

    def _bound(self) -> None:
        if len(self._partitions) > MOST_PARTITIONS:
            self._partitions.clear()
            self._too_many = True

    def work(self, hear: Hear, *, somebody_waits: bool) -> float:
        """Publish and poll, if it is time to; this waits for nothing.

        :param hear: called with each notice of others, in any thread.
        :returns: seconds until there may be more to do.
        """
        now = self._clock.elapsed()
        rest = self._publish_in_time(now)
        return min(rest, self._poll_in_time(now, hear)) if somebody_waits else rest

    def _publish_in_time(self, now: float) -> float:
        if self._publishing:
            return PUBLISH_SECONDS
        if not self._partitions and not self._too_many:
            return inf
        rest = max(self._published_at + PUBLISH_SECONDS - now, 0.0)
        if rest:
            return rest
        self._published_at = now
        self._publish()
        return PUBLISH_SECONDS

    def _publish(self) -> None:
        with self._lock:
            partitions, self._partitions = self._partitions, set()
            too_many, self._too_many = self._too_many, False
            newest = self._newest
        self._publishing = True

        def published(future: Future[None]) -> None:
            self._publishing = False
            try:
                future.result()
            except Exception as error:  # noqa: BLE001 - whatever it is, no server may have seen the notice
                log.warning("a notice of new messages was not published; the next one repeats it: %s", error)
                with self._lock:
                    self._partitions |= partitions
                    self._too_many = self._too_many or too_many
                    self._bound()

        notice = AppendNotice(None if too_many else tuple(partitions), newest)
        self._peers.publish(notice).add_done_callback(published)

    def _poll_in_time(self, now: float, hear: Hear) -> float:
        rest = max(self._polled_at + POLL_SECONDS - now, 0.0)
        if rest:
            return rest
        self._polled_at = now
        if not self._polling:
            self._poll(hear)
        return POLL_SECONDS

    def _poll(self, hear: Hear) -> None:
        self._polling = True

        def polled(future: Future[Sequence[AppendNotice]]) -> None:
            self._polling = False
            try:
                for partitions, newest_ticks in future.result():
                    hear(partitions, newest_ticks)
            except Exception as error:  # noqa: BLE001 - the thread that called has more to do
                log.warning("notices of other servers could not be read; the next poll reads them: %s", error)

        self._peers.poll().add_done_callback(polled)
