"""Lease groups in memory: the state of each in each partition, and the messages that come next.

What is here is on disk, or will be with the transaction that is under way. So a store may forget all of it at any time,
and reads it again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from uuid import UUID
from weakref import proxy

from queuey.model import PartitionId
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_state import LeaseState
from queuey.storage.checksums import making_sense
from queuey.storage.leasing.access import LeaseAccess, partition_key
from queuey.storage.leasing.changes import StoredChanges, begun
from queuey.storage.leasing.partition_book import PartitionBook
from queuey.storage.observing import LeaseObserver, UnobservedLeases

__all__ = ["MOST_AHEAD_BYTES", "MOST_GROUPS", "MOST_HOLES", "GroupBook", "LeaseBook"]

MOST_GROUPS = 10_000
"""Groups in memory."""
MOST_HOLES = 3_000_000
"""Holes of all groups in memory; about 80 bytes each."""
MOST_AHEAD_BYTES = 64 << 20
"""Bytes of all messages that were read and are not handed out yet."""
FOLD_BYTES = 48 << 10
"""Changes of fewer bytes are never folded."""


class GroupBook:
    """One group in memory."""

    __slots__ = ("group", "name", "partitions", "rules")

    def __init__(self, name: str, group: LeaseGroup) -> None:
        self.name = name
        self.take(group)
        self.partitions: dict[int, PartitionBook] = {}

    def take(self, group: LeaseGroup) -> None:
        """Go by these settings from now on."""
        self.group = group
        self.rules = group.settings.rules

    @property
    def holes(self) -> int:
        return sum(len(book.state.holes) for book in self.partitions.values())


GroupName = tuple[int, str]
"""A queue's incarnation as a number, which is found faster than the UUID, and the name of the group."""


class LeaseBook:
    """The groups of one store that were used lately. Only one thread at a time uses it."""

    def __init__(
        self,
        fold_bytes: int | None = None,
        *,
        in_portions: bool = False,
        installed: Callable[[PartitionBook], None] = lambda _: None,
        observer: LeaseObserver | None = None,
    ) -> None:
        """:param fold_bytes: changes of fewer bytes are never folded; None for :data:`FOLD_BYTES`.
        :param in_portions: delete what is folded over several transactions.
        :param installed: hears of each state that was read.
        """
        self.observer = observer or UnobservedLeases()
        self._installed = installed
        self._fold_bytes, self._in_portions = fold_bytes, in_portions
        self._groups: OrderedDict[GroupName, GroupBook] = OrderedDict()
        """The one that was used last comes last."""
        self.watched: dict[bytes, list[PartitionBook]] = {}
        """By :func:`partition_key`."""
        self._ahead: OrderedDict[int, tuple[PartitionBook, int]] = OrderedDict()
        """Partitions with messages that were read, and their bytes; the one that was read last comes last."""
        self._ahead_bytes = 0
        self._holes = 0
        """Of all groups, as they were last saved."""
        self.unsaved: list[PartitionBook] = []
        """Partitions whose state has changed since :meth:`save`."""
        self.saved: Sequence[PartitionBook] = ()
        """Those of the last :meth:`save`."""
        self._touched: set[GroupName] = set()
        self._new: list[PartitionBook] = []
        """What the transaction has read."""

    def group(self, access: LeaseAccess, queue: UUID, name: str, new: LeaseGroup | None) -> GroupBook | None:
        """A group, which is made if there is none; None if none is to be made."""
        key = (queue.int, name)
        self._touched.add(key)
        known = self._groups.get(key)
        if known is not None:
            self._groups.move_to_end(key)
            return known
        found = access.group(queue, name)
        if found is None:
            if new is None:
                return None
            access.make_group(queue, name, new)
        known = self._groups[key] = GroupBook(name, found or new)  # type: ignore[arg-type]  # one of them is there
        return known

    def partition(self, access: LeaseAccess, group: GroupBook, place: PartitionId) -> PartitionBook:
        """The state of a group in a partition."""
        known = group.partitions.get(place.number)
        if known is None:
            stored = self.changes(group.group.token, place.number)
            with making_sense():
                state = stored.read(access.changes(group.group.token, place.number), begun(group.group))
            known = self.install(group, place, state, stored)
        return known

    def changes(self, token: int, partition: int) -> StoredChanges:
        """Stored changes that are to be read."""
        fold_bytes = FOLD_BYTES if self._fold_bytes is None else self._fold_bytes
        return StoredChanges(token, partition, fold_bytes, in_portions=self._in_portions)

    def install(self, group: GroupBook, place: PartitionId, state: LeaseState, stored: StoredChanges) -> PartitionBook:
        """Take in a state that was read. Its changes must be all that are stored now."""
        known = group.partitions[place.number] = PartitionBook(proxy(self), place, group.name, state, stored)
        self.watched.setdefault(partition_key(place), []).append(known)
        self._count(known)
        self._installed(known)
        self._new.append(known)
        return known

    def known(self, queue: UUID, name: str) -> GroupBook | None:
        """A group if it is in memory."""
        return self._groups.get((queue.int, name))

    def groups(self) -> Sequence[GroupBook]:
        """The groups in memory."""
        return [*self._groups.values()]

    def save(self, access: LeaseAccess) -> None:
        """Store what was changed since the last call: one row for each partition, whatever the number of steps."""
        self.saved, self.unsaved = self.unsaved, []
        size = 0
        for book in self.saved:
            size += book.save(access)
            self._count(book)
        if size:
            self.observer.wrote_state(size)

    def _count(self, book: PartitionBook) -> None:
        holes = len(book.state.holes)
        self._holes += holes - book.counted
        book.counted = holes

    def keep_ahead(self, book: PartitionBook) -> None:
        """Note how much of a partition was read; forget what others read before, down to the bound."""
        _, size = self._ahead.pop(id(book), (None, 0))
        self._ahead_bytes += book.ahead_bytes - size
        if book.ahead_bytes:
            self._ahead[id(book)] = (book, book.ahead_bytes)
        while self._ahead_bytes > MOST_AHEAD_BYTES and len(self._ahead) > 1:
            _, (other, size) = self._ahead.popitem(last=False)
            other.forget_ahead()
            self._ahead_bytes -= size

    # What happens beside

    def grew(self, keys: Iterable[bytes]) -> None:
        """Messages were appended to these partitions."""
        for book in self._books(keys):
            book.next_unread = 0

    def changed(self, keys: Iterable[bytes]) -> None:
        """Messages of these partitions were deleted or overwritten."""
        for book in self._books(keys):
            book.forget_ahead()

    def _books(self, keys: Iterable[bytes]) -> Iterator[PartitionBook]:
        for key in keys:
            yield from self.watched.get(key, ())

    def settled(self, *, with_messages: bool = False) -> None:
        """The transaction is on disk. Forget what was not used longest, down to the bounds.

        :param with_messages: the same transaction may have appended or removed messages. A state that it has read looks
            ahead anew: it looked at the messages before the transaction, and nobody watched the partition until then.
        """
        self._touched.clear()
        for book in self._new if with_messages else ():
            book.forget_ahead()
        self._new.clear()
        while len(self._groups) > MOST_GROUPS or (self._holes > MOST_HOLES and len(self._groups) > 1):
            self._forget(next(iter(self._groups)))

    def undone(self) -> None:
        """The transaction is not on disk, or may not be: forget the groups that it used."""
        self.unsaved.clear()
        self._new.clear()
        for key in self._touched:
            self._forget(key)
        self._touched.clear()

    def replace_group(self, queue: UUID, name: str, group: LeaseGroup) -> None:
        """A group's settings changed, or will with the transaction. What it has changed must be saved.

        If its fairness changes, its states are read again.
        """
        key = (queue.int, name)
        known = self._groups.get(key)
        if known is not None and known.group.token != group.token:
            self._forget(key)
        elif known is not None and known.group.settings.fair != group.settings.fair:
            self._forget(key)  # a state that counts keys is read as such: it may be large
            self._touched.add(key)
        elif known is not None:
            known.take(group)
            self._touched.add(key)

    def forget_group(self, queue: UUID, name: str) -> None:
        """A group is no more, or will be no more with the transaction."""
        self._forget((queue.int, name))

    def forget_queue(self, queue: UUID) -> None:
        """A queue's incarnation was dropped."""
        for key in [key for key in self._groups if key[0] == queue.int]:
            self._forget(key)

    def forget_partition(self, group: GroupBook, number: int) -> None:
        """Forget the state of a group in a partition, and what of it is not saved."""
        book = group.partitions.pop(number)
        book.forget_ahead()
        self.unsaved = [one for one in self.unsaved if one is not book]
        watching = self.watched[partition_key(book.place)]
        watching.remove(book)
        if not watching:
            del self.watched[partition_key(book.place)]
        self._ahead_bytes -= self._ahead.pop(id(book), (None, 0))[1]
        self._holes -= book.counted

    def _forget(self, key: GroupName) -> None:
        group = self._groups.pop(key, None)
        if group is not None:
            for number in [*group.partitions]:
                self.forget_partition(group, number)
