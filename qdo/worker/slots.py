"""Very many queues, divided by hash slots: what members own is a slot, not a queue (docs/decisions/012).

::

    queue   COLD ──something came──► WARM: taken over, read, worked on ──all done, nothing new──► COLD

The server tells which queues got something. What it cannot tell is found by sweeps, which look at all queues, now and then:
they alone decide what counts as looked at. A slot's offset is a moment: everything up to it is finished in all of its queues. So its next owner looks at what came
since, and the offsets of queues, which Queuey keeps, matter for those alone in which something did. The moment moves only
after the queues' offsets are recorded, and never past a message that is not finished.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import NamedTuple

from qdo.client import Client, GroupOffset, QueueSettings
from qdo.client.transport import may_pass
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, Coordinator, Offset, last_id_of
from qdo.worker.buffers import PartitionBuffer, Prefetched
from qdo.worker.fetching import Fetcher
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
from queuey.ids import ZERO_ID, MessageId, tail_from_low

__all__ = ["ALL", "SLOTS", "Probe", "Slots", "every_slot", "is_slot", "moment_of", "questions", "slot_of", "with_news"]

log = logging.getLogger(__name__)

ALL = "*"
"""The queue's name that a slot has as a partition: no queue has it."""
SLOTS = 256
"""A constant: were it a setting, members could divide the same queues in two ways."""
RESETS = 1 << 20
"""Generations in Queuey between those of two claims of a slot: for resets, each of which takes one."""
IN_ONE_QUESTION = 100
"""Queues that a server reads at once."""
PARTITIONS_IN_ONE_QUESTION = 200
REST_SHARE, TOLD_REST_SHARE = 4, 20
"""A sweep is followed by a rest of so many times its length, work that it found not counted; of the second where
the server told of all that came since it began."""
LEAST_REST_SECONDS = 1.0
MOST_REST_SECONDS, MOST_TOLD_REST_SECONDS = 60.0, 600.0
HEAR_SECONDS = 0.5
"""Between two times that the server is asked what came."""
HEARD_AT_ONCE = 100
"""Queues that are taken over before the server is asked for more."""
MOST_HEARD = 1000
"""Before a sweep goes on."""
REMEMBERED_AT_ONCE = 1000
MOST_REMEMBERED = 50_000
"""Queues that the server may tell of to who has got slots: more than it remembers."""
MOST_COOLED = 100_000
"""Queues that are remembered between two sweeps, 300 bytes each; if there are more, the next sweep comes sooner."""
TICK_SECONDS = 0.2
WARM_SECONDS = 5.0
"""A queue in which nothing happens stays warm for so long, unless there are more than :data:`FEW_WARM`."""
FEW_WARM = 100
RECORD_SECONDS = 2.0
"""Between two times that a slot's moment is recorded."""
_LOW = 0b10 << 62
_NO_QUEUE = "0" * 32


def slot_of(queue: str) -> int:
    """From 1 to :data:`SLOTS`, the same everywhere and for ever.

    >>> slot_of("crashes"), slot_of("crashes-2")
    (192, 200)
    """
    return zlib.crc32(queue.encode()) % SLOTS + 1


def every_slot() -> list[Partition]:
    """What the members of such a group divide."""
    return [Partition(ALL, number) for number in range(1, SLOTS + 1)]


def is_slot(partition: Partition) -> bool:
    return partition.queue == ALL


def moment_of(ticks: int) -> Offset:
    """A slot's offset: everything up to this moment is finished."""
    return Offset(_NO_QUEUE, MessageId(ticks, tail_from_low(_LOW)))


@dataclass
class _Slot:
    """One that this member owns. All ticks are inclusive ends: everything up to them is finished, or found."""

    claim: Claim
    recorded: int
    swept: int
    open: bool = True
    sweeps: int = 0
    begins: bool = False
    """Behind what is there; it waits until that moment is recorded, lest its next owner begin later."""


@dataclass
class _Warm:
    """A queue with news."""

    slot: _Slot
    partitions: int
    floor: int
    """Up to here it was finished when it was found."""
    lanes: list[PartitionBuffer] = field(default_factory=list)
    """Of the partitions that are taken over."""
    fenced: bool = False
    """It is to be taken over anew, once nothing is under way in it."""
    until: float = 0.0


class _Cooled(NamedTuple):
    """A queue that was warm, and that no sweep has looked at since."""

    slot: _Slot
    partitions: int
    read_upto: int
    swept: int
    """Where the last sweep ended: partitions that the queue has got since hold nothing before it."""

    def since(self, partitions: int) -> int:
        return self.read_upto if partitions == self.partitions else self.floor

    @property
    def floor(self) -> int:
        return min(self.read_upto, self.swept)


class Probe(NamedTuple):
    """Did something come to a queue at this moment or later?"""

    queue: str
    partitions: int
    since: int
    slot: _Slot | None = None
    """Of who is going to work on it."""


class Slots:
    """The slots of one worker, and their warm queues."""

    def __init__(
        self,
        coordinator: Coordinator,
        lanes: Prefetched,
        fetcher: Fetcher,
        make_client: Callable[[], Client],
        group: str,
        *,
        list_queues: Callable[[Client], Iterable[QueueSettings]],
        is_meant: Callable[[str], bool],
        make_lane: Callable[[Claim, Offset], PartitionBuffer],
        clock: Clock,
        from_end: bool = False,
    ) -> None:
        """:param list_queues: all queues of the subscription, asked for as they are taken.
        :param is_meant: whether a queue is one of these.
        :param make_lane: given a queue's partition, and where to go on.
        :param from_end: a slot in which nobody ever worked begins with messages to come.
        """
        self._coordinator = coordinator
        self._lanes = lanes
        self._fetcher = fetcher
        self._make_client = make_client
        self._group = group
        self._list_queues = list_queues
        self._is_meant = is_meant
        self._make_lane = make_lane
        self._clock = clock
        self._from_end = from_end
        self._slots: dict[int, _Slot] = {}
        self._warm: dict[str, _Warm] = {}
        self._cooled: dict[str, _Cooled] = {}
        self._lock = threading.RLock()
        """Before that of the lanes."""
        self._more = threading.Event()
        self._swept_at, self._looked = -inf, 0.0
        """When the last sweep ended, if none is under way, and how long it looked."""
        self._cursor: str | None = None
        self._told_all = False
        """The server told of all that came since the last sweep began."""
        self._hear_at = 0.0
        self._gained: set[int] = set()
        """Slots of which nothing is known but their moment."""
        self._recording = threading.Lock()
        self._recorder: Client | None = None
        self._record_at = 0.0

    # What the group says

    def gained(self, claims: Mapping[Claim, Offset | None]) -> None:
        with self._lock:
            for claim, offset in claims.items():
                ticks = 0 if offset is None else offset.message_id.ticks
                begins = self._from_end and offset is None
                self._slots[claim.partition.number] = _Slot(claim, ticks, ticks, begins=begins)
                self._gained.add(claim.partition.number)
        self._more.set()

    def losing(self, claims: Collection[Claim]) -> None:
        with self._lock:
            for claim in claims:
                self._slots[claim.partition.number].open = False
                self._lanes.shut(self._lane_claims(claim))

    def drained(self, claims: Collection[Claim]) -> Collection[Claim]:
        """Those whose queues have nothing under way; their moments are recorded."""
        with self._lock:
            done = [claim for claim in claims if self._is_drained(self._lane_claims(claim))]
            self._record_moments([self._slots[claim.partition.number] for claim in done if self._has(claim)])
        self.lost(done)
        return done

    def lost(self, claims: Collection[Claim]) -> None:
        with self._lock:
            for claim in claims:
                self._lanes.remove(self._lane_claims(claim))
                if self._has(claim):
                    slot = self._slots.pop(claim.partition.number)
                    slot.open = False  # a sweep may know it
                    self._warm = {name: warm for name, warm in self._warm.items() if warm.slot is not slot}
                    self._cooled = {name: each for name, each in self._cooled.items() if each.slot is not slot}

    def _has(self, claim: Claim) -> bool:
        slot = self._slots.get(claim.partition.number)
        return slot is not None and slot.claim == claim

    def _lane_claims(self, claim: Claim) -> list[Claim]:
        return [lane.claim for warm in self._warm.values() if warm.slot.claim == claim for lane in warm.lanes]

    def _is_drained(self, claims: Sequence[Claim]) -> bool:
        return len(self._lanes.drained(claims)) == len(claims)

    def at_end(self) -> bool:
        """Whether all that the last sweep knew of is in the lanes."""
        with self._lock:
            taken_over = all(warm.lanes and len(warm.lanes) >= warm.partitions for warm in self._warm.values())
            return taken_over and all(slot.sweeps for slot in self._slots.values())

    # Recording

    def record(self, offsets: Mapping[Claim, Offset]) -> Collection[Claim]:
        """Commit offsets of queues to Queuey, one queue after the other.

        :returns: claims that are gone, because somebody else owns the slot by now or the offset was set by hand.
        :raises CoordinatorUnavailable: some may be recorded.
        """
        together: dict[tuple[str, int], dict[Claim, Offset]] = defaultdict(dict)
        for claim, offset in offsets.items():
            together[claim.partition.queue, claim.generation][claim] = offset
        with self._recording:
            self._recorder = client = self._recorder or self._make_client()
            return [claim for (queue, at), some in together.items() for claim in self._record(client, queue, at, some)]

    def _record(
        self, client: Client, queue: str, generation: int, offsets: Mapping[Claim, Offset]
    ) -> Collection[Claim]:
        ids = {claim.partition.number: offset.message_id for claim, offset in offsets.items()}
        try:
            client.commit_offsets(queue, self._group, ids, generation)
        except (StaleGeneration, OffsetMovesBack):
            return offsets
        except QueueNotFound:
            return ()  # its offsets went with it
        except InvalidParameter:  # so did those of a partition: the queue was made anew with fewer
            alone = [{claim: offset} for claim, offset in offsets.items()] if len(offsets) > 1 else []
            return [claim for one in alone for claim in self._record(client, queue, generation, one)]
        except QueueyError as error:
            if not (may_pass(error) or isinstance(error, Conflict)):
                raise
            raise CoordinatorUnavailable(f"offsets in Queuey: {error}") from error
        return ()

    def fenced(self, claims: Collection[Claim]) -> None:
        """Commits of these were refused: their queues are taken over anew, if their slots are still this member's."""
        with self._lock:
            for queue in {claim.partition.queue for claim in claims}:
                warm = self._warm.get(queue)
                if warm is not None:
                    self._lanes.shut([lane.claim for lane in warm.lanes])
                    warm.fenced = True

    def record_moments(self) -> Collection[Claim]:
        """Tell the coordinator how far each slot is, now and then.

        :returns: slots that are somebody else's by now, or were set back by hand.
        :raises CoordinatorUnavailable: they may be recorded or not.
        """
        now = self._clock.elapsed()
        if now < self._record_at:
            return []
        self._record_at = now + RECORD_SECONDS
        with self._lock:
            return self._record_moments([slot for slot in self._slots.values() if slot.open])

    def _record_moments(self, slots: Sequence[_Slot]) -> Collection[Claim]:
        moments = {slot.claim.partition.number: slot.swept for slot in slots}
        floors = [(warm.slot, self._floor_of(warm)) for warm in self._warm.values()]
        floors += [(recently_active.slot, recently_active.floor) for recently_active in self._cooled.values()]
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
                self._more.set()
        return refused

    def _floor_of(self, warm: _Warm) -> int:
        """Up to where everything in a queue is finished and recorded; new partitions hold it until they are taken over."""
        if len(warm.lanes) < warm.partitions:
            return warm.floor
        with self._lanes.lock:
            return min((max(warm.floor, _finished(lane)) for lane in warm.lanes), default=warm.floor)

    # Looking for work

    def run(self, over: threading.Event) -> None:
        """Hear of work and look for it, until it is over."""
        with self._make_client() as client:
            not_before = 0.0
            while not over.is_set():
                try:
                    if self._clock.elapsed() >= not_before:
                        self._hear(client, over)
                        if self._more.is_set() or self._clock.elapsed() >= self._swept_at + self._rest():
                            self._more.clear()
                            self._sweep(client, over)
                        self._take_over_all(client, over)
                except QueueyError as error:
                    log.warning("work cannot be looked for: %s", error)
                    not_before = self._clock.elapsed() + LEAST_REST_SECONDS
                except Exception:
                    log.exception("work cannot be looked for: what answered is not what Queuey says")
                    not_before = self._clock.elapsed() + LEAST_REST_SECONDS
                self._cool()
                over.wait(TICK_SECONDS)
        if self._recorder is not None:
            with self._recording:
                self._recorder.close()

    def _rest(self) -> float:
        """Seconds between two sweeps."""
        if self._told_all and len(self._cooled) < MOST_COOLED:
            return min(max(LEAST_REST_SECONDS, self._looked * TOLD_REST_SHARE), MOST_TOLD_REST_SECONDS)
        return min(max(LEAST_REST_SECONDS, self._looked * REST_SHARE), MOST_REST_SECONDS)

    def _remember(self, client: Client, over: threading.Event) -> None:
        """Probe at the queues of slots that were gained in which something came lately: long before a sweep comes to them."""
        told: dict[str, int] = {}
        cursor, more = None, True
        while more and not over.is_set() and len(told) < MOST_REMEMBERED:
            page = client.arrivals(cursor, limit=REMEMBERED_AT_ONCE)
            told |= {queue.name: queue.partitions for queue in page.queues}
            cursor, more = page.cursor, page.more
        with self._lock:
            gained, self._gained = self._gained, set()
            slots = {n: slot for n, slot in self._slots.items() if n in gained and slot.open and not slot.begins}
            cold = {name: n for name, n in told.items() if slot_of(name) in slots and name not in self._warm}
        self._cursor = self._cursor or cursor
        self._look_at(client, {name: n for name, n in cold.items() if self._is_meant(name)}, slots, {}, over)

    def _hear(self, client: Client, over: threading.Event) -> None:
        """Ask the server what came since it was asked last, if it is time to, and take that over."""
        if self._gained:
            self._remember(client, over)
        if self._cursor is None or self._clock.elapsed() < self._hear_at:
            return
        self._cool()  # also in the middle of a sweep: each warm queue is asked for every two seconds
        for _ in range(MOST_HEARD // HEARD_AT_ONCE):
            told = client.arrivals(self._cursor, limit=HEARD_AT_ONCE)
            self._cursor, self._told_all = told.cursor, self._told_all and told.complete
            self._warm_up({queue.name: queue.partitions for queue in told.queues})
            self._take_over_all(client, over)
            if not told.more or over.is_set():
                break
        self._hear_at = self._clock.elapsed() + HEAR_SECONDS

    def _warm_up(self, told: Mapping[str, int]) -> None:
        """Queues that got something, and how many partitions they have now."""
        with self._lock:
            for name, partitions in told.items():
                slot, warm, recently_active = (
                    self._slots.get(slot_of(name)),
                    self._warm.get(name),
                    self._cooled.get(name),
                )
                if warm is not None:
                    warm.partitions = max(warm.partitions, partitions)
                elif slot is not None and slot.open and not slot.begins and self._is_meant(name):
                    since = slot.swept if recently_active is None else recently_active.since(partitions)
                    self._warm[name] = _Warm(slot, partitions, since)

    def _sweep(self, client: Client, over: threading.Event) -> None:
        """Find the queues of all slots in which something came since the last sweep, and take them over.

        It ends where the watermark was *before* the queues were listed: what a queue that is made later gets lies behind it.
        """
        began, self._swept_at = self._clock.elapsed(), -inf
        self._told_all = self._cursor is not None
        first = next(client.queues(page_size=1), None)
        upto = 0 if first is None else client.news([first.name], 0)[1]
        if first is not None and not upto:
            return  # it has just been deleted: soon again
        with self._lock:
            for slot in self._slots.values():
                if slot.begins and not slot.swept:
                    slot.swept, slot.begins = upto, upto > 0  # where there is no queue, there is nothing to leave out
            slots = {number: slot for number, slot in self._slots.items() if slot.open and not slot.begins}
            warm, recently_active = set(self._warm), dict(self._cooled)
        listed = {}
        for queue in self._list_queues(client) if slots else ():
            if slot_of(queue.name) in slots:
                listed[queue.name] = queue.partitions
            self._hear(client, over)  # a million are listed for minutes
            if over.is_set():
                return
        self._compare(warm, listed)
        cold = {name: n for name, n in listed.items() if name not in warm}
        elsewhere = self._look_at(client, cold, slots, recently_active, over, hears=True)
        if over.is_set():
            return
        self._swept_at = self._clock.elapsed()
        self._looked = self._swept_at - began - elsewhere
        self._swept(slots.values(), recently_active, upto)

    def _look_at(
        self,
        client: Client,
        cold: Mapping[str, int],
        slots: Mapping[int, _Slot],
        recently_active: Mapping[str, _Cooled],
        over: threading.Event,
        *,
        hears: bool = False,
    ) -> float:
        """Take over those of these queues in which something came.

        :param hears: also what the server tells meanwhile.
        :returns: seconds that were spent on what was found, and not on looking.
        """
        spent = 0.0
        for some in chain(*map(questions, _looks(cold, slots, recently_active))):
            if over.is_set():
                break
            self._ask(client, some)
            found_at = self._clock.elapsed()
            self._take_over_all(client, over)
            if hears:
                self._hear(client, over)
            spent += self._clock.elapsed() - found_at
        return spent

    def _ask(self, client: Client, looks: Sequence[Probe]) -> None:
        found = with_news(client, looks)
        with self._lock:
            for name, partitions, since, slot in found:
                if slot is not None and slot.open and name not in self._warm:
                    self._warm[name] = _Warm(slot, partitions, since)

    def _swept(self, slots: Collection[_Slot], recently_active: Mapping[str, _Cooled], upto: int) -> None:
        """All news up to this moment are found; but for slots that were being given back meanwhile."""
        with self._lock:
            for slot in slots:
                if slot.open:
                    slot.swept = max(slot.swept, upto)
                    slot.sweeps += 1
            for name, each in recently_active.items():
                if self._cooled.get(name) == each and each.slot.open:
                    del self._cooled[name]

    def _compare(self, warm: Collection[str], listed: Mapping[str, int]) -> None:
        """Queues that were warm before they were listed: some have grown, some are gone."""
        with self._lock:
            for name in warm:
                found = self._warm.get(name)
                if found is None or not found.slot.open:
                    continue
                found.partitions = max(found.partitions, listed.get(name, 0))
                if name not in listed:
                    self._lanes.remove([lane.claim for lane in found.lanes])
                    del self._warm[name]

    def _take_over_all(self, client: Client, over: threading.Event) -> None:
        with self._lock:
            for warm in self._warm.values():
                if warm.fenced and not any(lane.running for lane in warm.lanes):
                    warm.floor = self._floor_of(warm)
                    self._lanes.remove([lane.claim for lane in warm.lanes])
                    warm.lanes, warm.fenced = [], False
            wanted = [(name, warm) for name, warm in self._warm.items() if len(warm.lanes) < warm.partitions]
        for name, warm in wanted:
            if over.is_set() or not self._coordinator.trusted():
                return
            if warm.slot.open and not warm.fenced:
                self._take_over(client, name, warm)

    def _take_over(self, client: Client, queue: str, warm: _Warm) -> None:
        """Raise the generations of a queue, then read its offsets (G14).

        Work begins only if the slot is still sure to be this member's *after* that: then its next owner will raise them further.
        """
        has = {lane.claim.partition.number for lane in warm.lanes}
        try:
            found = self._raise(client, queue, set(range(1, warm.partitions + 1)) - has, warm.slot.claim.generation)
        except (StaleGeneration, QueueNotFound, InvalidParameter):
            return  # somebody else does the same, or it is not what it was when it was listed: the next sweep tells
        if not self._coordinator.trusted():
            return
        with self._lock:
            if self._warm.get(queue) is not warm or not warm.slot.open:
                return
            for each in found:
                claim = Claim(Partition(queue, each.partition), each.generation)
                start = Offset(each.incarnation, each.id or _beginning(each, warm.floor))
                warm.lanes.append(self._make_lane(claim, start))
                self._lanes.add(warm.lanes[-1])
            warm.until = self._clock.elapsed() + WARM_SECONDS
        self._fetcher.follow([queue], {queue: found[0].incarnation})

    def _raise(self, client: Client, queue: str, numbers: Collection[int], generation: int) -> Sequence[GroupOffset]:
        """:param generation: of the slot's claim."""
        try:
            return client.take_over(queue, self._group, sorted(numbers), generation * RESETS)
        except StaleGeneration:  # it was reset; or claims were counted elsewhere before
            before = client.offsets(queue, self._group)
            above = max(each.generation for each in before if each.partition in numbers) + 1
            return client.take_over(queue, self._group, sorted(numbers), above)

    def _cool(self) -> None:
        """Let go of queues in which nothing is left, and nothing came for a while."""
        now = self._clock.elapsed()
        with self._lock:
            many = len(self._warm) > FEW_WARM
            for name, warm in list(self._warm.items()):
                if not warm.lanes or len(warm.lanes) < warm.partitions:
                    continue
                with self._lanes.lock:
                    rests = all(lane.open and lane.idle and lane.at_end for lane in warm.lanes)
                    if not rests:
                        warm.until = now + WARM_SECONDS
                    elif now >= warm.until or (many and all(lane.read_upto for lane in warm.lanes)):
                        read_upto = min(lane.read_upto for lane in warm.lanes)
                        self._cooled[name] = _Cooled(warm.slot, warm.partitions, read_upto, warm.slot.swept)
                        self._lanes.remove([lane.claim for lane in warm.lanes])
                        del self._warm[name]


def _beginning(offset: GroupOffset, floor: int) -> MessageId:
    """Where to begin in a partition whose offset has no id: behind what counts as finished, unless it was set back to its beginning."""
    return last_id_of(floor) if floor and offset.timestamp is None else ZERO_ID


def _finished(lane: PartitionBuffer) -> int:
    if lane.open and lane.idle:
        return lane.read_upto
    return 0 if lane.committed is None else lane.committed.ticks


def _looks(
    listed: Mapping[str, int], slots: Mapping[int, _Slot], recently_active: Mapping[str, _Cooled]
) -> list[list[Probe]]:
    """What to ask about queues that are not warm: of those that just were apart, since they have been looked at more lately."""
    cold, less_cold = [], []
    for name, partitions in listed.items():
        if (was := recently_active.get(name)) is not None:
            less_cold.append(Probe(name, partitions, was.since(partitions), was.slot))
        else:
            slot = slots[slot_of(name)]
            cold.append(Probe(name, partitions, slot.swept, slot))
    return [cold, less_cold]


def questions(looks: Sequence[Probe]) -> list[list[Probe]]:
    """Portions that one request may read, those of the oldest moments together."""
    portions: list[list[Probe]] = []
    partitions = PARTITIONS_IN_ONE_QUESTION
    for look in sorted(looks, key=lambda each: each.since):
        partitions += look.partitions
        if partitions > PARTITIONS_IN_ONE_QUESTION or len(portions[-1]) == IN_ONE_QUESTION:
            portions.append([])
            partitions = look.partitions
        portions[-1].append(look)
    return portions


def with_news(client: Client, looks: Sequence[Probe]) -> list[Probe]:
    """Those of one portion in which something came."""
    found, _ = client.news([look.queue for look in looks], min(look.since for look in looks))
    return [look for look in looks if look.queue in found]
