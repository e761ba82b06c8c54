"""Messages in Cassandra, of any number of servers in one keyspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TypeVar
from uuid import UUID

from queuey.future import Future, Inbox, Waiting, start
from queuey.model import (
    MAX_PARTITIONS,
    Appended,
    AppendRequest,
    Consistency,
    Location,
    Message,
    Overwrite,
    Page,
    PartitionId,
    PartitionState,
    Queue,
    ReadRequest,
    Span,
    SpanRemoval,
)
from queuey.storage import MessageStore, NodeState, Peers
from queuey.storage.cassandra.appending import CassandraAppender
from queuey.storage.cassandra.bucket_scan import BucketHints
from queuey.storage.cassandra.buckets import Bucket
from queuey.storage.cassandra.cluster import nodes_of
from queuey.storage.cassandra.counting import CassandraInspector, buckets_of
from queuey.storage.cassandra.deleting import Deleter
from queuey.storage.cassandra.group_commit import GroupCommit, may_share
from queuey.storage.cassandra.idempotency import append_keyed
from queuey.storage.cassandra.lease_parcels import Carrier
from queuey.storage.cassandra.lease_rows import LeaseRows
from queuey.storage.cassandra.offsets import CassandraOffsets
from queuey.storage.cassandra.overwriting import Overwriter
from queuey.storage.cassandra.pages import read_page
from queuey.storage.cassandra.rows import message_of
from queuey.storage.cassandra.server import CassandraServer

__all__ = ["CassandraMessages"]

T = TypeVar("T")

_AT_ONCE = 32
"""Queries that one call with many of them has under way at once."""


class CassandraMessages(MessageStore):
    """The messages of one keyspace."""

    reads_elsewhere = True

    def __init__(
        self,
        server: CassandraServer,
        offsets: CassandraOffsets,
        *,
        peers: Peers | None = None,
        weaknesses: Callable[[], Sequence[str]] = tuple,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """
        :param offsets: purged with their queue.
        :param weaknesses: what makes the cluster weaker than promised; reported as warnings.
        :param on_close: called when the last call has ended.
        """
        timing = server.timing
        self._server = server
        self._session = server.session
        self._offsets = offsets
        self.peers = peers
        self.read_delay_seconds = timing.read_delay_seconds
        self.settled_seconds = timing.write_budget_seconds
        deleter = Deleter(server)
        self.appender = CassandraAppender(server, deleter)
        self._deleter = deleter
        self._overwriter = Overwriter(server, self.appender)
        self._inspector = CassandraInspector(server, lambda partition: deleter.search_head(partition, Consistency.WEAK))
        self._groups = GroupCommit(self.appender.store, server.clock, server.observer, timing.request_seconds)
        self._weaknesses = weaknesses
        self._on_close = on_close
        self.hints = BucketHints()

    def use_loop(self, inbox: Inbox | None) -> None:
        """See :meth:`queuey.storage.MessageStore.use_loop`."""
        self._session.cluster.loop.use(inbox)

    # Appending

    def append(self, request: AppendRequest) -> Future[Appended]:
        return self._server.underway.start(self._append(request))

    async def _append(self, request: AppendRequest) -> Appended:
        queue, drafts, idempotency, _ = request
        if idempotency is not None or any(draft.idempotency for draft in drafts):
            return await append_keyed(self.appender, queue, drafts, idempotency)
        return Appended(await (self._groups.append if may_share(drafts) else self.appender.store)(queue, drafts))

    # Reading

    def watermark(self, consistency: Consistency) -> int:
        """See :class:`~queuey.storage.MessageStore`.

        :raises ClockUnsafe: this server's clock may be too far off.
        """
        return self._server.watermark()

    def read(
        self, request: ReadRequest, *, now_ticks: int, consistency: Consistency = Consistency.STRONG
    ) -> Future[Page]:
        after, upto = request.span
        if request.partition.queue in self._server.dropped or upto <= after:
            return Future.of(Page([], False))
        return self._server.underway.start(self.page(request, now_ticks=now_ticks, consistency=consistency))

    async def page(
        self, request: ReadRequest, *, now_ticks: int, consistency: Consistency = Consistency.STRONG
    ) -> Page:
        """A page, for a call that is under way already."""
        after, upto = request.span
        if request.partition.queue in self._server.dropped or upto <= after:
            return Page([], False)
        level = self._session.to_read(consistency)
        slow = partial(self._deleter.search_head, request.partition, consistency)
        return await read_page(self._session, request, now_ticks, level, self.hints, slow=slow)

    def fetch(self, queue: Queue, wanted: Sequence[Location], *, now_ticks: int) -> Future[Sequence[Message | None]]:
        if queue.uuid in self._server.dropped:
            return Future.of([None] * len(wanted))
        return self._server.underway.start(self.found(queue, wanted, now_ticks))

    async def found(
        self, queue: Queue, wanted: Sequence[Location], now_ticks: int, consistency: Consistency | None = None
    ) -> Sequence[Message | None]:
        """Messages by location, for a call that is under way already.

        :param consistency: if it is not the queue's.
        """
        level = self._session.to_read(consistency or queue.consistency)
        asked = [
            self._session.ask("message_find", (queue.uuid, number, Bucket.of(id_).number, id_.uuid), level)
            for number, id_ in wanted
        ]
        found = []
        for future in asked:
            message = message_of(await future)
            found.append(message if message is not None and message.expires_ticks > now_ticks else None)
        return found

    # Changing

    def put(self, queue: Queue, wanted: Sequence[Location], new: Overwrite) -> Future[bool]:
        return self._server.underway.start(
            self._noted(queue, wanted, partial(self._overwriter.put, queue, wanted, new))
        )

    def delete(self, queue: Queue, wanted: Sequence[Location]) -> Future[None]:
        if queue.uuid in self._server.dropped:
            return Future.of(None)
        return self._server.underway.start(self._noted(queue, wanted, partial(self._deleter.delete, queue, wanted)))

    def delete_span(
        self, queue: Queue, number: int, span: Span, *, most: int, whole: bool = False
    ) -> Future[SpanRemoval]:
        if queue.uuid in self._server.dropped:
            return Future.of(SpanRemoval(0, span.upto))
        place, change = Location(number, span.upto), partial(self._deleter.delete_span, queue, number, span, most)
        return self._server.underway.start(self._noted(queue, [place], change))

    async def _noted(self, queue: Queue, wanted: Sequence[Location], change: Callable[[], Waiting[T]]) -> T:
        """Carry out a change, and let those know that have read ahead."""
        try:
            return await change()
        finally:
            self._server.changed.note({queue.partition(number) for number, _ in wanted})

    # Counting

    def inspect(
        self, partitions: Sequence[PartitionId], *, now_ticks: int, seconds: float = inf
    ) -> Future[Sequence[PartitionState]]:
        return self._server.underway.start(self._inspector.inspect_until(partitions, now_ticks, seconds))

    # Ending

    def drop(self, queue: UUID) -> Future[None]:
        self._server.dropped.add(queue)
        return self._server.underway.start(self._purge(queue))

    async def _purge(self, queue: UUID) -> None:
        """Delete what is there now.

        A write under way may add more. It cannot be read, and expires with its TTL.
        """
        session = self._session
        level, time = session.to_write(Consistency.STRONG), self._server.times.delete()
        self._server.check_clock()
        for first in range(1, MAX_PARTITIONS + 1, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, MAX_PARTITIONS + 1))
            listed = [start(buckets_of(session, PartitionId(queue, number))) for number in numbers]
            for number, listing in zip(numbers, listed, strict=True):
                buckets, _ = await listing
                for bucket in buckets:
                    await session.tell("purge_messages", (time, queue, number, bucket.number), level)
                if buckets:
                    await session.tell("purge_buckets", (time, queue, number), level)
        await session.tell("tasks_purge", (time, queue), level)
        await self._offsets.purge(queue)
        rows = LeaseRows(session)
        await rows.purge(queue, Carrier(self._server, rows, self.appender).carry_last)

    # The store

    def problems(self) -> Sequence[str]:
        problem = self._server.guard.problem() if self._server.guard is not None else None
        return [*self._server.session.problems(), *([problem] if problem else [])]

    def nodes(self) -> Sequence[NodeState]:
        return nodes_of(self._server.session.cluster)

    def warnings(self) -> Sequence[str]:
        guard = self._server.guard
        found = [*self._weaknesses(), *self._session.copies.warnings(), *(guard.strays() if guard is not None else ())]
        if self._server.timing.write_budget_seconds:
            return found
        off = (
            "[cassandra] write_budget_ms = 0: appends are not checked, and readers and lease groups may skip messages "
            "(G3, G22)"
        )
        return [off, *found]

    def clock_error_seconds(self) -> float:
        return self._server.guard.error_seconds() if self._server.guard is not None else 0.0

    def close(self) -> None:
        self._server.underway.finish(self._server.timing.request_seconds)
        self._on_close()
