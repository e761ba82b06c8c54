"""Weak lease groups: each server stores its own changes, and learns of those of others a moment later.

The group's rows have what all servers had agreed on when the changes were folded last. Behind it, each server has a lane
of rows that it alone writes, to one replica. What a server knows is that base and the lanes, merged by
:mod:`queuey.model.lease_merging`. docs/decisions/027.
"""

from __future__ import annotations

import secrets
import struct
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import inf
from time import perf_counter
from typing import Any, NamedTuple

from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.future import Future, start
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import Consistency, Location, Message, Page, Queue, ReadRequest
from queuey.model.lease_codec import decode_changes, encode_change
from queuey.model.lease_groups import AUTO, LeaseGroup
from queuey.model.lease_merging import LearnedChange, Merger, since_each
from queuey.model.lease_state import Change, LeaseState, changes_of, state_of
from queuey.model.lease_steps import LeaseOutcome
from queuey.storage.cassandra.lease_access import GroupAccess, GroupCall
from queuey.storage.cassandra.lease_heads import GroupHead, GroupPlace, Parcel
from queuey.storage.cassandra.lease_rows import LeaseRows, StoredGroup, checksum_of_change
from queuey.storage.cassandra.lease_shares import ACTIVE_SECONDS, SharedPicking
from queuey.storage.cassandra.lease_work import awaited
from queuey.storage.cassandra.session import Change as Statement
from queuey.storage.cassandra.session import Rows
from queuey.storage.checksums import making_sense
from queuey.storage.leasing.book import GroupBook
from queuey.storage.leasing.changes import FoldRoom
from queuey.storage.leasing.partition_book import PartitionBook
from queuey.storage.observing import LeaseObserver

__all__ = ["Lanes", "WeakAccess", "WeakGroup"]

_KNOWN_SECONDS = 2.0
"""A server that has not looked for longer may miss rows that were folded meanwhile."""
_FOLDED_TICKS = 5 * TICKS_PER_SECOND
"""Rows of the last seconds are not folded, so that each server in use sees them."""
_ACTIVE_TICKS = round(ACTIVE_SECONDS * TICKS_PER_SECOND)
_SILENT_TICKS = 3600 * TICKS_PER_SECOND
"""A lane that has been silent for longer is forgotten, once its rows are folded."""
_ALONE_SECONDS = 0.02
"""How long a look counts for calls that follow upon others, while no other server uses the group."""
_MOST_LEFT = 64
"""Rows, and silent lanes, that servers may leave unfolded: one that reads more folds them. Each server that is new to a group
adds some, and may be gone before it has changed so much that it folds them itself."""
_ROWS = 500
_LATER = 256
"""Changes of a partition that is not in use, before they are merged."""
_PART = struct.Struct("<BqqI")
"""Of the changes in a partition: its number, the frontier from which they move on, and their bytes."""
_LANE_BITS = 31
_PART_BITS = 16


Lanes = tuple[GroupHead | None, Mapping[int, int]]
"""What the rows of a group have in common, None if there is no such group; and by lane, the moment of its last row."""


class _Row(NamedTuple):
    """What one server has changed in one transaction."""

    moment: int
    lane: int
    parts: Sequence[tuple[int, MessageId, bytes]]


class WeakGroup:
    """What one server knows of a weak group, beside its state. One thread at a time uses it.

    It outlives the state in memory.
    """

    def __init__(self, rows: LeaseRows, place: GroupPlace, observer: LeaseObserver) -> None:
        self._rows, self._session, self._place, self._observer = rows, rows.session, place, observer
        self._reads = rows.session.to_read(Consistency.WEAK)
        self.lane = secrets.randbits(_LANE_BITS)
        self._token: int | None = None
        """Of the life of the group that this is about."""
        self._seen: dict[int, int] = {}
        """By lane of another server, the moment of the last row that was seen."""
        self._mergers: defaultdict[int, Merger] = defaultdict(Merger)
        self._later: defaultdict[int, list[LearnedChange]] = defaultdict(list)
        """By partition that is not in use, what is to be merged into it."""
        self._frontiers: dict[int, MessageId] = {}
        self._lanes: Mapping[int, int] = {}
        """By lane, the moment of its last row."""
        self._looked = self._met = -inf
        """When this server looked last, and when it last found that others had changed something."""
        self.was_away = False
        """Rows may have been folded that were not seen before the last look."""
        self._last: Future[Lanes] | None = None
        """What the last look finds."""
        self.picking = SharedPicking(self.lane)
        self._is_announced = False
        self.is_due = False
        """The lanes are to be folded."""

    # Reading

    def load(self, stored: StoredGroup, now: int) -> None:
        """Read all lanes of a group that was just read.

        :param now: this moment on the wall clock, in ticks.
        """
        self._begin_life(stored.head.group.token)
        self._announce(now)
        self.picking.now = perf_counter()
        self._later.clear()
        self._frontiers.clear()
        _, self._lanes = awaited(self.look())
        if any(abs(last) > now - _ACTIVE_TICKS for lane, last in self._lanes.items() if lane != self.lane):
            self._met = self.picking.now
        self._note_comers(now - _ACTIVE_TICKS)
        for merger in self._mergers.values():
            merger.forget_waiting()
        bases = [number for changes in stored.changes.values() for number, _ in changes]
        folded = max(bases, default=0) - _FOLDED_TICKS
        self._seen = {lane: last if 0 < last < folded else 0 for lane, last in self._lanes.items()}
        rows = sorted(self._new_rows([lane for lane, seen in self._seen.items() if not seen], stored.head.group.token))
        old = sum(row.moment < now - _FOLDED_TICKS for row in rows)
        silent = sum(abs(last) < now - _SILENT_TICKS for last in self._lanes.values())
        self.is_due = self.is_due or old + silent > _MOST_LEFT
        for row in rows:
            if row.moment >= folded:  # else a node that was away for long has it still
                for partition, since, data in row.parts:
                    for learned in since_each(since, [*decode_changes(data)], is_after=row.lane > self.lane):
                        self._note_active(row.lane, partition, learned.change)
                        self._later[partition].append(learned)

    def _begin_life(self, token: int) -> None:
        """What was settled in another life of the group says nothing of this one, and others may not know this server."""
        if token != self._token:
            self._token, self._is_announced = token, False
            self._mergers.clear()

    @property
    def is_alone(self) -> bool:
        """Whether no other server has changed anything in the last seconds, nor this one beside its calls.

        Then there is nothing to see for calls that came after the last look.
        """
        return self._last is not None and self._looked - self._met > ACTIVE_SECONDS

    def look(self, *, follows: bool = False) -> Future[Lanes]:
        """Begin to see which lanes have new rows.

        :param follows: upon calls of this server without a pause. While no other server uses the group, the last look
            counts for them as well.
        """
        now, last = perf_counter(), self._last
        if follows and self.is_alone and last is not None and now - self._looked < _ALONE_SECONDS:
            return last
        self.was_away, self._looked = now - self._looked > _KNOWN_SECONDS, now
        self._last = found = start(self._rows.lanes(self._place, self._reads))
        return found

    def doubt(self) -> None:
        """Something was changed beside: the last look counts for no other call. Any thread may call this."""
        self._last = None

    def note_lanes(self, lanes: Mapping[int, int]) -> None:
        """Note what :meth:`look` has found."""
        self.picking.now = perf_counter()
        if any(self._lanes.get(lane) != last for lane, last in lanes.items() if lane != self.lane):
            self._met = self.picking.now
        self._lanes = lanes
        self._note_comers(0)

    def _announce(self, now: int) -> None:
        """Let others know of this server before it hands out its first message, so that they share with it."""
        if not self._is_announced:
            self._is_announced = True
            with suppress(StorageUnavailable, OutcomeUnknown):
                level = self._session.to_write(Consistency.WEAK)
                awaited(self._session.tell("lease_lane_note", (*self._place, self.lane, -now), level))

    def _note_comers(self, since: int) -> None:
        """Note servers that have come since a moment, and not handed out anything yet."""
        for lane, last in self._lanes.items():
            if last < -since and lane not in self._seen and lane != self.lane:
                self._seen[lane] = 0
                self.picking.comes(lane)

    def learn(self, stored: StoredGroup, books: Mapping[int, PartitionBook]) -> None:
        """Learn what other servers have changed.

        :raises StorageUnavailable: no replica answers, or a row is damaged.
        """
        lanes = [lane for lane, last in self._lanes.items() if last > self._seen.get(lane, 0) and lane != self.lane]
        for row in sorted(self._new_rows(lanes, stored.head.group.token)):
            for partition, since, data in row.parts:
                for learned in since_each(since, [*decode_changes(data)], is_after=row.lane > self.lane):
                    self._note_active(row.lane, partition, learned.change)
                    self._learned(partition, learned, books.get(partition), stored)

    def _note_duplicates(self, partition: int, duplicates: int) -> None:
        if duplicates:
            self._observer.handed_twice(duplicates)
            self.picking.spread(partition).note(duplicates=duplicates)

    def _note_active(self, lane: int, partition: int, change: Change) -> None:
        if change.fresh or change.holes:
            self.picking.hands_out(lane, partition)

    def _learned(self, partition: int, learned: LearnedChange, book: PartitionBook | None, stored: StoredGroup) -> None:
        if book is None:
            waiting = self._later[partition]
            waiting.append(learned)
            if len(waiting) > _LATER:
                stored.changes[partition] = self.changes(partition, stored)
        else:
            self._note_duplicates(partition, self._mergers[partition].learn(book.state, learned, book.learn))

    def _new_rows(self, lanes: Sequence[int], token: int) -> Iterator[_Row]:
        def ask(lane: int) -> Future[Rows]:
            return self._session.ask("lease_lane", (*self._place, lane, self._seen.get(lane, 0), _ROWS), self._reads)

        asked = {lane: ask(lane) for lane in lanes}
        for lane in lanes:
            rows = awaited(asked[lane])
            while rows:
                for number, life, checksum, data in rows:
                    if life == token:
                        with making_sense():
                            if checksum != checksum_of_change(token, lane, number, data):
                                raise ValueError("a row of a weak lease group does not match its checksum")
                            yield _Row(number, lane, [*_decoded(data)])
                self._seen[lane] = rows[-1][0]
                rows = awaited(ask(lane)) if len(rows) == _ROWS else ()

    def changes(self, partition: int, stored: StoredGroup) -> list[tuple[int, bytes]]:
        """The state of a partition that comes into use, as changes."""
        changes = chain.from_iterable(decode_changes(data) for _, data in stored.changes.pop(partition, ()))
        with making_sense():
            state = _state(changes, stored.head.group)
        merger = self._mergers[partition]
        for learned in self._later.pop(partition, ()):
            self._note_duplicates(partition, merger.learn(state, learned, state.take))
        self._frontiers[partition] = state.frontier
        return [*enumerate(encode_change(change) for change in changes_of(state))]

    # Writing

    def begin(self, books: Mapping[int, PartitionBook]) -> None:
        """A transaction begins."""
        for partition, book in books.items():
            self._note_duplicates(partition, self._mergers[partition].retry(book.state, book.learn))
            self._frontiers[partition] = book.state.frontier

    def frontier(self, partition: int) -> MessageId:
        """Of a partition, when the transaction began."""
        return self._frontiers[partition]

    def rows(self, token: int, moment: int, parts: Sequence[tuple[int, bytes]]) -> list[Statement]:
        """What a transaction stores in this server's lane."""
        data = b"".join(
            _PART.pack(partition, *self._frontiers[partition], len(change)) + change for partition, change in parts
        )
        checksum = checksum_of_change(token, self.lane, moment, data)
        row = (*self._place, self.lane, moment, token, checksum, data)
        return [("lease_lane_keep", row), ("lease_lane_note", (*self._place, self.lane, moment))]

    def stored(self, group: LeaseGroup, parts: Sequence[tuple[int, bytes]], calls: Sequence[GroupCall]) -> None:
        """A transaction is stored."""
        for partition, data in parts:
            self._mergers[partition].made(data)
        if group.settings.k == AUTO:
            handed: defaultdict[int, int] = defaultdict(int)
            for call in calls:
                if isinstance(call.result, LeaseOutcome) and not call.result.repeated:
                    for part in call.result.handed.parts:
                        handed[part.partition] += len(part.messages)
            for partition, number in handed.items():
                self._observer.picked_among(self.picking.k(partition))
                self.picking.spread(partition).note(handed=number)
        self.picking.stored(perf_counter())

    def folded(
        self, group: GroupBook, stored: StoredGroup, moment: int
    ) -> tuple[list[Statement], dict[int, list[tuple[int, bytes]]]]:
        """What folds the lanes into a base, and the changes of partitions that are not in use as they are then."""
        parts = {partition: [(0, change) for change in book.folded()] for partition, book in group.partitions.items()}
        unused = {partition: self.changes(partition, stored) for partition in {*stored.changes, *self._later}}
        token = stored.head.group.token
        statements: list[Statement] = []
        for partition, changes in chain(parts.items(), unused.items()):
            statements.append(("lease_changes_fold", (*self._place, partition, moment)))
            for number, (_, data) in enumerate(changes, moment):
                checksum = checksum_of_change(token, partition, number, data)
                values = (*self._place, partition, number, token, number == moment, checksum, data)
                statements.append(("lease_change_keep", values))
        for lane, last in self._lanes.items():
            statements.append(("lease_lane_fold", (*self._place, lane, moment - _FOLDED_TICKS)))
            if abs(last) < moment - _SILENT_TICKS:
                statements.append(("lease_lane_end", (*self._place, lane)))
        return statements, unused


class WeakAccess(GroupAccess):
    """One transaction of a weak group."""

    def __init__(self, weak: WeakGroup, *what: Any) -> None:
        """:param what: as :class:`~queuey.storage.cassandra.lease_access.GroupAccess` is made."""
        super().__init__(*what)
        self._weak = weak
        self.picking = weak.picking
        self.folding = FoldRoom(sys.maxsize, 0)  # the lanes are folded in a transaction of their own

    @property
    def parts(self) -> list[tuple[int, bytes]]:
        """What was changed, by partition."""
        return [(partition, data) for (partition, _), (data, _) in self._changes.items()]

    def changes(self, token: int, partition: int) -> Sequence[tuple[int, bytes]]:
        assert self._stored is not None  # noqa: S101 - a weak group that is not stored begins as others do
        return self._weak.changes(partition, self._stored)

    def fold(self, token: int, partition: int, first: int, changes: Sequence[bytes]) -> None:
        self._weak.is_due = True

    def parcels(self, head: GroupHead) -> list[tuple[Parcel, GroupCall]]:
        lane = self._weak.lane >> _PART_BITS << _PART_BITS  # so that no other server gives the same name
        return [(Parcel(head.moment, lane | part), call) for part, call in enumerate(self._parcels)]

    def read(self, request: ReadRequest) -> Page:
        """If too few replicas answer, those that do have to do, for a queue that is weak as well."""
        try:
            return super().read(request)
        except StorageUnavailable:
            if self._call is None or self._call.consistency is not Consistency.WEAK:
                raise
            page = self._messages.page(request, now_ticks=self.now_ticks, consistency=Consistency.WEAK)
            return awaited(start(page))

    def fetch(self, queue: Queue, wanted: Sequence[Location]) -> Sequence[Message | None]:
        """As :meth:`read`."""
        try:
            return super().fetch(queue, wanted)
        except StorageUnavailable:
            if queue.consistency is not Consistency.WEAK:
                raise
            return awaited(start(self._messages.found(queue, wanted, self.now_ticks)))


def _state(changes: Iterable[Change], group: LeaseGroup) -> LeaseState:
    found = [*changes]
    return state_of(found) if found else LeaseState(group.start)


def _decoded(data: bytes) -> Iterator[tuple[int, MessageId, bytes]]:
    """:raises ValueError: the bytes are damaged."""
    at = 0
    try:
        while at < len(data):
            partition, ticks, tail, size = _PART.unpack_from(data, at)
            at += _PART.size
            yield partition, MessageId(ticks, tail), data[at : at + size]
            at += size
    except struct.error as error:
        raise ValueError(f"not a row of a weak lease group: {error}") from error
