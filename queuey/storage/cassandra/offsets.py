"""Offsets of groups in Cassandra.

All offsets of a group are one Cassandra partition, and each change is one lightweight transaction there. It requires
that every row it changes is as it was read, by a version that each change draws anew. So a take-over comes before or
after a commit, never in the middle. A late request of a former owner requires rows that do not exist any more.

The list of a queue's groups is plain rows. A forgotten group may begin again, and be forgotten again, through any
server. Each such life has a row of its own, added before the life begins and removed after it has ended. The list may
name a group that does not exist, but never misses one, so its readers look each group up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from queuey import future
from queuey.errors import BadRequest, Conflict, OutcomeUnknown, QueueNotFound, QueueyError, StorageUnavailable
from queuey.future import Future
from queuey.ids import MessageId, unique_uuid
from queuey.model import Offset, OffsetChange, OffsetMove
from queuey.storage import OffsetStore
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import ALL_CENTRES, Change, Rows

_TRIES = 50
"""Attempts of one change while others change the same partitions of the same group."""
_PAGE = 100
"""Groups that are read, or looked up, together."""


class _Group(NamedTuple):
    """A group's Cassandra partition."""

    life: UUID | None
    """None if the group does not exist."""
    offsets: dict[int, Offset]
    versions: dict[int, UUID]


class CassandraOffsets(OffsetStore):
    """The offsets of groups in one keyspace."""

    def __init__(self, server: CassandraServer) -> None:
        self._server = server
        self._underway = server.underway
        self._dropped = server.dropped
        self.session = server.session

    # One group

    def read_offsets(self, queue: UUID, group: str) -> Future[Mapping[int, Offset]]:
        if queue in self._dropped:
            return Future.of({})
        return self._underway.start(self._read_offsets(queue, group))

    async def _read_offsets(self, queue: UUID, group: str) -> Mapping[int, Offset]:
        return _group(await self.session.ask_serially("offsets_find", (queue, group))).offsets

    def change_offsets(self, queue: UUID, group: str, change: OffsetChange) -> Future[Mapping[int, OffsetMove]]:
        return self._underway.start(self._change_offsets(queue, group, change))

    async def _change_offsets(self, queue: UUID, group: str, change: OffsetChange) -> Mapping[int, OffsetMove]:
        attempt = _Attempt(self._server, (queue, group), change)
        try:
            return await attempt.repeat()
        except (BadRequest, Conflict, QueueNotFound, StorageUnavailable) as refused:
            if attempt.uncertain:
                raise OutcomeUnknown from refused  # it may have been carried out, before another change
            raise

    def forget_group(self, queue: UUID, group: str) -> Future[None]:
        return self._underway.start(self._forget_group(queue, group))

    async def _forget_group(self, queue: UUID, group: str) -> None:
        life = _life(await self.session.ask_serially("offsets_life", (queue, group)))
        if life is not None:
            await self._end(queue, group, life)

    async def _end(self, queue: UUID, group: str, life: UUID) -> None:
        """End one life of a group, if it has not ended.

        Another life that has begun since is left alone.
        """
        where = (queue, group)
        changes: list[Change] = [("offset_end", (*where, life)), ("offset_clear", where)]
        await self.session.decide_together(changes, "offsets_life", where, lambda rows: _life(rows) != life)
        try:
            await self.session.tell("group_forget", (*where, life), ALL_CENTRES)
        except StorageUnavailable as error:
            raise OutcomeUnknown from error  # the group is forgotten; its name in the list leads nowhere

    # All groups of a queue

    def list_groups(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[str]]:
        if queue in self._dropped:
            return Future.of([])
        return self._underway.start(self._list_groups(queue, start, limit))

    async def _list_groups(self, queue: UUID, start: str, limit: int) -> Sequence[str]:
        """Names in order, each looked up, until the page is full."""
        found: list[str] = []
        while len(found) < limit:
            rows = await self.session.ask("group_list", (queue, start, _PAGE), ALL_CENTRES)
            names = list(dict.fromkeys(name for name, _ in rows))
            asked = [self.session.ask("offsets_life", (queue, name), ALL_CENTRES) for name in names]
            lives = [_life(await look_up) for look_up in asked]
            found += [name for name, life in zip(names, lives, strict=True) if life is not None]
            if len(rows) < _PAGE:
                break
            start = names[-1] + "\0"
        return found[:limit]

    async def purge(self, queue: UUID) -> None:
        """End all groups of a dropped queue.

        A server that does not know of the drop yet may add more. They are never read.
        """
        begin = ""  # behind the names that are removed: no read steps over them
        while True:
            rows = await self.session.ask("group_list", (queue, begin, _PAGE), ALL_CENTRES)
            for ended in [future.start(self._end(queue, name, life)) for name, life in rows]:
                await ended
            if len(rows) < _PAGE:
                return  # a name that a server has added whose clock is ahead may stay listed
            begin = rows[-1][0]


class _Attempt:
    """One request's change, repeated until it finds the rows as they were read."""

    def __init__(self, server: CassandraServer, where: tuple[UUID, str], change: OffsetChange) -> None:
        self._session = server.session
        self._clock = server.clock
        self._where = where
        self._change = change
        self._dropped = server.dropped
        self.uncertain = False
        """A transaction was sent, and it is not known whether it was carried out."""

    async def repeat(self) -> Mapping[int, OffsetMove]:
        """Read and change, until no other change comes in between.

        :raises Conflict, QueueNotFound, StorageUnavailable: nothing was changed by this attempt.
        """
        # An undecided change may be missing here; then the transaction requires rows that do not exist any more.
        rows = await self._session.ask("offsets_find", self._where, ALL_CENTRES)
        for _ in range(_TRIES):
            if self._where[0] in self._dropped:
                raise QueueNotFound
            moves = await self._carry_out(_group(rows))
            if moves is not None:
                return moves
            rows = await self._session.ask_serially("offsets_find", self._where)
        raise StorageUnavailable("too many change the offsets of this group at once: nothing was changed, try again")

    async def _carry_out(self, found: _Group) -> Mapping[int, OffsetMove] | None:
        """Change what was found.

        :returns: None if it has changed since.
        """
        moves = self._change.moves(found.offsets, self._clock.now_ticks())
        life = found.life
        if life is None:
            life = unique_uuid()
            await self._session.tell("group_keep", (*self._where, life), ALL_CENTRES)
        version = unique_uuid()
        changes: list[Change] = [("offset_begin", (life, *self._where, found.life))]
        for number, (_, after) in moves.items():
            values = (_bytes(after.id), after.generation, after.set_ticks, version)
            changes.append(("offset_set", (*values, *self._where, number, found.versions.get(number))))
        if await self._decide(changes, version, moves):
            return moves
        if found.life is None:
            await self._take_back(life)
        return None

    async def _decide(self, changes: Sequence[Change], version: UUID, moves: Mapping[int, OffsetMove]) -> bool:
        def ours(rows: Rows) -> bool:
            self.uncertain = True
            versions = _group(rows).versions
            return all(versions.get(number) == version for number in moves)

        return await self._session.decide_together(changes, "offsets_find", self._where, ours)

    async def _take_back(self, life: UUID) -> None:
        """Remove a life that did not begin from the list.

        If that fails, readers of the list look it up in vain.
        """
        if self.uncertain:
            return
        try:
            await self._session.tell("group_forget", (*self._where, life), ALL_CENTRES)
        except QueueyError:
            return


def _group(rows: Rows) -> _Group:
    life, offsets, versions = None, {}, {}
    for life, number, message, generation, set_ticks, version in rows:  # noqa: B007 - it is the same in all
        if version is not None:
            id_ = None if message is None else MessageId.from_bytes(message)
            offsets[number] = Offset(id_, generation, set_ticks)
            versions[number] = version
    return _Group(life, offsets, versions)


def _life(rows: Rows) -> UUID | None:
    return rows[0][0] if rows else None


def _bytes(message: MessageId | None) -> Any:
    return None if message is None else message.bytes
