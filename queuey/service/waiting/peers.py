"""Servers tell each other where messages came, so that no waiting reader has to ask the store again and again.

Each server gathers the partitions it appended to and tells of them in one row, a few times a second
and only when there is something to tell. Who has waiting readers looks at these rows, all at once.
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

TELL_SECONDS = 0.25
"""Between two rows of one server, at least."""
LISTEN_SECONDS = 0.5
"""Between two looks at all servers' rows, while somebody waits."""
MOST_TOLD = 4096
"""Partitions in one row; where there are more, the row says so and every waiting reader looks."""

Hear = Callable[[Sequence[PartitionId] | None, int], None]


class Activities:
    """What this server has to tell, and what it hears. Driven by the one thread of :class:`~queuey.service.waiting.registry.Waiters`."""

    def __init__(self, peers: Peers, clock: Clock) -> None:
        self._peers = peers
        self._clock = clock
        self._lock = new_lock()
        self._partitions: set[PartitionId] = set()
        self._too_many = False
        self._newest = 0
        self._told = self._listened = -inf
        self._telling = self._listening = False

    def note(self, queue: UUID, placed: Sequence[Location]) -> bool:
        """Messages were acknowledged by this server.

        :returns: whether nothing was to be told before, so that :meth:`work` has to be called.
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
        if len(self._partitions) > MOST_TOLD:
            self._partitions.clear()
            self._too_many = True

    def work(self, hear: Hear, *, somebody_waits: bool) -> float:
        """Tell and listen, if it is time to; nothing is waited for here.

        :param hear: called with what was heard, in any thread.
        :returns: seconds until there may be more to do.
        """
        now = self._clock.elapsed()
        rest = TELL_SECONDS if self._telling else inf
        if self._partitions or self._too_many:
            rest = max(self._told + TELL_SECONDS - now, 0.0)
            if self._telling:
                rest = TELL_SECONDS
            elif not rest:
                self._told, rest = now, TELL_SECONDS
                self._tell()
        if somebody_waits:
            pause = max(self._listened + LISTEN_SECONDS - now, 0.0)
            if not pause:
                self._listened, pause = now, LISTEN_SECONDS
                if not self._listening:
                    self._listen(hear)
            rest = min(rest, pause)
        return rest

    def _tell(self) -> None:
        with self._lock:
            partitions, self._partitions = self._partitions, set()
            too_many, self._too_many = self._too_many, False
            newest = self._newest
        self._telling = True

        def told(promise: Future[None]) -> None:
            self._telling = False
            try:
                promise.result()
            except Exception as error:  # noqa: BLE001 - whatever it is, nobody was told
                log.warning("other servers could not be told of new messages, and will be: %s", error)
                with self._lock:
                    self._partitions |= partitions
                    self._too_many = self._too_many or too_many
                    self._bound()

        self._peers.publish(AppendNotice(None if too_many else tuple(partitions), newest)).add_done_callback(told)

    def _listen(self, hear: Hear) -> None:
        self._listening = True

        def listened(promise: Future[Sequence[AppendNotice]]) -> None:
            self._listening = False
            try:
                for partitions, newest_ticks in promise.result():
                    hear(partitions, newest_ticks)
            except Exception as error:  # noqa: BLE001 - who called has more to do
                log.warning("what other servers tell could not be read, and will be: %s", error)

        self._peers.poll().add_done_callback(listened)
