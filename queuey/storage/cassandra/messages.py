"""Messages in Cassandra: stamped, written, and acknowledged only if no reader can have passed them (G3).

Between an id's stamp and its acknowledgement there is a network, a cluster and whatever stops a
process. So every append is measured: if it took longer than the write budget, or the clock moved,
what it wrote is withdrawn and written again under fresh ids, until its time is up and the outcome
is told as unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from queuey.clock import Clock
from queuey.errors import OutcomeUnknown, QueueNotFound, QueueyError, StorageUnavailable
from queuey.future import Future, start
from queuey.ids import TICKS_PER_SECOND, IdGenerator, MessageId, tail_from_low
from queuey.model import (
    MAX_PARTITIONS,
    Appended,
    AppendRequest,
    Consistency,
    Draft,
    Location,
    Message,
    Page,
    PartitionId,
    PartitionState,
    Queue,
    ReadRequest,
    Span,
)
from queuey.storage import MessageStore, Observer, Peers, Unobserved
from queuey.storage.cassandra.allocation import BucketAllocator
from queuey.storage.cassandra.bucket_scan import BucketHints
from queuey.storage.cassandra.buckets import FINEST, Bucket, Mark
from queuey.storage.cassandra.clock import ClockGuard, WriteTimes
from queuey.storage.cassandra.group_commit import GroupCommit, may_share
from queuey.storage.cassandra.idempotency import append_keyed
from queuey.storage.cassandra.offsets import CassandraOffsets
from queuey.storage.cassandra.pages import read_page
from queuey.storage.cassandra.rows import encoded, message_of, partition_key_of
from queuey.storage.cassandra.session import CassandraSession, Rows
from queuey.storage.cassandra.stamping import StampedAppend, Stamper

_DELETES_PER_HEAD = 1000
"""Messages deleted from a partition before its head is looked for: readers step over no more than about so many."""
_DROPPED = 10_000
"""Incarnations whose end is remembered, to refuse what was under way; their names lead nowhere any more."""
_LEAST_SECONDS = 0.001
"""Of a write that is sent just before its time is over."""
_OVERWRITES = 3
"""Times that an overwrite is tried, each dated later."""
_AT_ONCE = 32
"""Queries under way for one call that needs many."""
_FIRST_TAIL = tail_from_low(0x8080808080808080)
"""Of the lowest id of a tick that is a UUID of its kind."""

Plan = Callable[[Sequence[Location]], Awaitable[None]]
"""AppendNotice of the ids of an append before any of them is written."""


@dataclass(frozen=True)
class Timing:
    """How long a write may take for readers to wait no longer than the read delay (G3)."""

    write_budget_seconds: float = 1.5
    """W; 0 switches the check off, and with it the promise."""
    clock_error_seconds: float = 0.25
    """E."""
    read_delay_seconds: float = 2.0
    """D, at least W + 2 E."""
    request_seconds: float = 10.0
    """How long an append tries again before its outcome is told as unknown."""


class CassandraMessages(CassandraOffsets, MessageStore):
    """Messages and offsets of any number of servers in one keyspace."""

    reads_elsewhere = True

    def __init__(
        self,
        session: CassandraSession,
        clock: Clock,
        ids: IdGenerator,
        *,
        timing: Timing,
        guard: ClockGuard | None,
        peers: Peers | None = None,
        weaknesses: Sequence[str] = (),
        observer: Observer | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """
        :param guard: None trusts the clock: for tests, where time is told.
        :param weaknesses: what was found at start that makes the cluster weaker than promised; told as warnings.
        :param on_close: called when the last call has ended.
        """
        super().__init__(session, clock)
        self.timing = timing
        self.read_delay_seconds = timing.read_delay_seconds
        self.settled_seconds = timing.write_budget_seconds
        self._ids = ids
        self._guard = guard
        self.peers = peers
        self._observer = observer or Unobserved()
        self._times = WriteTimes(clock, timing.clock_error_seconds)
        self._partition_key_of = partial(partition_key_of, session.query_id("message_insert"))
        self._stamper = Stamper(clock, ids, self._times, guard, BucketAllocator(self._partition_key_of))
        self._groups = GroupCommit(self.store, clock, self._observer, timing.request_seconds)
        self._weaknesses = weaknesses
        self._on_close = on_close
        self._deleted: dict[PartitionId, int] = defaultdict(int)
        self._hints = BucketHints()
        self._read_delay_ticks = round(timing.read_delay_seconds * TICKS_PER_SECOND)

    # Appending

    def append(self, request: AppendRequest) -> Future[Appended]:
        return self._underway.start(self._append(request))

    async def _append(self, request: AppendRequest) -> Appended:
        queue, drafts, idempotency = request
        if idempotency is not None or any(draft.idempotency for draft in drafts):
            return await append_keyed(self, queue, drafts, idempotency)
        return Appended(await (self._groups.append if may_share(drafts) else self.store)(queue, drafts))

    async def store(self, queue: Queue, drafts: Sequence[Draft], plan: Plan | None = None) -> Sequence[Location]:
        """Store drafts under fresh ids.

        :param plan: hears of the ids each time they are drawn, and may refuse by an error.
        :raises StorageUnavailable: nothing is stored.
        :raises OutcomeUnknown: some of it may be, or may come to be.
        """
        since, perhaps_read = self.clock.elapsed(), False
        while True:
            if queue.uuid in self._dropped:
                raise QueueNotFound
            try:
                stamped, failures = await self._try(queue, drafts, plan)
                if failures == [] and not self._is_late(stamped):
                    return stamped.placed
                if failures is not None:
                    perhaps_read |= await self._undo(queue, stamped, failures)
                self._observer.restamped()
                if self.clock.elapsed() - since > self.timing.request_seconds:
                    raise StorageUnavailable("Cassandra took too long each time: nothing was stored, try again")
            except StorageUnavailable as error:
                if perhaps_read:
                    raise OutcomeUnknown from error
                raise

    async def _try(
        self, queue: Queue, drafts: Sequence[Draft], plan: Plan | None
    ) -> tuple[StampedAppend, Sequence[QueueyError] | None]:
        """Draw ids and send what gets them.

        :returns: the errors of the buckets that failed; None if it was too late to send anything.
        :raises StorageUnavailable: nothing was sent.
        """
        stamped = self._stamper.stamp(queue, drafts)
        try:
            await self._announce(queue, stamped)
            if plan is not None:
                await plan(stamped.placed)
        except OutcomeUnknown as error:
            raise StorageUnavailable from error  # no message was sent yet
        return stamped, None if self._is_late(stamped) else await self._send(queue, stamped)

    async def _undo(self, queue: Queue, stamped: StampedAppend, failures: Sequence[QueueyError]) -> bool:
        """Withdraw what was sent and must not be acknowledged.

        :returns: whether a reader may have met it before: no reader comes to an id sooner than W after its stamp.
        :raises StorageUnavailable: some of it was refused, and nothing of it is stored or was ever read.
        :raises OutcomeUnknown: nobody can say that.
        """
        refused = [one for one in failures if isinstance(one, StorageUnavailable)]
        if len(refused) == len(stamped.writes):
            raise refused[0]
        await self.withdraw(queue, stamped.placed)
        unmeasured = queue.consistency is Consistency.WEAK or not self.timing.write_budget_seconds
        perhaps_read = unmeasured or self._is_late(stamped)
        if refused:
            raise OutcomeUnknown if perhaps_read else refused[0]
        return perhaps_read

    async def _announce(self, queue: Queue, stamped: StampedAppend) -> None:
        """See that the marks of these buckets are acknowledged before their messages are sent (G3, rule 6)."""
        for write in stamped.writes:
            use, mark = write.use, write.mark
            if mark not in use.marks:
                await self._mark(queue, write.partition, use.bucket, mark)
                use.learn(mark)

    def _mark(self, queue: Queue, partition: PartitionId, bucket: Bucket, mark: Mark) -> Future[Rows]:
        now = self.clock.now_ticks()
        where = {bucket, bucket.widest}
        rows = [(*partition, at.number, mark.number, mark.lives_seconds(at, now)) for at in where]
        return self.session.tell_together("bucket_mark", rows, self.session.to_write(queue.consistency))

    async def _send(self, queue: Queue, stamped: StampedAppend) -> list[QueueyError]:
        """Write all buckets' rows at once, each bucket's whole or not at all.

        What takes longer than is left of the write budget is void, and the sooner it is withdrawn the fewer readers meet it.

        :returns: the errors of the buckets that failed.
        """
        level, tell = self.session.to_write(queue.consistency), self.session.tell_encoded
        budget = self.timing.write_budget_seconds
        left = max(_LEAST_SECONDS, stamped.at + budget - self.clock.elapsed()) if budget else None
        return await _failures(
            [
                tell("message_insert", write.rows, write.use.partition_key.routing_key, level, seconds=left)
                for write in stamped.writes
            ]
        )

    def _is_late(self, stamped: StampedAppend) -> bool:
        """Whether a reader may have passed these ids before they were sure to be stored."""
        budget = self.timing.write_budget_seconds
        if not budget:
            return False
        if self.clock.elapsed() - stamped.at >= budget:
            return True
        if self._guard is None:
            return False
        # The clock may have been stepped just when it stamped; it is known to be right now, or this counts as late.
        behind = stamped.first_ticks <= self.clock.now_ticks() - round(budget * TICKS_PER_SECOND)
        return behind or not self._guard.is_safe()

    async def withdraw(self, queue: Queue, placed: Sequence[Location]) -> None:
        """Undo an append that must not be acknowledged.

        :raises OutcomeUnknown: it could not be undone for sure.
        """
        try:
            await self._delete(queue, placed)
        except StorageUnavailable as error:
            raise OutcomeUnknown from error

    # Reading

    def watermark(self, consistency: Consistency) -> int:
        """As in :class:`~queuey.storage.MessageStore`.

        :raises ClockUnsafe: this server's clock may be too far off to say.
        """
        if self._guard is None:
            return self._ids.watermark() - self._read_delay_ticks
        self._guard.check()
        watermark = self._ids.watermark() - self._read_delay_ticks
        self._guard.check()  # the clock may have been stepped just then
        return watermark

    def read(
        self, request: ReadRequest, *, now_ticks: int, consistency: Consistency = Consistency.STRONG
    ) -> Future[Page]:
        after, upto = request.span
        if request.partition.queue in self._dropped or upto <= after:
            return Future.of(Page([], False))
        level = self.session.to_read(consistency)
        return self._underway.start(read_page(self.session, request, now_ticks, level, self._hints))

    def fetch(self, queue: Queue, wanted: Sequence[Location], *, now_ticks: int) -> Future[Sequence[Message | None]]:
        if queue.uuid in self._dropped:
            return Future.of([None] * len(wanted))
        return self._underway.start(self._fetch(queue, wanted, now_ticks))

    async def _fetch(self, queue: Queue, wanted: Sequence[Location], now_ticks: int) -> Sequence[Message | None]:
        level = self.session.to_read(queue.consistency)
        asked = [
            self.session.ask("message_find", (queue.uuid, number, Bucket.of(id_).number, id_.uuid), level)
            for number, id_ in wanted
        ]
        found = []
        for promise in asked:
            message = message_of(await promise)
            found.append(message if message is not None and message.expires_ticks > now_ticks else None)
        return found

    # Changing

    def put(
        self,
        queue: Queue,
        wanted: Sequence[Location],
        *,
        body: bytes,
        content_type: str | None,
        key: str | None,
        ttl_seconds: int,
    ) -> Future[bool]:
        return self._underway.start(self._put(queue, wanted, body, content_type, key, ttl_seconds))

    async def _put(
        self,
        queue: Queue,
        wanted: Sequence[Location],
        body: bytes,
        content_type: str | None,
        key: str | None,
        ttl_seconds: int,
    ) -> bool:
        if queue.uuid in self._dropped:
            raise QueueNotFound
        watermark = self.watermark(queue.consistency)
        for done, (number, id_) in enumerate(wanted):
            try:
                await self._put_one(queue, queue.partition(number), id_, body, content_type, key, ttl_seconds)
            except StorageUnavailable as error:
                if done:
                    raise OutcomeUnknown from error
                raise
        return any(id_.ticks <= watermark for _, id_ in wanted)

    async def _put_one(
        self,
        queue: Queue,
        partition: PartitionId,
        id_: MessageId,
        body: bytes,
        content_type: str | None,
        key: str | None,
        ttl_seconds: int,
    ) -> None:
        """Write a row and see that it is there: a deletion through a server whose clock is ahead may be dated later.

        :raises StorageUnavailable: nothing is stored.
        :raises OutcomeUnknown: it may be.
        """
        bucket, now = Bucket.of(id_), self._ids.watermark()
        write, read = self.session.to_write(queue.consistency), self.session.to_read(queue.consistency)
        await self._mark(queue, partition, bucket, Mark.of(bucket.level, ttl_seconds, len(body)))
        place, expires = self._partition_key_of(partition, bucket), max(now, id_.ticks) + ttl_seconds * TICKS_PER_SECOND
        for attempt in range(_OVERWRITES):
            time = self._times.put(attempt)
            row = encoded(place, id_, expires, content_type, key, body, now, time, over=True)
            try:
                await self.session.tell_encoded("message_insert", [row], place.routing_key, write)
            except StorageUnavailable as error:
                if attempt:
                    raise OutcomeUnknown from error  # an earlier one is written, hidden or not
                raise
            try:
                if id_.ticks <= now:
                    await self.session.tell("head_forget", (self._times.delete(), *partition), write)
                if await self.session.ask("message_find", (*partition, bucket.number, id_.uuid), read):
                    return
            except StorageUnavailable as error:
                raise OutcomeUnknown from error
        raise OutcomeUnknown

    def delete(self, queue: Queue, wanted: Sequence[Location]) -> Future[None]:
        if queue.uuid in self._dropped:
            return Future.of(None)
        return self._underway.start(self._delete(queue, wanted))

    async def _delete(self, queue: Queue, wanted: Sequence[Location]) -> None:
        """:raises StorageUnavailable: nothing was deleted. :raises OutcomeUnknown: some may be."""
        level, time = self.session.to_write(queue.consistency), self._times.delete()
        groups: dict[tuple[PartitionId, Bucket], list[Any]] = defaultdict(list)
        for number, id_ in dict.fromkeys(wanted):
            at = queue.partition(number), Bucket.of(id_)
            groups[at].append((time, *at[0], at[1].number, id_.uuid))
        failures = await _failures(
            [self.session.tell_together("message_delete", rows, level) for rows in groups.values()]
        )
        if failures:
            unknown = len(failures) < len(groups) or any(isinstance(one, OutcomeUnknown) for one in failures)
            raise OutcomeUnknown if unknown else failures[0]
        for (partition, _), rows in groups.items():
            self._count_deleted(queue, partition, len(rows))

    def _count_deleted(self, queue: Queue, partition: PartitionId, count: int) -> None:
        """Look for the partition's head every so many deletes, so that readers step over few tombstones."""
        self._deleted[partition] += count
        if self._deleted[partition] >= _DELETES_PER_HEAD:
            del self._deleted[partition]
            self._underway.start(self._raise_head(queue, partition))
        elif len(self._deleted) > _DROPPED:
            self._deleted.clear()

    async def _raise_head(self, queue: Queue, partition: PartitionId) -> None:
        """Note where the first live message is.

        The note carries the time at which the search began: a put behind it forgets the head with a later
        time, in whatever order the two arrive.
        """
        time, watermark = self._times.append(), self.watermark(queue.consistency)
        upto = MessageId(watermark, _FIRST_TAIL)
        request = ReadRequest(partition, Span(upto=upto), 1, with_bodies=False)
        page = await read_page(self.session, request, 0, self.session.to_read_all(queue.consistency))
        head = page.messages[0].id if page.messages else upto
        await self.session.tell("head_raise", (time, head.uuid, *partition), self.session.to_write(queue.consistency))

    # Counting

    def inspect(self, partitions: Sequence[PartitionId], *, now_ticks: int) -> Future[Sequence[PartitionState]]:
        return self._underway.start(self._inspect(partitions, now_ticks))

    async def _inspect(self, partitions: Sequence[PartitionId], now_ticks: int) -> Sequence[PartitionState]:
        return [
            PartitionState(0, 0, None, None)
            if partition.queue in self._dropped
            else await self._inspect_one(partition, now_ticks)
            for partition in partitions
        ]

    async def _inspect_one(self, partition: PartitionId, now_ticks: int) -> PartitionState:
        level = self.session.to_read(Consistency.STRONG)
        depth = scheduled = 0
        ends: list[MessageId] = []
        for bucket in await self._buckets(partition):
            asked = (*partition, bucket.number)
            after = MessageId.first_of(bucket.start).before()
            ((count, oldest, newest),) = await self.session.ask("count", (*asked, after.uuid, now_ticks), level)
            depth += count
            if count:
                ends += [MessageId.from_bytes(oldest), MessageId.from_bytes(newest)]
            if bucket.end > now_ticks and count:
                rest = (*asked, MessageId.last_of(now_ticks).uuid, now_ticks)
                scheduled += (await self.session.ask("count", rest, level))[0][0]
        return PartitionState(depth, scheduled, min(ends, default=None), max(ends, default=None))

    async def _buckets(self, partition: PartitionId) -> list[Bucket]:
        """All buckets of a partition that have messages of their own."""
        level, found = self.session.to_read(Consistency.STRONG), []
        for depth in range(FINEST + 1):
            low, high = Bucket(depth, 0).number, Bucket(depth + 1, 0).number - 1
            last, step = None, 5000
            while True:
                rows = await self.session.ask("buckets_ascending", (*partition, low, high, step), level)
                for number, mark, _ in rows:
                    bucket = Bucket.from_number(number)
                    if Mark.from_number(mark).level == depth and bucket != last:
                        found.append(bucket)
                        last = bucket
                if len(rows) < step:
                    break
                low = rows[-1][0]
            if depth == 0 and not rows:
                break
        return list(dict.fromkeys(found))

    # Ending

    def drop(self, queue: UUID) -> Future[None]:
        self._dropped[queue] = None
        while len(self._dropped) > _DROPPED:
            self._dropped.pop(next(iter(self._dropped)))
        return self._underway.start(self._purge(queue))

    async def _purge(self, queue: UUID) -> None:
        """Delete what is there now; what comes later, from a write under way, goes with its TTL, and nobody reads it."""
        level, time = self.session.to_write(Consistency.STRONG), self._times.delete()
        for first in range(1, MAX_PARTITIONS + 1, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, MAX_PARTITIONS + 1))
            listed = [start(self._buckets(PartitionId(queue, number))) for number in numbers]
            for number, promise in zip(numbers, listed, strict=True):
                buckets = await promise
                for bucket in buckets:
                    await self.session.tell("purge_messages", (time, queue, number, bucket.number), level)
                if buckets:
                    await self.session.tell("purge_buckets", (time, queue, number), level)
        await self._purge_offsets(queue)

    # The store

    def problems(self) -> Sequence[str]:
        problem = self._guard.problem() if self._guard is not None else None
        return [problem] if problem else []

    def warnings(self) -> Sequence[str]:
        if self.timing.write_budget_seconds:
            return self._weaknesses
        off = "[cassandra] write_budget_ms = 0: appends are not checked, and readers may skip messages (G3)"
        return [off, *self._weaknesses]

    def clock_error_seconds(self) -> float:
        return self._guard.error_seconds() if self._guard is not None else 0.0

    def close(self) -> None:
        self._underway.finish(self.timing.request_seconds)
        self._on_close()


async def _failures(sent: Sequence[Future[Any]]) -> list[QueueyError]:
    """Wait for all, and gather the errors."""
    failures = []
    for promise in sent:
        try:
            await promise
        except QueueyError as error:
            failures.append(error)
    return failures
