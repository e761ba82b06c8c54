"""The rows of lease groups in Cassandra.

All of a group is one Cassandra partition: what it has in common in static columns, the changes of its states, the
answers to attempts, and parcels of messages that are to be appended. Each change is one lightweight transaction there.
It requires the version that was read, and writes the next one. The names of the last steps stand beside the version, so
a server whose answer got lost finds out whether its step was made, also after others.

The number of a row begins with the version that brought it, and the name of a step tells how many rows it has. So a
server that knows a version reads only the rows of later ones, and notices if a row is missing: a read of a quorum may
see of the last transaction what one replica has.

Nearly all rows are deleted again, and until the nodes write their memory to disk each read steps over them. So no read
begins before the rows that it is about. A lightweight transaction on what rows have in common reads the first row; that
is a mark which stays while the group lives.

The list of a queue's groups is plain rows, as that of :mod:`queuey.storage.cassandra.offsets`: it may name a group that
does not exist, but never misses one.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from queuey import future
from queuey.errors import OutcomeUnknown, QueueyError, StorageUnavailable
from queuey.future import Future, Waiting
from queuey.ids import MessageId
from queuey.model.lease_groups import GroupSettings, LeaseGroup
from queuey.storage.cassandra.deleting import failures_of
from queuey.storage.cassandra.lease_heads import ROW_BITS, GroupHead, GroupPlace, Parcel, StepName
from queuey.storage.cassandra.session import ALL_CENTRES, CassandraSession, Change, Rows
from queuey.storage.checksums import NOTHING_BESIDE, checksum_of, making_sense

__all__ = [
    "WHOLE_VERSIONS",
    "LaterChanges",
    "LeaseRows",
    "StoredGroup",
    "checksum_of_change",
]

WHOLE_VERSIONS = 16
"""A fold leaves the rows of the last versions, so that servers that know them read only what is new."""
_ENDED = -1
"""The token of a group that has ended."""
_PAGE = 100
"""Groups that are read, or looked up, together."""
_FIRST_ROWS, _LEAST_ROWS, _MOST_ROWS, _PAGE_BYTES = 16, 4, 200, 4 << 20
"""Changes in the first page, and in later ones, which have these bytes if they are like those before. Nearly all are small; one
with reasons for a thousand rejects has megabytes."""
_TRIES = 50
"""Attempts of one change of settings while steps change the same group."""
_PARCELS = 1000
"""Parcels that are listed together."""
_NEWS = 2000
"""Rows that are read beside a version that is known; if there are more, the group is read anew."""
_LOOKS = 3
"""Attempts to read what is new."""
_ID = struct.Struct("<qq")
_COMMON = 9
"""Columns that a group's rows have in common; behind them come partition and number."""
_VERSION, _PLACE = 3, slice(_COMMON, _COMMON + 2)
_BEHIND_NONE = (-1, -1)

LastParcels = Callable[[GroupPlace, GroupHead], Waiting[None]]
"""Appends what waits in the parcels of a group's life, which is about to end."""


class StoredGroup(NamedTuple):
    """A group as it was read."""

    head: GroupHead
    changes: dict[int, list[tuple[int, bytes]]]
    """By partition, each with its number."""
    parcels: dict[Parcel, int]
    """And since when they wait, in ticks on the clock of leases."""


class LaterChanges(NamedTuple):
    """What was stored since a version that is known."""

    head: GroupHead
    changes: dict[int, list[tuple[int, bytes]]]
    """By partition, each with its number."""
    replaced: set[int]
    """Partitions whose changes make the whole state."""


class LeaseRows:
    """Reads and changes the rows of groups."""

    def __init__(self, session: CassandraSession) -> None:
        self.session = session

    # Reading

    async def head(self, place: GroupPlace, *, serially: bool = False, level: int = ALL_CENTRES) -> GroupHead | None:
        """What a group's rows have in common; None if there is no such group.

        :param serially: the row is on a quorum of nodes then; else it may be of a change whose end nobody knows yet.
        :param level: of a read that is not serial.
        """
        return _head(await self._head(place, serially=serially, level=level))

    async def _head(self, place: GroupPlace, *, serially: bool, level: int = ALL_CENTRES) -> Rows:
        if serially:
            return await self.session.ask_serially("lease_head", place)
        return await self.session.ask("lease_head", place, level)

    async def lanes(self, place: GroupPlace, level: int) -> tuple[GroupHead | None, Mapping[int, int]]:
        """What a weak group's rows have in common, and the moments of the last rows, by lane."""
        rows = await self.session.ask("lease_lanes", place, level)
        if not rows:
            return await self.head(place, level=level), {}
        return _head(rows), {part: since for *_, part, since in rows}

    async def whole(self, place: GroupPlace, *, serially: bool = True, level: int = ALL_CENTRES) -> StoredGroup | None:
        """A group with its changes, all of one version; None if there is no such group.

        If a step came in between, the version is -1.

        :param level: of what is not read serially.
        :raises StorageUnavailable: some of it is damaged, or too few nodes answer.
        """
        head = await self.head(place, serially=serially, level=level)
        if head is None:
            return None
        found, behind, limit = _Changes(head), _BEHIND_NONE, _FIRST_ROWS
        while True:
            rows = await self.session.ask("lease_changes", (*place, *behind, limit), level)
            for version, *row in rows:
                if version != head.version:
                    return StoredGroup(head._replace(version=-1), {}, {})
                found.add(*row)
            if len(rows) < limit:
                break
            behind, limit = rows[-1][1:3], _next_limit(rows)
        is_exact = head.group.settings.exact
        if is_exact and not found.are_whole(max(head.version - WHOLE_VERSIONS, head.named_since)):
            return StoredGroup(head._replace(version=-1), {}, {})
        parcels: dict[Parcel, int] = {}
        if head.newest > head.carried or not is_exact:
            parcels = await self._waiting(place, head, partial(self.session.ask, level=level))
        return StoredGroup(head, found.changes, parcels)

    async def parcels(self, place: GroupPlace, head: GroupHead) -> dict[Parcel, int]:
        """The parcels of a group that wait, and since when.

        :param head: of a version that is known; those of later versions may be missing.
        """
        if head.group.settings.exact and head.newest <= head.carried:
            return {}
        return await self._waiting(place, head, self.session.ask_serially)

    async def _waiting(
        self, place: GroupPlace, head: GroupHead, ask: Callable[[str, Sequence[Any]], Future[Rows]]
    ) -> dict[Parcel, int]:
        found, behind, token = dict[Parcel, int](), (head.carried + 1, ""), head.group.token
        while True:
            rows = await ask("lease_waiting", (*place, *behind, _PARCELS))
            found |= {Parcel.of_key(number, label): since for number, label, life, since in rows if life == token}
            if len(rows) < _PARCELS:
                return found
            behind = rows[-1][:2]

    def _slice(self, place: GroupPlace, parts: Collection[int], number: int) -> Future[Rows]:
        """Changes of some partitions from a number on, and what the group's rows have in common."""
        if not parts:
            return Future.of(())
        return self.session.ask("lease_news", (*place, [*parts], number, _NEWS), ALL_CENTRES)

    async def news(self, place: GroupPlace, known: GroupHead, anew: Collection[int] = ()) -> LaterChanges | None:
        """What was stored since a version of an exact group; None if the group is to be read anew.

        :param anew: partitions all of whose changes are read.
        :raises StorageUnavailable: some of it is damaged, or too few nodes answer.
        """
        parts = known.parts
        for _ in range(_LOOKS):
            asked = [self._slice(place, range(1, parts + 1), known.version << ROW_BITS), self._slice(place, anew, 0)]
            latest, whole = [await rows for rows in asked]
            head = _head(latest) if latest else await self.head(place)
            if head is None or head.group.token != known.group.token or _NEWS in (len(latest), len(whole)):
                return None
            if not known.version <= head.version < known.version + WHOLE_VERSIONS:
                return None
            rows = {row[_PLACE]: row for row in latest if row[_PLACE][1] >= known.least_number}
            rows |= {row[_PLACE]: row for row in whole}
            found = _Changes(head)
            for at in sorted(rows):
                found.add(*rows[at][_COMMON:])
            is_same = all(row[_VERSION] == head.version for row in whole)
            if is_same and head.parts <= parts and found.are_whole(known.version):
                return LaterChanges(head, found.changes, found.replaced | {*anew})
            parts = head.parts
        return None

    # Changing

    async def begin(self, place: GroupPlace, head: GroupHead, changes: Sequence[Change] = ()) -> bool:
        """Begin a group's life, with its first changes.

        :returns: False if there is such a group already; then nothing is done.
        :raises StorageUnavailable: nothing is done.
        :raises OutcomeUnknown: that is not known.
        """
        before = await self._head(place, serially=False)
        found = before[0][0] if before else None
        if found not in (None, _ENDED):
            return False
        token = head.group.token
        await self._list(place, token)
        values = (token, *_described(head.group), *head[1:], *place, found)

        def ours(rows: Rows) -> bool:
            now = rows[0][0] if rows else None
            return now != found and _is_in(rows, head)

        changes = [("lease_mark", place), *changes, ("leases_begin", values)]
        done = await self.session.decide_together(changes, "lease_head", place, ours)
        if not done:
            await self._unlist(place, token)
        return done

    async def advance(self, place: GroupPlace, head: GroupHead, changes: Sequence[Change]) -> bool:
        """Make the changes of a step.

        :param head: as the step leaves it.
        :returns: False if another change was there first; then nothing is done.
        :raises StorageUnavailable: nothing is done.
        :raises OutcomeUnknown: that is not known.
        """
        values = (*head[1:], *place, head.group.token, head.version - 1)
        return await self.session.decide_together(
            [*changes, ("leases_advance", values)], "lease_head", place, lambda rows: _is_in(rows, head)
        )

    async def set(
        self, place: GroupPlace, group: LeaseGroup, before: LeaseGroup, step: StepName, last: LastParcels
    ) -> bool:
        """Change the settings of a group, or let it begin another life.

        :param last: is called before a life ends.
        :returns: False if something else than ``before`` is stored; then nothing is done.
        :raises StorageUnavailable: nothing is done.
        :raises OutcomeUnknown: that is not known.
        """
        for _ in range(_TRIES):
            found = await self.head(place, serially=True)
            if found is None or found.group != before:
                return False
            is_another = group.token != before.token
            if is_another:
                await last(place, found)
                await self._list(place, group.token)
            head = (found._replace(steps=b"") if is_another else found).next(step)._replace(group=group)
            values = (group.token, *_described(group), head.version, head.steps, *place, before.token, found.version)
            ours = partial(_is_in, wanted=head, before=found)
            if await self.session.decide_together([("leases_set", values)], "lease_head", place, ours):
                if is_another:
                    await self._unlist(place, before.token)
                return True
        raise StorageUnavailable("too many change this lease group at once: nothing was changed, try again")

    async def end(self, place: GroupPlace, last: LastParcels) -> None:
        """End a group's life, if there is one.

        :param last: is called before.
        :raises StorageUnavailable: nothing is done.
        :raises OutcomeUnknown: it may have ended.
        """
        head = await self.head(place, serially=True)
        if head is not None:
            await self._end(place, head.group.token, last)

    async def _end(self, place: GroupPlace, token: int, last: LastParcels) -> None:
        """End one life of a group, if it has not ended. Another life that has begun since is left alone."""
        for _ in range(_TRIES):
            head = await self.head(place, serially=True)
            if head is None or head.group.token != token:
                break
            await last(place, head)
            end: Change = ("leases_end", (*place, token, head.version))
            changes: list[Change] = [("lease_clear", place), ("lease_clear_head", place), end]
            if await self.session.decide_together(
                changes, "lease_head", place, lambda rows: not rows or rows[0][0] != token
            ):
                break
        else:
            raise StorageUnavailable("too many change this lease group at once: nothing was changed, try again")
        try:
            await self.session.tell("lease_list_forget", (*place, token), ALL_CENTRES)
        except StorageUnavailable as error:
            raise OutcomeUnknown from error  # the group is forgotten; its name in the list leads nowhere

    async def _list(self, place: GroupPlace, token: int) -> None:
        """List a life that is about to begin.

        :raises StorageUnavailable: it may not be listed, so it must not begin.
        """
        try:
            await self.session.tell("lease_list_keep", (*place, token), ALL_CENTRES)
        except OutcomeUnknown as error:
            raise StorageUnavailable from error

    async def _unlist(self, place: GroupPlace, token: int) -> None:
        """Remove a life from the list that did not begin, or is over. If that fails, readers of the list look it up in vain."""
        try:
            head = await self.head(place)
            if head is not None and head.group.token == token:
                return
            await self.session.tell("lease_list_forget", (*place, token), ALL_CENTRES)
        except QueueyError:
            return

    # All groups of a queue

    async def names(self, queue: UUID, start: str, limit: int) -> Sequence[str]:
        """Names in order, each looked up, until the page is full."""
        found: list[str] = []
        while len(found) < limit:
            rows = await self.session.ask("lease_list", (queue, start, _PAGE), ALL_CENTRES)
            names = list(dict.fromkeys(name for name, _ in rows))
            heads = [future.start(self.head((queue, name))) for name in names]
            known = [await head is not None for head in heads]
            found += [name for name, is_there in zip(names, known, strict=True) if is_there]
            if len(rows) < _PAGE:
                break
            start = names[-1] + "\0"
        return found[:limit]

    async def purge(self, queue: UUID, last: LastParcels) -> None:
        """End all groups of a dropped queue.

        A server that does not know of the drop yet may add more. They are never read.

        :param last: is called before each end: the messages may be for other queues.
        :raises StorageUnavailable, OutcomeUnknown: some groups are left.
        """
        begin: str | None = ""  # behind the names that are removed: no read steps over them
        while begin is not None:
            rows = await self.session.ask("lease_list", (queue, begin, _PAGE), ALL_CENTRES)
            failures = await failures_of([future.start(self._end((queue, name), token, last)) for name, token in rows])
            if failures:
                raise failures[0]
            # A name that a server has added whose clock is ahead may stay listed.
            begin = rows[-1][0] if len(rows) == _PAGE else None


def _next_limit(rows: Rows) -> int:
    """How many changes the next page is to have."""
    mean = sum([len(data) for *_, data in rows]) // len(rows) + 1
    return max(min(_PAGE_BYTES // mean, _MOST_ROWS), _LEAST_ROWS)


class _Changes:
    """Changes of one group, as they are read."""

    def __init__(self, head: GroupHead) -> None:
        self._head = head
        self.changes: dict[int, list[tuple[int, bytes]]] = {}
        self.replaced: set[int] = set()
        """Partitions that have a base."""
        self._rows: Counter[int] = Counter()
        """By version."""

    def add(self, part: int, number: int, is_base: bool | None, life: int, checksum: int, data: bytes) -> None:
        """:raises StorageUnavailable: the row is damaged."""
        if life != self._head.group.token:
            return
        _check(life, part, number, checksum, data)
        found = self.changes.setdefault(part, [])
        if is_base:
            found.clear()
            self.replaced.add(part)
        found.append((number, data))
        self._rows[number >> ROW_BITS] += 1

    def are_whole(self, known: int) -> bool:
        """Whether all rows of the versions behind one that is known are there."""
        steps = ((version, self._head.step(version)) for version in range(known + 1, self._head.version + 1))
        return all(step is not None and step.rows == self._rows[version] for version, step in steps)


def checksum_of_change(token: int, part: int, number: int, data: bytes) -> int:
    """What a row with these bytes must match when it is read."""
    return checksum_of(MessageId(number, token ^ part), NOTHING_BESIDE, data)


def _check(token: int, part: int, number: int, checksum: int, data: bytes) -> None:
    with making_sense():
        if checksum != checksum_of_change(token, part, number, data):
            raise ValueError(f"change {number} of a lease group in partition {part} does not match its checksum")


def _described(group: LeaseGroup) -> tuple[Any, ...]:
    return _ID.pack(*group.start), json.dumps(group.settings.to_json())


def _head(rows: Rows) -> GroupHead | None:
    if not rows or rows[0][0] in (None, _ENDED):
        return None
    token, start, settings, *rest = rows[0][:_COMMON]
    with making_sense():
        group = LeaseGroup(token, MessageId(*_ID.unpack(start)), GroupSettings.from_json(json.loads(settings)))
        return GroupHead(group, *rest)


def _is_in(rows: Rows, wanted: GroupHead, before: GroupHead | None = None) -> bool:
    """Whether a change is among those that were made.

    :param wanted: as the change leaves the head.
    :param before: as the change found it: no life comes back, so one that goes on has not ended.
    :raises OutcomeUnknown: nobody knows any more.
    """
    found = _head(rows)
    if found is not None and before is not None and found.group.token == before.group.token != wanted.group.token:
        return False
    if found is None or found.group.token != wanted.group.token:
        raise OutcomeUnknown  # it may have been made before the group ended
    if found.version < wanted.version:
        return False
    step = found.step(wanted.version)
    if step is None:
        raise OutcomeUnknown  # others have made too many steps since
    return step == wanted.step(wanted.version)
