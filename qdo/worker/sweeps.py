"""How a worker finds queues with something to do (docs/decisions/012).

The queues are those of its slots.

::

    queue   INACTIVE ──got a message──► ACTIVE: taken over, read, worked on ──all done, nothing new──► INACTIVE

The server tells which queues got messages. Sweeps find what the server cannot tell: a sweep looks at all queues, and
only a sweep decides up to which moment everything is found. The offsets of queues, which Queuey keeps, matter for
active queues alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from math import inf

from qdo.client import Client, GroupOffset
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset, last_id_of
from qdo.groups.hash_slots import ALL, slot_of
from qdo.groups.probes import Probe, probe_batches, with_new_messages
from qdo.groups.subscription import WorkerSubscription
from qdo.worker.buffers import PartitionBuffer
from qdo.worker.parts import WorkerParts
from qdo.worker.slots import ActiveQueue, RecentlyActive, Slot, SlotTable
from queuey.errors import InvalidParameter, QueueNotFound, QueueyError, StaleGeneration
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, ZERO_ID, MessageId

__all__ = ["RESETS", "Sweeper"]

log = logging.getLogger(__name__)

RESETS = 1 << 20
"""Generations in Queuey between those of two claims of a slot. Each reset takes one of them."""
REST_SHARE, TOLD_REST_SHARE = 4, 20
"""A sweep is followed by a rest of 4 times the time that it spent on looking; of 20 times if the server told everything
that came since the sweep began."""
LEAST_REST_SECONDS = 1.0
MOST_REST_SECONDS, MOST_TOLD_REST_SECONDS = 60.0, 600.0
HEAR_SECONDS = 0.5
"""Between two times that the server is asked which queues got messages."""
HEARD_AT_ONCE = 100
"""Queues that are taken over before the server is asked for more."""
MOST_HEARD = 1000
"""Queues taken over before a sweep goes on."""
REMEMBERED_AT_ONCE = 1000
MOST_REMEMBERED = 50_000
"""Queues that the server may name to a worker that gained slots: more than a server remembers."""
MOST_RECENTLY_ACTIVE = 100_000
"""Queues remembered between two sweeps, 300 bytes each. With more of them the next sweep comes sooner."""
TICK_SECONDS = 0.2


class Sweeper:
    """Hears of queues that got messages, looks for others, and takes them over.

    One thread runs it.
    """

    def __init__(self, table: SlotTable, parts: WorkerParts, subscription: WorkerSubscription, group: str) -> None:
        self._table = table
        self._parts = parts
        self._clock = parts.clock
        self._coordinator = parts.coordinator
        self._list_queues = subscription.queues
        self._is_meant = subscription.means
        self._make_buffer = parts.make_buffer
        self._group = group
        self._swept_at = -inf
        """When the last sweep ended; -inf while one is under way."""
        self._looked = 0.0
        """Seconds that the last sweep spent on looking."""
        self._cursor: str | None = None
        self._told_all = False
        """The server told everything that came since the last sweep began."""
        self._hear_at = 0.0
        self._sent_upto: tuple[int | None, int] = None, 0
        """The messages that were fetched before nothing was left to do, and up to which moment their jobs may have sent."""

    def run(self, over: threading.Event) -> None:
        """Hear of work and look for it until ``over`` is set."""
        with self._parts.make_client() as client:
            not_before = 0.0
            while not over.is_set():
                try:
                    if self._clock.elapsed() >= not_before:
                        self._hear(client, over)
                        if self._table.more.is_set() or self._clock.elapsed() >= self._swept_at + self._rest():
                            self._table.more.clear()
                            self.sweep(client, over)
                        self._take_over_all(client, over)
                except QueueyError as error:
                    log.warning("work cannot be looked for: %s", error)
                    not_before = self._clock.elapsed() + LEAST_REST_SECONDS
                except Exception:
                    log.exception("work cannot be looked for: the answer is none that Queuey gives")
                    not_before = self._clock.elapsed() + LEAST_REST_SECONDS
                self._table.rest_idle()
                over.wait(TICK_SECONDS)

    def _rest(self) -> float:
        """Seconds between two sweeps."""
        if self._told_all and len(self._table.recently_active) < MOST_RECENTLY_ACTIVE:
            return min(max(LEAST_REST_SECONDS, self._looked * TOLD_REST_SHARE), MOST_TOLD_REST_SECONDS)
        return min(max(LEAST_REST_SECONDS, self._looked * REST_SHARE), MOST_REST_SECONDS)

    # What the server tells

    def _hear(self, client: Client, over: threading.Event) -> None:
        """Ask the server which queues got messages, if it is time to, and take them over."""
        if self._table.fresh:
            self._remember(client, over)
        if self._cursor is None or self._clock.elapsed() < self._hear_at:
            return
        self._table.rest_idle()  # in the middle of a sweep, too: each active queue costs a request every two seconds
        for _ in range(MOST_HEARD // HEARD_AT_ONCE):
            page = client.arrivals(self._cursor, limit=HEARD_AT_ONCE)
            self._cursor, self._told_all = page.cursor, self._told_all and page.complete
            self._table.activate_named({queue.name: queue.partitions for queue in page.queues}, self._is_meant)
            self._take_over_all(client, over)
            if not page.more or over.is_set():
                break
        self._hear_at = self._clock.elapsed() + HEAR_SECONDS

    def _remember(self, client: Client, over: threading.Event) -> None:
        """Probe queues of fresh slots that the server remembers.

        A sweep would come to them much later.
        """
        told: dict[str, int] = {}
        cursor, more = None, True
        while more and not over.is_set() and len(told) < MOST_REMEMBERED:
            page = client.arrivals(cursor, limit=REMEMBERED_AT_ONCE)
            told |= {queue.name: queue.partitions for queue in page.queues}
            cursor, more = page.cursor, page.more
        with self._table.lock:
            fresh, self._table.fresh = self._table.fresh, set()
            slots = {n: slot for n, slot in self._open_slots().items() if n in fresh}
            inactive = {
                name: n for name, n in told.items() if slot_of(name) in slots and name not in self._table.active
            }
        self._cursor = self._cursor or cursor
        probes = _probes({name: n for name, n in inactive.items() if self._is_meant(name)}, slots, {})
        self._look_at(client, probes, slots, over)

    def _open_slots(self) -> dict[int, Slot]:
        """Slots whose queues may become active; with the lock held."""
        return {number: slot for number, slot in self._table.slots.items() if slot.open and not slot.begins}

    # Sweeps

    def sweep(self, client: Client, over: threading.Event) -> None:
        """Find the queues of all slots that got messages since the last sweep.

        They are taken over.

        The sweep counts up to the watermark from *before* the queues were listed: messages of a queue that is made
        later lie behind it.
        """
        began, self._swept_at = self._clock.elapsed(), -inf
        self._told_all = self._cursor is not None
        at_rest = self._parts.prefetched.fetched_if_over if self._table.is_to_end else None
        now = _now(client) if at_rest not in (None, self._sent_upto[0]) else None
        first = next(client.queues(page_size=1), None)
        upto = 0 if first is None else client.news([first.name], 0)[1]
        if first is not None and not upto:
            return  # that queue has just been deleted: try again soon
        if now is not None:  # readers may stay behind the clock, and the clocks of servers differ by less than that
            self._sent_upto = at_rest, max(now, 2 * now - upto) if upto else 0
        with self._table.lock:
            for slot in self._table.slots.values():
                if slot.begins and not slot.swept:
                    # Where no queue exists, there is nothing to leave out.
                    slot.swept, slot.begins = upto, upto > 0
            slots = self._open_slots()
            active, recently_active = set(self._table.active), dict(self._table.recently_active)
        listed = {}
        for queue in self._list_queues(client) if slots else ():
            if slot_of(queue.name) in slots:
                listed[queue.name] = queue.partitions
            self._hear(client, over)  # to list a million queues takes minutes
            if over.is_set():
                return
        self._table.compare(active, listed)
        probes = _probes({name: n for name, n in listed.items() if name not in active}, slots, recently_active)
        elsewhere = self._look_at(client, probes, slots, over, hears=True)
        if over.is_set():
            return
        self._swept_at = self._clock.elapsed()
        self._looked = self._swept_at - began - elsewhere
        self._table.swept(slots.values(), recently_active, upto, at_rest if upto >= self._sent_upto[1] else None)

    def _look_at(
        self,
        client: Client,
        probes: Sequence[Sequence[Probe]],
        slots: Mapping[int, Slot],
        over: threading.Event,
        *,
        hears: bool = False,
    ) -> float:
        """Take over the queues that got messages.

        :param probes: those of each part make batches of their own.
        :param hears: also ask the server which queues got messages meanwhile.
        :returns: seconds spent on what was found, and not on looking.
        """
        spent = 0.0
        for batch in chain(*map(probe_batches, probes)):
            if over.is_set():
                break
            self._table.activate_found(with_new_messages(client, batch), slots)
            found_at = self._clock.elapsed()
            self._take_over_all(client, over)
            if hears:
                self._hear(client, over)
            spent += self._clock.elapsed() - found_at
        return spent

    # Taking over

    def _take_over_all(self, client: Client, over: threading.Event) -> None:
        for name, queue in self._table.to_take_over():
            if over.is_set() or not self._coordinator.trusted():
                return
            if queue.slot.open and not queue.fenced:
                self._take_over(client, name, queue)

    def _take_over(self, client: Client, name: str, queue: ActiveQueue) -> None:
        """Raise the generations of a queue, then read its offsets (G14).

        Work begins only if the slot is still sure to belong to this worker *after* that. Then its next owner raises
        the generations further.
        """
        has = {claim.partition.number for claim in queue.claims()}
        try:
            found = self._raise(client, name, set(range(1, queue.partitions + 1)) - has, queue.slot.claim.generation)
        except (StaleGeneration, QueueNotFound, InvalidParameter):
            return  # somebody else does the same, or the queue has changed since it was listed: the next sweep finds out
        if not self._coordinator.trusted():
            return

        def make() -> list[PartitionBuffer]:
            return [
                self._make_buffer(
                    Claim(Partition(name, each.partition), each.generation),
                    CommittedOffset(each.incarnation, each.id or _beginning(each, queue.floor)),
                )
                for each in found
            ]

        if self._table.begin(name, queue, make):
            self._parts.fetcher.follow([name], {name: found[0].incarnation})

    def _raise(self, client: Client, queue: str, numbers: Collection[int], generation: int) -> Sequence[GroupOffset]:
        """:param generation: of the slot's claim."""
        try:
            return client.take_over(queue, self._group, sorted(numbers), generation * RESETS)
        except StaleGeneration:
            # Somebody reset the offsets, or an earlier coordinator counted claims higher.
            before = client.offsets(queue, self._group)
            above = max(each.generation for each in before if each.partition in numbers) + 1
            return client.take_over(queue, self._group, sorted(numbers), above)


def _now(client: Client) -> int:
    """The server's clock, in ticks. It tells milliseconds."""
    return EPOCH_TICKS + round((client.figures(prefix=ALL, limit=1).time + 0.001) * TICKS_PER_SECOND)


def _beginning(offset: GroupOffset, floor: int) -> MessageId:
    """Where a partition begins whose offset has no id.

    It begins behind what counts as finished, unless the offset was set back to the beginning.
    """
    return last_id_of(floor) if floor and offset.timestamp is None else ZERO_ID


def _probes(
    listed: Mapping[str, int], slots: Mapping[int, Slot], recently_active: Mapping[str, RecentlyActive]
) -> list[list[Probe]]:
    """A probe for each inactive queue.

    Recently active queues come apart, since their moments are later.
    """
    inactive, recent = [], []
    for name, partitions in listed.items():
        if (before := recently_active.get(name)) is not None:
            recent.append(Probe(name, partitions, before.since(partitions)))
        else:
            inactive.append(Probe(name, partitions, slots[slot_of(name)].swept))
    return [inactive, recent]
