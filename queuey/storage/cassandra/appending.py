"""Appends to Cassandra, acknowledged only if no reader can have passed them (G3).

A network, a cluster and any pause of a process lie between an id's stamp and its acknowledgement. So every append is
timed. If it took longer than the write budget, or the clock moved, its rows are withdrawn and written again under fresh
ids. When its time is up, it fails with an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from queuey.errors import OutcomeUnknown, QueueNotFound, QueueyError, StorageUnavailable
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND
from queuey.model import Consistency, Draft, Location, PartitionId, Queue
from queuey.storage.cassandra.allocation import BucketAllocator
from queuey.storage.cassandra.buckets import Bucket, Mark
from queuey.storage.cassandra.deleting import Deleter, failures_of
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import Rows
from queuey.storage.cassandra.stamping import StampedAppend, Stamper

__all__ = ["CassandraAppender", "Plan"]

_LEAST_SECONDS = 0.001
"""The time limit of a write that is sent just before the append's time is up."""

Plan = Callable[[Sequence[Location]], Awaitable[None]]
"""Called with the ids of an append before any of them is written. An error that it raises stops the append."""


class CassandraAppender:
    """Writes drafts under fresh ids."""

    def __init__(self, server: CassandraServer, deleter: Deleter) -> None:
        self._server = server
        self._deleter = deleter
        self.session = server.session
        self.clock = server.clock
        self.timing = server.timing
        allocator = BucketAllocator(server.partition_key_of)
        self._stamper = Stamper(server.clock, server.ids, server.times, server.guard, allocator)

    async def store(self, queue: Queue, drafts: Sequence[Draft], plan: Plan | None = None) -> Sequence[Location]:
        """Store drafts under fresh ids.

        :param plan: called with the ids each time they are drawn; an error that it raises stops the append.
        :raises StorageUnavailable: nothing is stored.
        :raises OutcomeUnknown: some of it may be stored now or later.
        """
        since, perhaps_read = self.clock.elapsed(), False
        while True:
            if queue.uuid in self._server.dropped:
                raise QueueNotFound
            try:
                stamped, failures = await self._try(queue, drafts, plan)
                if failures == [] and not self._is_late(stamped):
                    return stamped.placed
                if failures is not None:
                    perhaps_read |= await self._undo(queue, stamped, failures)
                self._server.observer.restamped()
                if self.clock.elapsed() - since > self.timing.request_seconds:
                    raise StorageUnavailable("Cassandra took too long each time: nothing was stored, try again")
            except StorageUnavailable as error:
                if perhaps_read:
                    raise OutcomeUnknown from error
                raise

    async def _try(
        self, queue: Queue, drafts: Sequence[Draft], plan: Plan | None
    ) -> tuple[StampedAppend, Sequence[QueueyError] | None]:
        """Draw ids, and send the drafts with them.

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

        :returns: whether a reader may have met it: no reader reaches an id sooner than W after its stamp.
        :raises StorageUnavailable: some of it was refused; nothing of it is stored, or was ever read.
        :raises OutcomeUnknown: that is not certain.
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
        """Write the marks of these buckets before their messages (G3, rule 6).

        Returns when the marks are acknowledged.
        """
        for write in stamped.writes:
            use, mark = write.use, write.mark
            if use.marks.get(mark) is not queue.consistency:
                await self.mark(queue, write.partition, use.bucket, mark)
                use.learn(mark, queue.consistency)

    def mark(self, queue: Queue, partition: PartitionId, bucket: Bucket, mark: Mark) -> Future[Rows]:
        now = self.clock.now_ticks()
        where = {bucket, bucket.widest}
        rows = [(*partition, at.number, mark.number, mark.lives_seconds(at, now)) for at in where]
        return self.session.tell_together("bucket_mark", rows, self.session.to_write(queue.consistency))

    async def _send(self, queue: Queue, stamped: StampedAppend) -> list[QueueyError]:
        """Write all buckets' rows at once, each bucket whole or not at all.

        What takes longer than the rest of the write budget is void. It is withdrawn at once, so that few readers meet
        it.
        """
        level, tell = self.session.to_write(queue.consistency), self.session.tell_encoded
        budget = self.timing.write_budget_seconds
        left = max(_LEAST_SECONDS, stamped.at + budget - self.clock.elapsed()) if budget else None
        return await failures_of(
            [
                tell("message_insert", write.rows, write.use.partition_key.routing_key, level, seconds=left)
                for write in stamped.writes
            ]
        )

    def _is_late(self, stamped: StampedAppend) -> bool:
        """Whether a reader may have passed these ids before they were surely stored."""
        budget = self.timing.write_budget_seconds
        if not budget:
            return False
        if self.clock.elapsed() - stamped.at >= budget:
            return True
        if self._server.guard is None:
            return False
        # A step of the clock may have fallen on the stamp. The clock must be right now, or the append counts as late.
        behind = stamped.first_ticks <= self.clock.now_ticks() - round(budget * TICKS_PER_SECOND)
        return behind or not self._server.guard.is_safe()

    async def withdraw(self, queue: Queue, placed: Sequence[Location]) -> None:
        """Undo an append that must not be acknowledged.

        :raises OutcomeUnknown: it may not be undone.
        """
        try:
            await self._deleter.delete(queue, placed, withdraws=True)
        except StorageUnavailable as error:
            raise OutcomeUnknown from error
