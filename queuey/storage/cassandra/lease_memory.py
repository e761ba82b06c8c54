"""One lease group in memory, as it was stored at a version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from queuey.errors import StorageUnavailable
from queuey.future import Future, start
from queuey.model import Consistency
from queuey.model.lease_groups import ORDER_BY_KEY, LeaseGroup
from queuey.storage.cassandra.lease_access import GroupCall
from queuey.storage.cassandra.lease_ahead import GroupAhead
from queuey.storage.cassandra.lease_heads import GroupHead, GroupPlace, Parcel, StepName
from queuey.storage.cassandra.lease_homes import LeaseHomes
from queuey.storage.cassandra.lease_parcels import Carrier
from queuey.storage.cassandra.lease_rows import LaterChanges, LeaseRows, StoredGroup
from queuey.storage.cassandra.lease_weak import Lanes, WeakGroup
from queuey.storage.cassandra.lease_work import GroupWork, awaited
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import ALL_CENTRES, Rows
from queuey.storage.checksums import making_sense
from queuey.storage.leasing.book import GroupBook, LeaseBook
from queuey.storage.leasing.changes import begun
from queuey.storage.leasing.partition_book import PartitionBook

__all__ = ["BUSY", "GroupMeans", "GroupMemory", "Growth"]

FOLD_BYTES = 8 << 10
"""Fewer than elsewhere: servers that meet in one group read its changes again and again."""
_HOLE_BYTES = 80
_READS = 12
"""Attempts to read a group while it changes."""
_UNUSED_BYTES, _UNUSED_SHARE = 32 << 20, 2
"""Changes of partitions that this server does not use, and how many times those that it has read: beyond that a group is read
anew, without those that were folded."""
BUSY = "too many servers change this lease group at once: nothing was done, try again"


class Growth:
    """By how much the groups of one server have grown in memory since it has looked at each, approximately."""

    def __init__(self) -> None:
        self.bytes = 0

    def note(self, more: int) -> None:
        """One has these bytes more than before."""
        self.bytes += max(more, 0)


@dataclass(frozen=True)
class GroupMeans:
    """What all groups of one server share."""

    server: CassandraServer
    messages: CassandraMessages
    rows: LeaseRows
    carrier: Carrier
    work: GroupWork
    homes: LeaseHomes
    growth: Growth = field(default_factory=Growth)


class GroupMemory:
    """A group, and the messages that come next. One thread at a time uses it."""

    def __init__(self, means: GroupMeans, place: GroupPlace) -> None:
        self._means, self._place = means, place
        self._weak = WeakGroup(means.rows, place, means.server.observer.leases)
        self.holes = self.ahead_bytes = 0
        """As :meth:`measure` found them. Any thread may read them."""
        self.book = LeaseBook()
        self.ahead = GroupAhead(means.server, means.messages)
        self.forget()

    def forget(self) -> None:
        """Forget all of it, to read it again, but for the messages that come next."""
        for book in self.books.values():
            self.ahead.keep(book)
        self._anew: set[int] = set()
        """Partitions whose states are forgotten; the other ones are as they were stored."""
        self.is_known = False
        self.stored: StoredGroup | None = None
        """None if there is no such group."""
        self.book = LeaseBook(
            FOLD_BYTES,
            installed=self.ahead.installed,
            observer=self._means.server.observer.leases,
        )
        self._is_settled = False
        """A quorum of nodes has all of the version that is known."""
        self._unused_room = 0
        """Bytes of changes of partitions that are not in use, until the group is read anew."""
        self.has_new_parcels = False
        """The last :meth:`catch_up` has read which parcels wait."""

    def undo(self) -> None:
        """Forget what the last transaction has changed: it is not stored. :meth:`catch_up` reads that again."""
        for group in self.book.groups():
            for book in self.book.saved:
                number = book.place.number
                if group.partitions.get(number) is book:
                    self.ahead.keep(book)
                    self.book.forget_partition(group, number)
                    self._anew.add(number)

    def load(self) -> None:
        """Read the group.

        :raises StorageUnavailable: it changes all the time, some of it is damaged, or too few nodes answer.
        """
        for _ in range(_READS):
            self.stored = self._read()
            if self.stored is None or self.stored.head.version >= 0:
                self.is_known = True
                read = () if self.stored is None else self.stored.changes.values()
                self._unused_room = _UNUSED_BYTES + _UNUSED_SHARE * sum(map(_size_of, read))
                if self.weak is not None and self.stored is not None:
                    self.weak.load(self.stored, self._means.server.clock.now_ticks())
                return
        raise StorageUnavailable(BUSY)

    def _read(self) -> StoredGroup | None:
        rows, place = self._means.rows, self._place
        try:
            return awaited(start(rows.whole(place)))
        except StorageUnavailable:
            level = rows.session.to_read(Consistency.WEAK)
            head = awaited(start(rows.head(place, level=level)))
            if head is None or head.group.settings.exact:
                raise
            return awaited(start(rows.whole(place, serially=False, level=level)))  # a weak group needs one replica

    @property
    def weak(self) -> WeakGroup | None:
        """What belongs to a weak group; None if the group is not weak, or is not there."""
        return self._weak if self.stored is not None and not self.stored.head.group.settings.exact else None

    @property
    def books(self) -> Mapping[int, PartitionBook]:
        """The partitions that are in use."""
        return {number: book for group in self.book.groups() for number, book in group.partitions.items()}

    def look(self, *, follows: bool) -> Future[Lanes] | None:
        """Begin to look whether other servers have changed a weak group; None if it is not weak.

        :param follows: see :meth:`queuey.storage.cassandra.lease_weak.WeakGroup.look`.
        """
        return None if self.weak is None else self.weak.look(follows=follows)

    def doubt(self) -> None:
        """This server has changed the group beside. Any thread may call this."""
        self._weak.doubt()

    def learn(self, weak: WeakGroup, looking: Future[Lanes] | None) -> bool:
        """Learn what other servers have changed in a weak group.

        :param looking: see :meth:`look`.
        :returns: False if the group is to be read anew.
        """
        if self.stored is None or looking is None:
            return False
        (head, lanes), known = awaited(looking), self.stored.head
        weak.note_lanes(lanes)
        if head is None or head.group.token != known.group.token:
            return False
        if weak.was_away and head.version != known.version:
            return False
        if head.group.settings.fair != known.group.settings.fair:  # its states are to be read with the leases of keys
            return False
        if head.group != known.group:
            self.stored = self.stored._replace(head=head)
            self.book.replace_group(*self._place, head.group)
        weak.learn(self.stored, self.books)
        return True

    @property
    def head(self) -> GroupHead | None:
        return None if self.stored is None else self.stored.head

    def is_current(self) -> bool:
        """Whether this is what is stored now."""
        head, known = awaited(start(self._means.rows.head(self._place))), self.head
        if head is None or known is None:
            return head is known
        return _is_same(head, known)

    def catch_up(self) -> bool:
        """Learn what other servers have changed in an exact group. What is in memory is what was stored at a version.

        :returns: False if the group is to be read anew.
        :raises StorageUnavailable: as :meth:`load`; then it is to be read anew as well.
        """
        known = self.stored
        if known is None:
            return False
        news = awaited(start(self._means.rows.news(self._place, known.head, self._anew)))
        if news is None:
            return False
        head = news.head
        if head.version == known.head.version and not self._anew:
            return True
        settings = head.group.settings
        has_keys = settings.order == ORDER_BY_KEY or settings.fair
        if head.group != known.head.group or has_keys or any(book.state.skipped for book in self.books.values()):
            return False  # states of groups with keys have more in memory than the stored changes tell
        parcels: dict[Parcel, int] = {}
        self.has_new_parcels = head.newest > known.head.newest
        if self.has_new_parcels:
            parcels = awaited(start(self._means.rows.parcels(self._place, head)))
        self._learn(news, known)
        if self._unused_room < 0:
            return False
        self.stored = StoredGroup(head, known.changes, parcels)
        self._is_settled = self._is_settled and head.version == known.head.version
        return True

    def _learn(self, news: LaterChanges, known: StoredGroup) -> None:
        books = {number: (group, book) for group in self.book.groups() for number, book in group.partitions.items()}
        self._anew.clear()
        for number, rows in news.changes.items():
            are_all = number in news.replaced
            if number in books:
                with making_sense():
                    self._learn_rows(*books[number], rows, are_all=are_all)
            else:
                known.changes[number] = rows if are_all else [*known.changes.get(number, ()), *rows]
                self._unused_room -= _size_of(rows)

    def _learn_rows(
        self, group: GroupBook, book: PartitionBook, rows: Sequence[tuple[int, bytes]], *, are_all: bool
    ) -> None:
        if are_all:
            stored = self.book.changes(group.group.token, book.place.number)
            book.renew(stored.read(rows, begun(group.group)), stored)
        else:
            book.learn_rows(rows)

    def advance(self, head: GroupHead) -> None:
        """A transaction is stored that was made from this memory."""
        self._is_settled = True
        self.stored = StoredGroup(head, {} if self.stored is None else self.stored.changes, {})
        self.book.settled()

    def attempts(self, calls: Sequence[GroupCall]) -> dict[str, Rows] | None:
        """What is stored under the attempts of these calls. The group must be known before they are read.

        What was appended is stored by a quorum in a weak group as well, so a repeat of that finds it.

        :returns: None if the group has changed since it was read.
        """
        if self.stored is None or all(call.attempt is None for call in calls):
            return {}
        if self.weak is None and not self._settle():
            return None
        session = self._means.rows.session
        usual = ALL_CENTRES if self.weak is None else session.to_read(Consistency.WEAK)
        asked = {
            call.attempt: session.ask(
                "lease_attempt", (*self._place, call.attempt), ALL_CENTRES if call.requests else usual
            )
            for call in calls
            if call.attempt is not None
        }
        return {key: awaited(answer) for key, answer in asked.items()}

    def are_new(self, calls: Sequence[GroupCall]) -> bool:
        """Whether the group is as it was read, and nothing is stored under the attempts of these calls."""
        found = self.attempts(calls)
        return found is not None and not any(found.values())

    def _settle(self) -> bool:
        """See that a quorum of nodes has all of the version that is known: a serial read brings it there.

        :returns: False if it is not the last one any more.
        """
        if not self._is_settled:
            head, known = awaited(start(self._means.rows.head(self._place, serially=True))), self.head
            self._is_settled = head is not None and known is not None and _is_same(head, known)
        return self._is_settled

    def measure(self) -> None:
        """Count what is in memory."""
        groups, before = self.book.groups(), self.ahead_bytes + self.holes * _HOLE_BYTES
        self.holes = sum(group.holes for group in groups)
        self.ahead_bytes = sum(book.ahead_bytes for group in groups for book in group.partitions.values())
        self.ahead_bytes += self.ahead.kept_bytes
        self._means.growth.note(self.ahead_bytes + self.holes * _HOLE_BYTES - before)

    def next_head(self, made: LeaseGroup | None, step: StepName) -> GroupHead:
        """The head as a transaction leaves it.

        :param made: the group, if the transaction makes it.
        """
        if self.stored is not None:
            return self.stored.head.next(step)
        assert made is not None  # noqa: S101 - nothing is written without a group
        return GroupHead(made, 0, 0, b"").next(step)


def _size_of(rows: Sequence[tuple[int, bytes]]) -> int:
    return sum([len(data) for _, data in rows])


def _is_same(head: GroupHead, known: GroupHead) -> bool:
    return (head.version, head.group.token) == (known.version, known.group.token)
