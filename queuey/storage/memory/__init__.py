"""The store without a disk, for tests and for trying Queuey out.

It also shows in few lines what a store does. One lock makes every call a single step, and every future is done when it
is returned. All data is lost when the process ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from queuey.clock import Clock
from queuey.errors import BadRequest, Conflict, KeyReused, QueueNotFound
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND, IdGenerator, MessageId
from queuey.locks import new_lock
from queuey.model import (
    Appended,
    AppendRequest,
    Consistency,
    Draft,
    IdempotencyKey,
    Location,
    Message,
    Offset,
    OffsetChange,
    OffsetMove,
    Overwrite,
    Page,
    PartitionId,
    PartitionState,
    PrincipalKey,
    Queue,
    ReadRequest,
    Span,
)
from queuey.storage import IDEMPOTENCY_SECONDS, MessageStore, MetadataStore, OffsetStore, Stores

_LEAST_SWEEP = 1000
"""The least number of messages stored between two searches for expired ones."""


class Process:
    """What the stores of one process share."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = new_lock()
        """Makes every call of a store a single step."""
        self.dropped: set[UUID] = set()


class MemoryOffsets(OffsetStore):
    """The offsets of groups, by queue and name."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._lock = process.lock
        self._offsets: dict[UUID, dict[str, dict[int, Offset]]] = {}

    def read_offsets(self, queue: UUID, group: str) -> Future[Mapping[int, Offset]]:
        with self._lock:
            return Future.of(dict(self._offsets.get(queue, {}).get(group, {})))

    def change_offsets(self, queue: UUID, group: str, change: OffsetChange) -> Future[Mapping[int, OffsetMove]]:
        with self._lock:
            if queue in self._process.dropped:
                return Future.failed(QueueNotFound())
            stored = self._offsets.get(queue, {}).get(group, {})
            try:
                moves = change.moves(stored, self._process.clock.now_ticks())
            except (Conflict, BadRequest) as refused:
                return Future.failed(refused)
            changed = stored | {number: move.after for number, move in moves.items()}
            self._offsets.setdefault(queue, {})[group] = changed
        return Future.of(moves)

    def list_groups(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[str]]:
        with self._lock:
            names = sorted(self._offsets.get(queue, {}))
        first = bisect_left(names, start)
        return Future.of(names[first : first + limit])

    def forget_group(self, queue: UUID, group: str) -> Future[None]:
        with self._lock:
            self._offsets.get(queue, {}).pop(group, None)
        return Future.of(None)

    def forget_queue(self, queue: UUID) -> None:
        """Forget all groups of a queue. The caller has the lock."""
        self._offsets.pop(queue, None)


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


class _StoredKey(NamedTuple):
    """The outcome stored for an idempotency key."""

    digest: bytes
    placed: Sequence[Location]
    expires_ticks: int


class MemoryMessages(MessageStore):
    """Messages of one process."""

    def __init__(self, process: Process, ids: IdGenerator, offsets: MemoryOffsets) -> None:
        """:param offsets: forgotten together with their queue."""
        self._process = process
        self._lock = process.lock
        self._clock = process.clock
        self._ids = ids
        self._offsets = offsets
        self._partitions: dict[PartitionId, _Partition] = {}
        self._idempotency: dict[tuple[UUID, str], _StoredKey] = {}
        self._until_sweep = _LEAST_SWEEP

    def append(self, request: AppendRequest) -> Future[Appended]:
        with self._lock:
            try:
                return Future.of(self._append(request))
            except (QueueNotFound, KeyReused) as refused:
                return Future.failed(refused)

    def _append(self, request: AppendRequest) -> Appended:
        queue = request.queue.uuid
        if queue in self._process.dropped:
            raise QueueNotFound
        self._refuse_reused_keys(request)
        whole = self._recall(queue, request.idempotency)
        if whole is not None:
            return Appended(whole, repeated=True)
        self._sweep_after(len(request.drafts))
        watermark = self._ids.watermark()
        placed, stored = [], False
        for draft in request.drafts:
            known = self._recall(queue, draft.idempotency)
            if known is None:
                known = (self._store_draft(request.queue, draft, watermark),)
                self._remember(queue, draft.idempotency, known)
                stored = True
            placed.append(known[0])
        self._remember(queue, request.idempotency, placed)
        return Appended(placed, repeated=not stored)

    def _refuse_reused_keys(self, request: AppendRequest) -> None:
        """Refuse a key with two digests, before anything is stored.

        The other digest may be in the store or in the request.
        """
        asked: dict[str, bytes] = {}
        for idempotency in (request.idempotency, *(draft.idempotency for draft in request.drafts)):
            if idempotency is None:
                continue
            kept = self._live_key(request.queue.uuid, idempotency.key)
            known = kept.digest if kept is not None else asked.setdefault(idempotency.key, idempotency.digest)
            if known != idempotency.digest:
                raise KeyReused

    def _live_key(self, queue: UUID, key: str) -> _StoredKey | None:
        kept = self._idempotency.get((queue, key))
        return kept if kept is not None and kept.expires_ticks > self._clock.now_ticks() else None

    def _recall(self, queue: UUID, idempotency: IdempotencyKey | None) -> Sequence[Location] | None:
        kept = self._live_key(queue, idempotency.key) if idempotency is not None else None
        return kept.placed if kept is not None else None

    def _remember(self, queue: UUID, idempotency: IdempotencyKey | None, placed: Sequence[Location]) -> None:
        if idempotency is not None:
            expires = self._clock.now_ticks() + IDEMPOTENCY_SECONDS * TICKS_PER_SECOND
            self._idempotency[queue, idempotency.key] = _StoredKey(idempotency.digest, tuple(placed), expires)

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
        self._idempotency = {at: kept for at, kept in self._idempotency.items() if kept.expires_ticks > now}
        depth = sum(len(partition.rows) for partition in self._partitions.values())
        self._until_sweep = max(_LEAST_SWEEP, depth)

    def watermark(self, consistency: Consistency) -> int:
        with self._lock:  # so no watermark is taken in the middle of an append
            return self._ids.watermark()

    def read(
        self, request: ReadRequest, *, now_ticks: int, consistency: Consistency = Consistency.STRONG
    ) -> Future[Page]:
        page: list[Message] = []
        size = 0
        with self._lock:
            for message in self._in(request.partition).within(request.span, newest_first=request.newest_first):
                if message.expires_ticks <= now_ticks:
                    continue
                wanted = message if request.with_bodies else Message(*message[:3], None, None, b"")
                size += wanted.size
                if len(page) == request.limit or (page and size > request.max_bytes):
                    return Future.of(Page(page, more=True))
                page.append(wanted)
        return Future.of(Page(page, more=False))

    def _in(self, partition: PartitionId) -> _Partition:
        return self._partitions.get(partition) or _Partition()

    def fetch(self, queue: Queue, wanted: Sequence[Location], *, now_ticks: int) -> Future[Sequence[Message | None]]:
        with self._lock:
            found = [self._in(queue.partition(number)).rows.get(id_) for number, id_ in wanted]
        return Future.of([m if m is not None and m.expires_ticks > now_ticks else None for m in found])

    def put(self, queue: Queue, wanted: Sequence[Location], new: Overwrite) -> Future[bool]:
        with self._lock:
            if queue.uuid in self._process.dropped:
                return Future.failed(QueueNotFound())
            self._sweep_after(len(wanted))
            now = self._ids.stamp()
            for number, id_ in wanted:
                expires = max(now, id_.ticks) + new.ttl_seconds * TICKS_PER_SECOND
                message = Message(*id_, expires, new.content_type, new.key, new.body, new.headers)
                self._store(queue.partition(number), message)
            return Future.of(any(id_.ticks < now for _, id_ in wanted))

    def delete(self, queue: Queue, wanted: Sequence[Location]) -> Future[None]:
        with self._lock:
            for number, id_ in wanted:
                self._in(queue.partition(number)).remove([id_])
        return Future.of(None)

    def inspect(self, partitions: Sequence[PartitionId], *, now_ticks: int) -> Future[Sequence[PartitionState]]:
        with self._lock:
            found = [self._in(partition).live(now_ticks) for partition in partitions]
        return Future.of([_state(live, now_ticks) for live in found])

    def drop(self, queue: UUID) -> Future[None]:
        with self._lock:
            self._process.dropped.add(queue)
            self._partitions = {at: rows for at, rows in self._partitions.items() if at.queue != queue}
            self._idempotency = {at: kept for at, kept in self._idempotency.items() if at[0] != queue}
            self._offsets.forget_queue(queue)
        return Future.of(None)

    def problems(self) -> Sequence[str]:
        return ()

    def close(self) -> None:
        """Do nothing: this store holds no resources."""


def _state(live: list[Message], now_ticks: int) -> PartitionState:
    scheduled = sum(message.ticks > now_ticks for message in live)
    oldest, newest = (live[0].id, live[-1].id) if live else (None, None)
    return PartitionState(len(live), scheduled, oldest, newest, sum(len(message.body) for message in live))


class MemoryMetadata(MetadataStore):
    """Queues and application keys of one process."""

    def __init__(self, process: Process) -> None:
        self._lock = process.lock
        self._queues: dict[str, dict[str, Queue]] = {}
        self._names: dict[str, list[str]] = {}
        self._named: dict[tuple[str, str], list[str]] = {}
        """Sorted names of queues by application and principal."""
        self._removed: dict[UUID, None] = {}
        self._keys: dict[bytes, PrincipalKey] = {}

    def create_queue(self, queue: Queue) -> Future[tuple[Queue, bool]]:
        with self._lock:
            queues = self._queues.setdefault(queue.application, {})
            if queue.name not in queues:
                queues[queue.name] = queue
                insort(self._names.setdefault(queue.application, []), queue.name)
                self._index(queue)
            stored = queues[queue.name]
        return Future.of((stored, stored.uuid == queue.uuid))

    def find_queue(self, application: str, name: str) -> Future[Queue | None]:
        with self._lock:
            return Future.of(self._queues.get(application, {}).get(name))

    def replace_queue(self, old: Queue, new: Queue) -> Future[bool]:
        with self._lock:
            queues = self._queues.get(old.application, {})
            if queues.get(old.name) != old:
                return Future.of(False)
            queues[old.name] = new
            self._unindex(old)
            self._index(new)
            return Future.of(True)

    def remove_queue(self, queue: Queue) -> Future[bool]:
        with self._lock:
            queues = self._queues.get(queue.application, {})
            stored = queues.get(queue.name)
            if stored is None or stored.uuid != queue.uuid:
                return Future.of(False)
            del queues[queue.name]
            names = self._names[queue.application]
            del names[bisect_left(names, queue.name)]
            self._unindex(stored)
            self._removed[queue.uuid] = None
            return Future.of(True)

    def removed(self, limit: int = 100) -> Future[Sequence[UUID]]:
        with self._lock:
            return Future.of(list(self._removed)[:limit])

    def forget_removed(self, queue: UUID) -> Future[None]:
        with self._lock:
            self._removed.pop(queue, None)
        return Future.of(None)

    def list_queues(self, application: str, *, start: str = "", limit: int = 1000) -> Future[Sequence[Queue]]:
        with self._lock:
            names = self._names.get(application, [])
            first = bisect_left(names, start)
            return Future.of([self._queues[application][name] for name in names[first : first + limit]])

    def list_named(
        self, application: str, principal: str, *, start: str = "", limit: int = 1000
    ) -> Future[Sequence[Queue]]:
        with self._lock:
            names = self._named.get((application, principal), [])
            first = bisect_left(names, start)
            return Future.of([self._queues[application][name] for name in names[first : first + limit]])

    def _index(self, queue: Queue) -> None:
        for principal in set(queue.principals):
            insort(self._named.setdefault((queue.application, principal), []), queue.name)

    def _unindex(self, queue: Queue) -> None:
        for principal in set(queue.principals):
            at = (queue.application, principal)
            names = self._named[at]
            del names[bisect_left(names, queue.name)]
            if not names:
                del self._named[at]

    def add_key(self, key: PrincipalKey) -> Future[None]:
        with self._lock:
            self._keys.setdefault(key.digest, key)
        return Future.of(None)

    def keys(self) -> Future[Sequence[PrincipalKey]]:
        with self._lock:
            return Future.of(sorted(self._keys.values(), key=lambda key: (key.created_ticks, key.digest)))

    def remove_key(self, principal: str, label: str) -> Future[int]:
        with self._lock:
            found = [key for key in self._keys.values() if (key.principal, key.label) == (principal, label)]
            for key in found:
                del self._keys[key.digest]
        return Future.of(len(found))

    def problems(self) -> Sequence[str]:
        return ()

    def close(self) -> None:
        """Do nothing: this store holds no resources."""


class MemoryStores(Stores):
    """All stores of one process."""

    messages: MemoryMessages

    def __init__(self, clock: Clock, ids: IdGenerator) -> None:
        process = Process(clock)
        offsets = MemoryOffsets(process)
        super().__init__(MemoryMessages(process, ids, offsets), offsets, MemoryMetadata(process))
