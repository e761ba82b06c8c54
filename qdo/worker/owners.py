"""What a worker owns.

An owner says how the group divides the queues, where work is found, and where offsets are recorded.

A worker asks one :class:`Owner`, and never how the group divides. :class:`PartitionOwner` owns partitions of queues;
their offsets are with the group. :class:`SlotOwner` owns hash slots; offsets of queues are in Queuey, and the group
keeps a moment for each slot.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

from qdo.client import Client
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset
from qdo.groups.hash_slots import every_slot, is_slot
from qdo.groups.subscription import WorkerSubscription
from qdo.worker.options import WorkerOptions
from qdo.worker.parts import WorkerParts
from qdo.worker.slots import QueueOffsets, SlotTable
from qdo.worker.sweeps import Sweeper
from queuey.errors import QueueyError

__all__ = ["Owner", "PartitionOwner", "SlotOwner", "owner_of"]

log = logging.getLogger(__name__)

LIST_SECONDS = 5.0
"""Between two times that the leader lists the queues."""
LIST_AGAIN_SECONDS = 0.5
"""After a list that failed."""
MOST_QUEUES_IN_A_COMMIT = 200
"""By slots each queue's offsets are a request of their own. Other queues wait for the next commit."""


class Owner(ABC):
    """What a worker owns.

    The group calls :meth:`gained`, :meth:`losing`, :meth:`drained` and :meth:`lost` in its one thread
    (:class:`~qdo.groups.member.ClaimHandler`).
    """

    most_in_a_commit: int | None = None
    """Offsets that one call of :meth:`record` may get; None for any number."""

    @abstractmethod
    def divided(self) -> Collection[Partition] | None:
        """Everything that the group divides, as far as it is known.

        It is None while it is not known. Sends no request.
        """

    @abstractmethod
    def accepts(self, partition: Partition) -> bool:
        """Whether this worker could own a partition of this kind."""

    @abstractmethod
    def find_work(self, over: threading.Event) -> None:
        """Find out what there is to work on, until ``over`` is set.

        It runs in a thread of its own.
        """

    @abstractmethod
    def at_end(self) -> bool:
        """Whether everything that there was has buffers."""

    @abstractmethod
    def gained(self, claims: Mapping[Claim, CommittedOffset | None]) -> None:
        """Begin to work behind these offsets."""

    @abstractmethod
    def losing(self, claims: Collection[Claim]) -> None:
        """Begin nothing more in these."""

    @abstractmethod
    def drained(self, claims: Collection[Claim]) -> Collection[Claim]:
        """Those with nothing under way and everything committed. They are forgotten."""

    @abstractmethod
    def lost(self, claims: Collection[Claim]) -> None:
        """Forget these. They belong to somebody else already."""

    @abstractmethod
    def record(self, offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
        """Commit offsets of partitions.

        :returns: claims that are gone; nothing of them is recorded.
        :raises CoordinatorUnavailable: the offsets may be recorded or not.
        """

    @abstractmethod
    def fenced(self, claims: Collection[Claim]) -> None:
        """Commits of these claims were refused. Any thread may call it."""

    @abstractmethod
    def after_commit(self) -> Collection[Claim]:
        """Record what the owner keeps beside the offsets, after these.

        :returns: claims of the group that are gone. The group may claim their partitions anew.
        :raises CoordinatorUnavailable: it may be recorded or not.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of connections. The worker has ended."""


class PartitionOwner(Owner):
    """Owns partitions of queues. Their offsets are where the group keeps them."""

    def __init__(self, parts: WorkerParts, subscription: WorkerSubscription, *, from_end: bool) -> None:
        """:param from_end: partitions that exist when the worker begins start with messages to come."""
        self._parts = parts
        self._subscription = subscription
        self._from_end = from_end
        self._divided: tuple[int | None, Collection[Partition]] = (None, ())
        """The partitions, and the term in which they were listed."""
        self._wanted = threading.Event()
        """A list is wanted before the next one is due, or none any more."""
        self._at_first: frozenset[Partition] | None = None
        """Partitions that existed when this worker began, but for those that it has given back since, and recorded where they
        are. If such a one has no offset, its queue was made anew.
        """
        self._fenced: set[Claim] = set()
        """Claims that are gone, and whose jobs may still run."""
        self._fenced_lock = threading.Lock()

    def divided(self) -> Collection[Partition] | None:
        term, partitions = self._divided
        if term is not None and term == self._parts.term():
            return partitions
        self._wanted.set()
        return None

    def accepts(self, partition: Partition) -> bool:
        return not is_slot(partition)

    def find_work(self, over: threading.Event) -> None:
        """List the partitions once, and again while this member leads.

        A list counts for the term in which it was begun. A plan made from an older one would leave out partitions that a
        former leader has divided since: their owners would give them back.
        """
        with self._parts.make_client() as client:
            while not over.is_set():
                term = self._parts.term()
                if self._at_first is not None and term is None:
                    self._divided = (None, ())
                elif not self._list(client, term):
                    over.wait(LIST_AGAIN_SECONDS)
                    continue
                self._wanted.clear()
                if term == self._parts.term() and not over.is_set():
                    self._wanted.wait(LIST_SECONDS)

    def _list(self, client: Client, term: int | None) -> bool:
        """:returns: False if it failed; the log says why."""
        try:
            found = self._subscription.partitions(client)
        except QueueyError as error:
            log.warning("the queues cannot be listed: %s", error)
            return False
        except Exception:
            log.exception("the queues cannot be listed: the answer is none that Queuey gives")
            return False
        self._divided = (term, found)
        if self._at_first is None:
            self._at_first = frozenset(found)
        self._parts.wake()
        return True

    def at_end(self) -> bool:
        return self._at_first is not None

    def gained(self, claims: Mapping[Claim, CommittedOffset | None]) -> None:
        for claim, offset in claims.items():
            from_end = self._from_end and self._was_there(claim.partition)
            self._parts.prefetched.add(self._parts.make_buffer(claim, offset, from_end=from_end))
        self._parts.fetcher.follow(sorted({claim.partition.queue for claim in claims}))

    def _was_there(self, partition: Partition) -> bool:
        """Whether a partition existed when this worker began.

        One that came later is read from its beginning, also by a group from the end.
        """
        return self._at_first is None or partition in self._at_first

    def losing(self, claims: Collection[Claim]) -> None:
        self._parts.prefetched.shut(claims)

    def drained(self, claims: Collection[Claim]) -> Collection[Claim]:
        done = self._parts.prefetched.drained(claims)
        if self._at_first is not None:
            self._at_first -= self._recorded(done)
        self._parts.prefetched.remove(done)
        return done

    def _recorded(self, claims: Collection[Claim]) -> set[Partition]:
        """Partitions of these claims of which the group knows where they are."""
        found = self._parts.prefetched.all()
        return {one.claim.partition for one in found if one.claim in claims and one.committed is not None}

    def lost(self, claims: Collection[Claim]) -> None:
        self._parts.prefetched.remove(claims)

    def record(self, offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
        return self._parts.coordinator.commit(offsets)

    def fenced(self, claims: Collection[Claim]) -> None:
        """Let jobs in these end first. If the offset was set by hand, this worker claims the partition anew."""
        with self._fenced_lock:
            self._fenced.update(claims)
        self._parts.prefetched.shut(claims, commits=False)

    def after_commit(self) -> Collection[Claim]:
        with self._fenced_lock:
            gone = self._parts.prefetched.drained(self._fenced)
            self._fenced.difference_update(gone)
        return gone

    def close(self) -> None:
        """It has no connections of its own; let :meth:`find_work` end."""
        self._wanted.set()


class SlotOwner(Owner):
    """Owns hash slots. It works on the queues of them that got messages."""

    most_in_a_commit = MOST_QUEUES_IN_A_COMMIT

    def __init__(self, parts: WorkerParts, subscription: WorkerSubscription, group: str, *, from_end: bool) -> None:
        """:param from_end: a slot in which nobody ever worked begins with messages to come."""
        self._every_slot = every_slot()
        self._offsets = QueueOffsets(parts.make_client, group)
        self.table = SlotTable(parts.coordinator, parts.prefetched, parts.clock, from_end=from_end)
        self.sweeper = Sweeper(self.table, parts, subscription, group)

    def divided(self) -> Collection[Partition]:
        return self._every_slot

    def accepts(self, partition: Partition) -> bool:
        return is_slot(partition)

    def find_work(self, over: threading.Event) -> None:
        self.sweeper.run(over)

    def at_end(self) -> bool:
        return self.table.at_end()

    def gained(self, claims: Mapping[Claim, CommittedOffset | None]) -> None:
        self.table.gained(claims)

    def losing(self, claims: Collection[Claim]) -> None:
        self.table.losing(claims)

    def drained(self, claims: Collection[Claim]) -> Collection[Claim]:
        return self.table.drained(claims)

    def lost(self, claims: Collection[Claim]) -> None:
        self.table.lost(claims)

    def record(self, offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
        return self._offsets.record(offsets)

    def fenced(self, claims: Collection[Claim]) -> None:
        """The queues are taken over anew.

        The slots still belong to this worker, as far as anybody knows.
        """
        self.table.fence({claim.partition.queue for claim in claims})

    def after_commit(self) -> Collection[Claim]:
        return self.table.record_moments()

    def close(self) -> None:
        self._offsets.close()


def owner_of(options: WorkerOptions, subscription: WorkerSubscription, parts: WorkerParts) -> Owner:
    """The owner that a worker with these options has."""
    if options.slots:
        return SlotOwner(parts, subscription, options.group, from_end=options.from_end)
    return PartitionOwner(parts, subscription, from_end=options.from_end)
