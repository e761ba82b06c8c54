"""Counters of partitions in memory, kept by the commits of an embedded store (docs/decisions/023).

A counter has what a partition *stores*: its rows and what its packs hold, expired or not. So only a commit changes it,
and time does not. Nothing is written to disk for it. What has expired and is not purged yet is subtracted when somebody
asks (:mod:`queuey.storage.sqlite.inspecting`).

Only partitions that somebody asked for have a counter. The committer gathers the changes of its group in a
:class:`GroupChanges`, and adds them to the counters once the group is on disk.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from queuey.locks import new_lock

__all__ = [
    "MOST_COUNTERS",
    "NOTHING",
    "ROW_COLUMNS",
    "CounterReading",
    "Counters",
    "GroupChanges",
    "JoinedCounter",
    "PartitionCounter",
    "Totals",
]

MOST_COUNTERS = 10_000
"""Partitions with a counter; about 500 bytes each. The one that was not asked for longest loses its counter first."""
ROW_COLUMNS = 9
"""Values of one row of messages."""
_KEY_AT, _BODY_AT = 0, 7
"""Where the counted ones stand in a row."""


class Totals(NamedTuple):
    """Messages, and the bytes of their bodies."""

    messages: int
    size: int

    def plus(self, other: Totals) -> Totals:
        return Totals(self.messages + other.messages, self.size + other.size)

    def minus(self, other: Totals) -> Totals:
        return Totals(self.messages - other.messages, self.size - other.size)


NOTHING = Totals(0, 0)


class PartitionCounter:
    """What one partition stores: what it stored when the counter began, and what commits have changed since."""

    __slots__ = ("base", "since")

    def __init__(self) -> None:
        self.base: Totals | None = None
        """Set once, by the thread that counts. None while it counts."""
        self.since = NOTHING
        """Replaced by the committer's thread alone."""


class CounterReading(NamedTuple):
    """A counter as a reader met it."""

    counter: PartitionCounter
    since: Totals
    is_settled: bool
    """No group that changed the partition was under way after ``since`` was taken."""


class JoinedCounter(NamedTuple):
    """A counter between two commits."""

    counter: PartitionCounter
    since: Totals
    is_new: bool
    """The caller counts its base."""

    @property
    def totals(self) -> Totals | None:
        """What the partition stored then; None while its base is not counted."""
        base = self.counter.base
        return None if base is None else base.plus(self.since)


class GroupChanges:
    """What one group of the committer changes in partitions that have a counter, or that lease groups watch."""

    __slots__ = ("_counted", "_watched", "changed", "changes", "grown", "is_counting")

    def __init__(self, counted: Mapping[bytes, PartitionCounter], watched: Collection[bytes] = ()) -> None:
        self._counted = counted
        self._watched = watched
        self.is_counting = bool(counted) or bool(watched)
        """False if there are none of these: then nothing needs to be gathered."""
        self.changes: dict[bytes, Totals] = {}
        self.grown: set[bytes] = set()
        """Watched partitions that got messages."""
        self.changed: set[bytes] = set()
        """Watched partitions of which messages were deleted or overwritten."""

    def has(self, partition_key: bytes) -> bool:
        """Whether a partition has a counter."""
        return partition_key in self._counted

    def add(self, partition_key: bytes, messages: int, size: int) -> None:
        """:param messages: stored by the group; less than 0 if it deleted them."""
        if partition_key in self._watched:
            self.grown.add(partition_key)
        if partition_key in self._counted:
            known = self.changes.get(partition_key, NOTHING)
            self.changes[partition_key] = Totals(known.messages + messages, known.size + size)

    def note_change(self, partition_key: bytes) -> None:
        """Messages are deleted or overwritten by id."""
        if partition_key in self._watched:
            self.changed.add(partition_key)

    def so_far(self) -> Mapping[bytes, Totals]:
        """What was noted so far, for :meth:`restore`."""
        return dict(self.changes) if self.is_counting else {}

    def restore(self, changes: Mapping[bytes, Totals]) -> None:
        """Undo what was noted since, as the file undoes it.

        The partitions stay among the changed ones.
        """
        for partition_key in self.changes:
            self.changes[partition_key] = changes.get(partition_key, NOTHING)

    def add_rows(self, values: Sequence[Any]) -> None:
        """:param values: of rows that are about to be inserted, one row after the other."""
        keys = values[_KEY_AT::ROW_COLUMNS]
        if self._watched:
            self.grown.update([key for key in keys if key in self._watched])
        if not self._counted.keys().isdisjoint(keys):
            for partition_key, body in zip(keys, values[_BODY_AT::ROW_COLUMNS], strict=True):
                self.add(partition_key, 1, len(body))


class Counters:
    """The counters of one store.

    Only the committer's thread makes counters and changes what they count. Any thread reads them.
    """

    def __init__(self, most: int = MOST_COUNTERS) -> None:
        self._most = most
        self._counters: OrderedDict[bytes, PartitionCounter] = OrderedDict()
        self._pending: Mapping[bytes, Totals] = {}
        """Changes of the group under way: its partitions are not settled."""
        self._lock = new_lock()
        """Guards the order of the counters. The committer looks one up without it, as no order matters there."""

    def __len__(self) -> int:
        return len(self._counters)

    # In the committer's thread

    def begin_group(self, watched: Collection[bytes] = ()) -> GroupChanges:
        """Gather what a group changes.

        A partition counts as under way from its first change in the group on.

        :param watched: partitions that lease groups watch.
        """
        group = GroupChanges(self._counters, watched)
        self._pending = group.changes
        return group

    def keep(self, group: GroupChanges) -> None:
        """Count what a group changed: it is on disk."""
        for partition_key, change in group.changes.items():
            counter = self._counters.get(partition_key)
            if counter is not None:
                counter.since = counter.since.plus(change)

    def end_group(self) -> None:
        """The group's changes are kept, or it was not committed."""
        self._pending = {}

    def forget_all(self) -> None:
        """Forget all counters: nobody knows what is stored."""
        with self._lock:
            self._counters.clear()

    def forget_queue(self, queue: bytes) -> None:
        """Forget the counters of a dropped incarnation."""
        with self._lock:
            for number in range(256):
                self._counters.pop(queue + number.to_bytes(1, "big"), None)

    def join(self, partition_keys: Iterable[bytes]) -> dict[bytes, JoinedCounter]:
        """The counters of these partitions at this moment, between two groups.

        A partition without a counter gets one.
        """
        found = {}
        with self._lock:
            for partition_key in partition_keys:
                counter = self._counters.get(partition_key)
                is_new = counter is None
                if counter is None:
                    counter = self._counters[partition_key] = PartitionCounter()
                found[partition_key] = JoinedCounter(counter, counter.since, is_new)
                self._counters.move_to_end(partition_key)
            while len(self._counters) > self._most:
                self._counters.popitem(last=False)
        return found

    # In any thread

    def seen(self, partition_key: bytes) -> CounterReading | None:
        """The counter of a partition, if it has one. See :meth:`settled`."""
        with self._lock:
            counter = self._counters.get(partition_key)
            if counter is None:
                return None
            self._counters.move_to_end(partition_key)
        since = counter.since
        return CounterReading(counter, since, is_settled=partition_key not in self._pending)

    def settled(self, partition_key: bytes, seen: CounterReading) -> Totals | None:
        """What a partition stores, from the moment it was seen until now.

        :returns: None if a group that changes it was under way then or is now, or has ended since, or its base is not
            counted.
        """
        counter, since, was_settled = seen
        if counter.base is None or not was_settled or partition_key in self._pending:
            return None
        is_same = self._counters.get(partition_key) is counter and counter.since is since
        return counter.base.plus(since) if is_same else None

    def forget(self, partition_key: bytes, counter: PartitionCounter) -> None:
        """Forget a counter whose base could not be counted."""
        with self._lock:
            if self._counters.get(partition_key) is counter:
                del self._counters[partition_key]
