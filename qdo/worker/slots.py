"""The slots that a worker owns, and their active queues.

A slot's moment says: everything up to it is finished in all queues of the slot. It moves only after the offsets of the
queues are recorded, and never past a message that is not finished. So the slot's next owner looks at what came since.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from qdo.client import Client
from qdo.client.refusals import may_pass
from qdo.groups.coordination import Claim, CommittedOffset, Coordinator
from qdo.groups.hash_slots import moment_of, slot_of
from qdo.groups.probes import Probe
from qdo.worker.buffers import PartitionBuffer, Prefetched
from queuey.clock import Clock
from queuey.errors import (
    Conflict,
    CoordinatorUnavailable,
    InvalidParameter,
    OffsetMovesBack,
    QueueNotFound,
    QueueyError,
    StaleGeneration,
)

__all__ = ["ActiveQueue", "QueueOffsets", "RecentlyActive", "Slot", "SlotTable"]

ACTIVE_SECONDS = 5.0
"""A queue in which nothing happens stays active for this long, unless more than :data:`FEW_ACTIVE` queues are."""
FEW_ACTIVE = 100
RECORD_SECONDS = 2.0
"""Between two times that the moments of slots are recorded."""


@dataclass
class Slot:
    """A slot that this worker owns.

    All ticks are inclusive: everything up to them is finished, or found.
    """

    claim: Claim
    recorded: int
    """The moment that the group knows."""
    swept: int
    """All messages up to here are found."""
    open: bool = True
    sweeps: int = 0
    begins: bool = False
    """It begins at the end, and waits until that moment is recorded. Else its next owner could begin later."""


@dataclass
class ActiveQueue:
    """A queue that got messages."""

    slot: Slot
    partitions: int
    floor: int
    """Everything up to here was finished when the queue became active."""
    buffers: list[PartitionBuffer] = field(default_factory=list)
    """Of the partitions that are taken over."""
    fenced: bool = False
    """It is taken over anew as soon as nothing is under way in it."""
    until: float = 0.0
    """It stays active at least until then, by elapsed time."""

    @property
    def is_taken_over(self) -> bool:
        """Whether all partitions are."""
        return len(self.buffers) >= self.partitions

    def claims(self) -> list[Claim]:
        return [buffer.claim for buffer in self.buffers]


class RecentlyActive(NamedTuple):
    """A queue that was active. No sweep has looked at it since."""

    slot: Slot
    partitions: int
    read_upto: int
    swept: int
    """Where the last sweep ended. Partitions that the queue has got since hold nothing before it."""

    def since(self, partitions: int) -> int:
        """Where to go on looking, now that the queue has this number of partitions."""
        return self.read_upto if partitions == self.partitions else self.floor

    @property
    def floor(self) -> int:
        return min(self.read_upto, self.swept)


class SlotTable:
    """The slots of one worker and their queues, behind one lock.

    It is taken before the lock of the buffers.
    """

    def __init__(self, coordinator: Coordinator, prefetched: Prefetched, clock: Clock, *, from_end: bool) -> None:
        """:param from_end: a slot in which nobody ever worked begins with messages to come."""
        self._coordinator = coordinator
        self._prefetched = prefetched
        self._clock = clock
        self._from_end = from_end
        self.lock = threading.RLock()
        self.slots: dict[int, Slot] = {}
        self.active: dict[str, ActiveQueue] = {}
        self.recently_active: dict[str, RecentlyActive] = {}
        self.fresh: set[int] = set()
        """Numbers of slots that were gained, and of which nothing is known but their moment."""
        self.more = threading.Event()
        """A sweep should begin soon."""
        self.is_to_end = False
        """Somebody asks whether this is the end."""
        self._swept_at_rest: int | None = None
        """The messages that were fetched before the last sweep, if nothing was left to do when it began."""
        self._record_at = 0.0

    # What the group says

    def gained(self, claims: Mapping[Claim, CommittedOffset | None]) -> None:
        with self.lock:
            for claim, offset in claims.items():
                ticks = 0 if offset is None else offset.message_id.ticks
                begins = self._from_end and offset is None
                self.slots[claim.partition.number] = Slot(claim, ticks, ticks, begins=begins)
                self.fresh.add(claim.partition.number)
        self.more.set()

    def losing(self, claims: Collection[Claim]) -> None:
        with self.lock:
            for claim in claims:
                self.slots[claim.partition.number].open = False
                self._prefetched.shut(self._queue_claims(claim))

    def drained(self, claims: Collection[Claim]) -> Collection[Claim]:
        """The slots whose queues have nothing under way.

        Their moments are recorded, and they are forgotten.
        """
        with self.lock:
            done = [claim for claim in claims if self._is_drained(self._queue_claims(claim))]
            self._record([self.slots[claim.partition.number] for claim in done if self._has(claim)])
        self.lost(done)
        return done

    def lost(self, claims: Collection[Claim]) -> None:
        with self.lock:
            for claim in claims:
                self._prefetched.remove(self._queue_claims(claim))
                if self._has(claim):
                    slot = self.slots.pop(claim.partition.number)
                    slot.open = False  # a sweep under way may still hold it
                    self.active = {name: each for name, each in self.active.items() if each.slot is not slot}
                    self.recently_active = {
                        name: each for name, each in self.recently_active.items() if each.slot is not slot
                    }

    def _has(self, claim: Claim) -> bool:
        slot = self.slots.get(claim.partition.number)
        return slot is not None and slot.claim == claim

    def _queue_claims(self, claim: Claim) -> list[Claim]:
        """Claims of partitions in the active queues of a slot."""
        return [each for queue in self.active.values() if queue.slot.claim == claim for each in queue.claims()]

    def _is_drained(self, claims: Sequence[Claim]) -> bool:
        return len(self._prefetched.drained(claims)) == len(claims)

    def at_end(self) -> bool:
        """Whether a sweep has found nothing since the last job ended: what jobs send may go to any queue.

        If none has, one begins soon.
        """
        with self.lock:
            self.is_to_end = True
            taken_over = all(queue.buffers and queue.is_taken_over for queue in self.active.values())
            fetched = self._prefetched.fetched_if_over
            if fetched is None or not taken_over or not all(slot.sweeps for slot in self.slots.values()):
                return False
            if self._swept_at_rest != fetched:
                self.more.set()
            return self._swept_at_rest == fetched

    # Recording

    def fence(self, queues: Collection[str]) -> None:
        """Commits of these queues were refused.

        Take them over anew, if their slots still belong to this worker.
        """
        with self.lock:
            for name in queues:
                queue = self.active.get(name)
                if queue is not None:
                    self._prefetched.shut(queue.claims())
                    queue.fenced = True

    def record_moments(self) -> Collection[Claim]:
        """Record how far each slot is, every :data:`RECORD_SECONDS`.

        :returns: slots that belong to somebody else by now, or that were set back by hand.
        :raises CoordinatorUnavailable: the moments may be recorded or not.
        """
        now = self._clock.elapsed()
        if now < self._record_at:
            return []
        self._record_at = now + RECORD_SECONDS
        with self.lock:
            return self._record([slot for slot in self.slots.values() if slot.open])

    def _record(self, slots: Sequence[Slot]) -> Collection[Claim]:
        moments = {slot.claim.partition.number: slot.swept for slot in slots}
        floors = [(queue.slot, self.floor_of(queue)) for queue in self.active.values()]
        floors += [(each.slot, each.floor) for each in self.recently_active.values()]
        for slot, floor in floors:
            number = slot.claim.partition.number
            if number in moments:
                moments[number] = min(moments[number], floor)
        moved = [slot for slot in slots if moments[slot.claim.partition.number] > slot.recorded]
        if not moved:
            return []
        refused = self._coordinator.commit(
            {slot.claim: moment_of(moments[slot.claim.partition.number]) for slot in moved}
        )
        for slot in moved:
            slot.recorded = moments[slot.claim.partition.number]
            if slot.begins:
                slot.begins = False
                self.more.set()
        return refused

    def floor_of(self, queue: ActiveQueue) -> int:
        """Everything up to here is finished and recorded.

        Partitions that are not taken over yet hold it.
        """
        if not queue.is_taken_over:
            return queue.floor
        with self._prefetched.lock:
            return min((max(queue.floor, _finished(buffer)) for buffer in queue.buffers), default=queue.floor)

    # Queues become active, and rest again

    def activate_named(self, partitions: Mapping[str, int], is_meant: Callable[[str], bool]) -> None:
        """The server names queues that got messages.

        It also says how many partitions each has now.
        """
        with self.lock:
            for name, count in partitions.items():
                queue, slot = self.active.get(name), self.slots.get(slot_of(name))
                if queue is not None:
                    queue.partitions = max(queue.partitions, count)
                elif slot is not None and slot.open and not slot.begins and is_meant(name):
                    before = self.recently_active.get(name)
                    since = slot.swept if before is None else before.since(count)
                    self.active[name] = ActiveQueue(slot, count, since)

    def activate_found(self, found: Collection[Probe], slots: Mapping[int, Slot]) -> None:
        """Probes found messages in these queues.

        :param slots: as they were when the probes were made. A slot that went meanwhile leaves its queues to the next owner.
        """
        with self.lock:
            for name, partitions, since in found:
                slot = slots[slot_of(name)]
                if slot.open and name not in self.active:
                    self.active[name] = ActiveQueue(slot, partitions, since)

    def compare(self, active: Collection[str], listed: Mapping[str, int]) -> None:
        """Queues that were active before all queues were listed.

        Some have grown, some are gone.
        """
        with self.lock:
            for name in active:
                queue = self.active.get(name)
                if queue is None or not queue.slot.open:
                    continue
                queue.partitions = max(queue.partitions, listed.get(name, 0))
                if name not in listed:
                    self._prefetched.remove(queue.claims())
                    del self.active[name]

    def swept(
        self, slots: Collection[Slot], looked_at: Mapping[str, RecentlyActive], upto: int, at_rest: int | None
    ) -> None:
        """A sweep found all messages up to this moment.

        Slots that went meanwhile are left out.

        :param looked_at: recently active queues that the sweep looked at.
        :param at_rest: the messages that were fetched before it, if it found all that their jobs have sent.
        """
        with self.lock:
            self._swept_at_rest = at_rest
            for slot in slots:
                if slot.open:
                    slot.swept = max(slot.swept, upto)
                    slot.sweeps += 1
            for name, each in looked_at.items():
                # A queue that was active again in between is another entry: the sweep did not look behind it.
                if self.recently_active.get(name) == each and each.slot.open:
                    del self.recently_active[name]

    def to_take_over(self) -> list[tuple[str, ActiveQueue]]:
        """Active queues with partitions that are not taken over yet.

        Fenced queues begin anew once they are at rest.
        """
        with self.lock:
            for queue in self.active.values():
                if queue.fenced and not any(buffer.running for buffer in queue.buffers):
                    queue.floor = self.floor_of(queue)
                    self._prefetched.remove(queue.claims())
                    queue.buffers, queue.fenced = [], False
            return [(name, queue) for name, queue in self.active.items() if not queue.is_taken_over]

    def begin(self, name: str, queue: ActiveQueue, make: Callable[[], Sequence[PartitionBuffer]]) -> bool:
        """Partitions of a queue are taken over: work begins.

        :param make: makes their buffers, with the lock held.
        :returns: False if the queue or its slot went meanwhile; then nothing begins.
        """
        with self.lock:
            if self.active.get(name) is not queue or not queue.slot.open:
                return False
            for buffer in make():
                queue.buffers.append(buffer)
                self._prefetched.add(buffer)
            queue.until = self._clock.elapsed() + ACTIVE_SECONDS
            return True

    def rest_idle(self) -> None:
        """Let go of queues in which nothing is left and nothing came for a while."""
        now = self._clock.elapsed()
        with self.lock:
            many = len(self.active) > FEW_ACTIVE
            for name, queue in list(self.active.items()):
                if not queue.buffers or not queue.is_taken_over:
                    continue
                with self._prefetched.lock:
                    rests = all(buffer.open and buffer.idle and buffer.at_end for buffer in queue.buffers)
                    if not rests:
                        queue.until = now + ACTIVE_SECONDS
                    elif now >= queue.until or (many and all(buffer.read_upto for buffer in queue.buffers)):
                        read_upto = min(buffer.read_upto for buffer in queue.buffers)
                        self.recently_active[name] = RecentlyActive(
                            queue.slot, queue.partitions, read_upto, queue.slot.swept
                        )
                        self._prefetched.remove(queue.claims())
                        del self.active[name]


def _finished(buffer: PartitionBuffer) -> int:
    """Ticks: everything up to this moment is finished and recorded."""
    if buffer.open and buffer.idle:
        return buffer.read_upto
    return 0 if buffer.committed is None else buffer.committed.ticks


class QueueOffsets:
    """Records offsets of queues in Queuey, one request for each queue. Thread-safe."""

    def __init__(self, make_client: Callable[[], Client], group: str) -> None:
        self._make_client = make_client
        self._group = group
        self._lock = threading.Lock()
        self._client: Client | None = None

    def record(self, offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
        """Commit offsets, one queue after the other.

        :returns: claims that are gone: somebody else owns the slot by now, or somebody set the offset by hand.
        :raises CoordinatorUnavailable: some of them may be recorded.
        """
        together: dict[tuple[str, int], dict[Claim, CommittedOffset]] = defaultdict(dict)
        for claim, offset in offsets.items():
            together[claim.partition.queue, claim.generation][claim] = offset
        with self._lock:
            self._client = client = self._client or self._make_client()
            return [claim for (queue, at), some in together.items() for claim in self._record(client, queue, at, some)]

    def _record(
        self, client: Client, queue: str, generation: int, offsets: Mapping[Claim, CommittedOffset]
    ) -> Collection[Claim]:
        ids = {claim.partition.number: offset.message_id for claim, offset in offsets.items()}
        try:
            client.commit_offsets(queue, self._group, ids, generation)
        except (StaleGeneration, OffsetMovesBack):
            return offsets
        except QueueNotFound:
            return ()  # the offsets went with the queue
        except InvalidParameter:
            # The queue was made anew with fewer partitions: record what still has its partition.
            alone = [{claim: offset} for claim, offset in offsets.items()] if len(offsets) > 1 else []
            return [claim for one in alone for claim in self._record(client, queue, generation, one)]
        except QueueyError as error:
            if not (may_pass(error) or isinstance(error, Conflict)):
                raise
            raise CoordinatorUnavailable(f"offsets in Queuey: {error}") from error
        return ()

    def close(self) -> None:
        # Without the lock: a worker that ends at once does not wait for a request under way.
        if self._client is not None:
            self._client.close()
