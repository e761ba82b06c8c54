"""Messages, in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from uuid import UUID

from queuey.errors import InvalidParameter, KeyReused, QueueNotFound
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND, IdGenerator, MessageId
from queuey.model import (
    Appended,
    AppendRequest,
    Consistency,
    Draft,
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
from queuey.storage import MessageStore
from queuey.storage.leasing.access import partition_key
from queuey.storage.leasing.book import LeaseBook
from queuey.storage.memory.idempotency import StoredKeys
from queuey.storage.memory.offsets import MemoryOffsets
from queuey.storage.memory.process import Process

__all__ = ["MemoryMessages"]

_LEAST_SWEEP = 1000
"""The least number of messages stored between two searches for expired ones."""


class _Partition:
    """Messages by id, and their ids in order."""

    __slots__ = ("_ids", "rows")

    def __init__(self) -> None:
        self.rows: dict[MessageId, Message] = {}
        self._ids: list[MessageId] = []

    def store(self, message: Message) -> None:
        at = bisect_left(self._ids, message.id)
        if at == len(self._ids) or self._ids[at] != message.id:
            self._ids.insert(at, message.id)
        self.rows[message.id] = message

    def remove(self, wanted: Iterable[MessageId]) -> None:
        """Remove rows. Their ids go once half of all ids are removed.

        So a removal costs the same at any depth.
        """
        for id_ in wanted:
            self.rows.pop(id_, None)
        if len(self._ids) > 2 * len(self.rows) + 16:
            self._ids = sorted(self.rows)

    def within(self, span: Span, *, newest_first: bool = False) -> Iterator[Message]:
        places = range(bisect_right(self._ids, span.after), bisect_right(self._ids, span.upto))
        for at in reversed(places) if newest_first else places:
            message = self.rows.get(self._ids[at])
            if message is not None:
                yield message

    def live(self, now_ticks: int) -> list[Message]:
        return [message for message in self.within(Span()) if message.expires_ticks > now_ticks]


class MemoryMessages(MessageStore):
    """Messages of one process."""

    def __init__(self, process: Process, ids: IdGenerator, offsets: MemoryOffsets, leases: LeaseBook) -> None:
        """:param offsets: forgotten together with their queue.
        :param leases: hears of what changes in partitions.
        """
        self._process = process
        self._lock = process.lock
        self._clock = process.clock
        self._ids = ids
        self._offsets = offsets
        self._leases = leases
        self._partitions: dict[PartitionId, _Partition] = {}
        self._keys = StoredKeys(self._clock)
        self._until_sweep = _LEAST_SWEEP

    def append(self, request: AppendRequest) -> Future[Appended]:
        with self._lock:
            try:
                return Future.of(self.append_within([request])[0])
            except (QueueNotFound, KeyReused) as refused:
                return Future.failed(refused)

    def append_within(self, requests: Sequence[AppendRequest]) -> list[Appended]:
        """Append all of them or none. The caller has the lock."""
        for request in requests:
            if request.queue.uuid in self._process.dropped:
                raise QueueNotFound
            self._keys.refuse_reused(request)
        return [self._append(request) for request in requests]

    def _append(self, request: AppendRequest) -> Appended:
        queue = request.queue.uuid
        whole = self._keys.recall(queue, request.idempotency)
        if whole is not None:
            return Appended(whole, repeated=True)
        self._sweep_after(len(request.drafts))
        watermark = self._ids.watermark()
        placed, stored = [], False
        for draft in request.drafts:
            known = self._keys.recall(queue, draft.idempotency)
            if known is None:
                known = (self._store_draft(request.queue, draft, watermark),)
                self._keys.remember(queue, draft.idempotency, known)
                stored = True
            placed.append(known[0])
        self._keys.remember(queue, request.idempotency, placed)
        return Appended(placed, repeated=not stored)

    def _store_draft(self, queue: Queue, draft: Draft, watermark: int) -> Location:
        if draft.due_ticks is not None and draft.due_ticks > watermark:
            id_ = MessageId(draft.due_ticks, self._ids.scheduled_tail())
        else:
            id_ = self._ids.next_id()
        expires = id_.ticks + draft.ttl_seconds * TICKS_PER_SECOND
        message = Message(*id_, expires, draft.content_type, draft.key, draft.body, draft.headers)
        self._store(queue.partition(draft.partition), message)
        return Location(draft.partition, id_)

    def _store(self, partition: PartitionId, message: Message) -> None:
        if self._leases.watched:
            self._leases.grew([partition_key(partition)])
        self._partitions.setdefault(partition, _Partition()).store(message)

    def _sweep_after(self, stored: int) -> None:
        """Remove expired messages whenever as many were stored as there are.

        So the cost of each message stays constant on average.
        """
        self._until_sweep -= stored
        if self._until_sweep > 0:
            return
        now = self._clock.now_ticks()
        for partition in self._partitions.values():
            partition.remove([id_ for id_, message in partition.rows.items() if message.expires_ticks <= now])
        self._partitions = {at: partition for at, partition in self._partitions.items() if partition.rows}
        self._keys.sweep(now)
        depth = sum(len(partition.rows) for partition in self._partitions.values())
        self._until_sweep = max(_LEAST_SWEEP, depth)

    def watermark(self, consistency: Consistency) -> int:
        with self._lock:  # so no watermark is taken in the middle of an append
            return self._ids.watermark()

    def read(
        self, request: ReadRequest, *, now_ticks: int, consistency: Consistency = Consistency.STRONG
    ) -> Future[Page]:
        with self._lock:
            return Future.of(self.read_within(request, now_ticks))

    def read_within(self, request: ReadRequest, now_ticks: int) -> Page:
        """A page. The caller has the lock."""
        page: list[Message] = []
        size = 0
        for message in self._in(request.partition).within(request.span, newest_first=request.newest_first):
            if message.expires_ticks <= now_ticks:
                continue
            wanted = message if request.with_bodies else Message(*message[:3], None, None, b"")
            size += wanted.size
            if len(page) == request.limit or (page and size > request.max_bytes):
                return Page(page, more=True)
            page.append(wanted)
        return Page(page, more=False)

    def _in(self, partition: PartitionId) -> _Partition:
        return self._partitions.get(partition) or _Partition()

    def fetch(self, queue: Queue, wanted: Sequence[Location], *, now_ticks: int) -> Future[Sequence[Message | None]]:
        with self._lock:
            return Future.of(self.fetch_within(queue, wanted, now_ticks))

    def fetch_within(self, queue: Queue, wanted: Sequence[Location], now_ticks: int) -> list[Message | None]:
        """Messages by location. The caller has the lock."""
        found = [self._in(queue.partition(number)).rows.get(id_) for number, id_ in wanted]
        return [m if m is not None and m.expires_ticks > now_ticks else None for m in found]

    def put(self, queue: Queue, wanted: Sequence[Location], new: Overwrite) -> Future[bool]:
        with self._lock:
            if queue.uuid in self._process.dropped:
                return Future.failed(QueueNotFound())
            self._sweep_after(len(wanted))
            now = self._ids.stamp()
            try:
                keys = new.keys_over(wanted, self.fetch_within(queue, wanted, self._clock.now_ticks()))
            except InvalidParameter as refused:
                return Future.failed(refused)
            for (number, id_), key in zip(wanted, keys, strict=True):
                expires = max(now, id_.ticks) + new.ttl_seconds * TICKS_PER_SECOND
                message = Message(*id_, expires, new.content_type, key, new.body, new.headers)
                self._store(queue.partition(number), message)
            self._note_changed(queue, {number for number, _ in wanted})
            return Future.of(any(id_.ticks < now for _, id_ in wanted))

    def delete(self, queue: Queue, wanted: Sequence[Location]) -> Future[None]:
        with self._lock:
            for number, id_ in wanted:
                self._in(queue.partition(number)).remove([id_])
            self._note_changed(queue, {number for number, _ in wanted})
        return Future.of(None)

    def delete_span(
        self, queue: Queue, number: int, span: Span, *, most: int, whole: bool = False
    ) -> Future[SpanRemoval]:
        with self._lock:
            partition = self._in(queue.partition(number))
            found = [message.id for message in islice(partition.within(span), most)]
            partition.remove(found)
            self._note_changed(queue, {number})
        return Future.of(SpanRemoval(len(found), found[-1] if len(found) == most else span.upto))

    def _note_changed(self, queue: Queue, numbers: set[int]) -> None:
        """Messages that a lease group has read ahead may be others now."""
        if self._leases.watched:
            self._leases.changed({partition_key(queue.partition(number)) for number in numbers})

    def inspect(
        self, partitions: Sequence[PartitionId], *, now_ticks: int, seconds: float = inf
    ) -> Future[Sequence[PartitionState]]:
        with self._lock:
            found = [self._in(partition).live(now_ticks) for partition in partitions]
        return Future.of([_state(live, now_ticks) for live in found])

    def drop(self, queue: UUID) -> Future[None]:
        with self._lock:
            self._process.dropped.add(queue)
            self._partitions = {at: rows for at, rows in self._partitions.items() if at.queue != queue}
            self._keys.forget_queue(queue)
            self._offsets.forget_queue(queue)
            self._leases.forget_queue(queue)
        return Future.of(None)

    def problems(self) -> Sequence[str]:
        return ()

    def close(self) -> None:
        """Do nothing: this store holds no resources."""


def _state(live: list[Message], now_ticks: int) -> PartitionState:
    scheduled = sum(message.ticks > now_ticks for message in live)
    oldest, newest = (live[0].id, live[-1].id) if live else (None, None)
    return PartitionState(len(live), scheduled, oldest, newest, sum(len(message.body) for message in live))
