"""One lease group in memory, as it was stored at a version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

from queuey.errors import StorageUnavailable
from queuey.future import start
from queuey.model import Consistency
from queuey.model.lease_groups import LeaseGroup
from queuey.storage.cassandra.lease_access import GroupCall
from queuey.storage.cassandra.lease_parcels import Carrier
from queuey.storage.cassandra.lease_rows import GroupHead, GroupPlace, LeaseRows, StoredGroup
from queuey.storage.cassandra.lease_weak import WeakGroup
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import ALL_CENTRES, Rows
from queuey.storage.leasing.book import LeaseBook, PartitionBook

__all__ = ["BUSY", "GroupMeans", "GroupMemory"]

FOLD_BYTES = 8 << 10
"""Fewer than elsewhere: servers that meet in one group read its changes again and again."""
AHEAD_SECONDS = 1.0
"""How long messages that were read ahead may be handed out: so long may one still be given that another server has
deleted."""
_READS = 12
"""Attempts to read a group while it changes."""
BUSY = "too many servers change this lease group at once: nothing was done, try again"


@dataclass(frozen=True)
class GroupMeans:
    """What all groups of one server share."""

    server: CassandraServer
    messages: CassandraMessages
    rows: LeaseRows
    carrier: Carrier
    threads: ThreadPoolExecutor


class GroupMemory:
    """A group, and the messages that come next. One thread at a time uses it."""

    def __init__(self, means: GroupMeans, place: GroupPlace) -> None:
        self._means, self._place = means, place
        self._weak = WeakGroup(means.rows, place, means.server.observer)
        self.holes = self.ahead_bytes = 0
        """As :meth:`measure` found them. Any thread may read them."""
        self.forget()

    def forget(self) -> None:
        """Forget all of it, to read it again."""
        self.is_known = False
        self.stored: StoredGroup | None = None
        """None if there is no such group."""
        self.book = LeaseBook(FOLD_BYTES)
        self._read_at: dict[int, float] = {}
        """By partition, when messages were read ahead."""
        self._began = 0.0

    def load(self) -> None:
        """Read the group.

        :raises StorageUnavailable: it changes all the time, some of it is damaged, or too few nodes answer.
        """
        for _ in range(_READS):
            self.stored = self._read()
            if self.stored is None or self.stored.head.version >= 0:
                self.is_known = True
                if self.weak is not None and self.stored is not None:
                    self.weak.load(self.stored)
                return
        raise StorageUnavailable(BUSY)

    def _read(self) -> StoredGroup | None:
        rows, place = self._means.rows, self._place
        try:
            return start(rows.whole(place)).wait()
        except StorageUnavailable:
            level = rows.session.to_read(Consistency.WEAK)
            head = start(rows.head(place, level=level)).wait()
            if head is None or head.group.settings.exact:
                raise
            return start(rows.whole(place, serially=False, level=level)).wait()  # a weak group needs one replica

    @property
    def weak(self) -> WeakGroup | None:
        """What belongs to a weak group; None if the group is not weak, or is not there."""
        return self._weak if self.stored is not None and not self.stored.head.group.settings.exact else None

    @property
    def books(self) -> Mapping[int, PartitionBook]:
        """The partitions that are in use."""
        return {number: book for group in self.book.groups() for number, book in group.partitions.items()}

    def learn(self, weak: WeakGroup) -> bool:
        """Learn what other servers have changed in a weak group.

        :returns: False if the group is to be read anew.
        """
        if self.stored is None or weak.is_outdated():
            return False
        head, known = weak.look(), self.stored.head
        if head is None or head.group.token != known.group.token:
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
        head, known = start(self._means.rows.head(self._place)).wait(), self.head
        if head is None or known is None:
            return head is known
        return (head.version, head.group.token) == (known.version, known.group.token)

    def advance(self, head: GroupHead) -> None:
        """A transaction is stored that was made from this memory."""
        self.stored = StoredGroup(head, {} if self.stored is None else self.stored.changes, {})
        self.book.settled()

    def attempts(self, calls: Sequence[GroupCall]) -> dict[str, Rows]:
        """What is stored under the attempts of these calls. The group must be known before they are read."""
        if self.stored is None:
            return {}
        session = self._means.rows.session
        level = ALL_CENTRES if self.weak is None else session.to_read(Consistency.WEAK)
        asked = {
            call.attempt: session.ask("lease_attempt", (*self._place, call.attempt), level)
            for call in calls
            if call.attempt is not None
        }
        return {key: answer.wait() for key, answer in asked.items()}

    def prepare(self) -> None:
        """Let messages be read again that are readable by now, or may have changed."""
        changed, self._began = self._means.server.changed, perf_counter()
        for group in self.book.groups():
            for number, book in group.partitions.items():
                book.next_unread = 0
                read = self._read_at.get(number)
                if read is not None and (self._began - read > AHEAD_SECONDS or changed.since(book.place, read)):
                    book.forget_ahead()
                    del self._read_at[number]

    def note_read(self) -> None:
        """Note when messages were read that lie ahead now."""
        for group in self.book.groups():
            for number, book in group.partitions.items():
                if len(book.ahead):
                    self._read_at.setdefault(number, self._began)
                else:
                    self._read_at.pop(number, None)

    def measure(self) -> None:
        """Count what is in memory."""
        groups = self.book.groups()
        self.holes = sum(group.holes for group in groups)
        self.ahead_bytes = sum(book.ahead_bytes for group in groups for book in group.partitions.values())

    def next_head(self, made: LeaseGroup | None, step: bytes) -> GroupHead:
        """The head as a transaction leaves it.

        :param made: the group, if the transaction makes it.
        """
        if self.stored is not None:
            return self.stored.head.next(step)
        assert made is not None  # noqa: S101 - nothing is written without a group
        return GroupHead(made, 0, 0, b"").next(step)
