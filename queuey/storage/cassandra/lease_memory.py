"""One lease group in memory, as it was stored at a version."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

from queuey.errors import StorageUnavailable
from queuey.future import start
from queuey.model.lease_groups import LeaseGroup
from queuey.storage.cassandra.lease_access import GroupCall
from queuey.storage.cassandra.lease_parcels import Carrier
from queuey.storage.cassandra.lease_rows import GroupHead, GroupPlace, LeaseRows, StoredGroup
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import ALL_CENTRES, Rows
from queuey.storage.leasing.book import LeaseBook

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
            self.stored = start(self._means.rows.whole(self._place)).wait()
            if self.stored is None or self.stored.head.version >= 0:
                self.is_known = True
                return
        raise StorageUnavailable(BUSY)

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
        asked = {
            call.attempt: self._means.rows.session.ask("lease_attempt", (*self._place, call.attempt), ALL_CENTRES)
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
