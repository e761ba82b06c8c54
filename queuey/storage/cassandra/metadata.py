"""Queues and application keys in Cassandra.

:mod:`~queuey.storage.cassandra.queue_rows` has a row for each queue, :mod:`~queuey.storage.cassandra.names` the lists
of names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from uuid import UUID

from queuey import future
from queuey.clock import Clock
from queuey.future import Future, Inbox
from queuey.model import PrincipalKey, Queue
from queuey.storage import MetadataStore
from queuey.storage.cassandra.names import EVERYBODY, NameLists
from queuey.storage.cassandra.queue_rows import QueueRows
from queuey.storage.cassandra.session import ALL_CENTRES, CassandraSession
from queuey.storage.cassandra.underway import Underway

__all__ = ["CassandraMetadata"]

_CLOSE_SECONDS = 10.0
_AT_ONCE = 128
"""Queues looked up together for one page."""


class CassandraMetadata(MetadataStore):
    """Metadata of any number of servers in one keyspace."""

    def __init__(
        self,
        session: CassandraSession,
        clock: Clock,
        *,
        trusted_seconds: float,
        settle_seconds: float,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """
        :param trusted_seconds: how long servers use what they read of a queue.
        :param settle_seconds: the time between the decision on a removal and its end. After it no server has an append
            under way that it took by the former settings (G9).
        """
        self._session = session
        self.trusted_seconds = trusted_seconds
        self._names = NameLists(session)
        self._queues = QueueRows(session, clock, self._names, settle_seconds)
        self._underway = Underway(session.options.most_calls)
        self._on_close = on_close

    def use_loop(self, inbox: Inbox | None) -> None:
        """See :meth:`queuey.storage.MetadataStore.use_loop`."""
        self._session.cluster.loop.use(inbox)

    # Queues

    def create_queue(self, queue: Queue) -> Future[tuple[Queue, bool]]:
        return self._underway.start(self._queues.create(queue))

    def find_queue(self, application: str, name: str) -> Future[Queue | None]:
        return self._underway.start(self._queues.find(application, name))

    def replace_queue(self, old: Queue, new: Queue) -> Future[bool]:
        return self._underway.start(self._queues.replace(old, new))

    def remove_queue(self, queue: Queue) -> Future[bool]:
        return self._underway.start(self._queues.remove(queue))

    def removed(self, limit: int = 100) -> Future[Sequence[UUID]]:
        return self._underway.start(self._queues.removed(limit))

    def forget_removed(self, queue: UUID) -> Future[None]:
        return self._underway.start(self._queues.forget_removed(queue))

    # Lists

    def list_queues(self, application: str, *, start: str = "", limit: int = 1000) -> Future[Sequence[Queue]]:
        return self._underway.start(self._page(application, EVERYBODY, start, limit))

    def list_named(
        self, application: str, principal: str, *, start: str = "", limit: int = 1000
    ) -> Future[Sequence[Queue]]:
        if not principal:
            return Future.of([])
        return self._underway.start(self._page(application, principal, start, limit))

    async def _page(self, application: str, who: str, start: str, limit: int) -> Sequence[Queue]:
        """Names of all shards in one order, each looked up, until the page is full."""
        found: list[Queue] = []
        while len(found) < limit:
            names, whole = await self._names.page(application, who, start, limit - len(found))
            left = iter(names)
            while some := list(islice(left, min(_AT_ONCE, limit - len(found)))):
                for lookup in [future.start(self._queues.find(application, name)) for name in some]:
                    queue = await lookup
                    if queue is not None and (not who or who in queue.principals):
                        found.append(queue)
            if whole:
                break
            start = names[-1] + "\0"
        return found

    # Keys

    def add_key(self, key: PrincipalKey) -> Future[None]:
        return self._underway.start(self._add_key(key))

    async def _add_key(self, key: PrincipalKey) -> None:
        await self._session.compare_and_set("key_insert", (key.digest, key.principal, key.label, key.created_ticks))

    def keys(self) -> Future[Sequence[PrincipalKey]]:
        return self._underway.start(self._keys())

    async def _keys(self) -> Sequence[PrincipalKey]:
        found = [PrincipalKey(*row) for row in await self._session.ask("key_list", (), ALL_CENTRES)]
        return sorted(found, key=lambda key: (key.created_ticks, key.digest))

    def remove_key(self, principal: str, label: str) -> Future[int]:
        return self._underway.start(self._remove_key(principal, label))

    async def _remove_key(self, principal: str, label: str) -> int:
        found = [key for key in await self._keys() if (key.principal, key.label) == (principal, label)]
        gone = 0
        for key in found:
            gone += bool((await self._session.compare_and_set("key_delete", (key.digest,)))[0][0])
        return gone

    # The store

    def problems(self) -> Sequence[str]:
        return self._session.problems()

    def close(self) -> None:
        self._underway.finish(_CLOSE_SECONDS)
        self._on_close()
