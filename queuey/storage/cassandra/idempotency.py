"""Idempotency keys in Cassandra: lightweight transactions around an append (G7).

A key names the attempt that stores under it, and the ids. An attempt claims the key with the ids that it is about to
write, writes, and only then records that it has stored them. It is answered once that record exists. An attempt that
died in between leaves its ids with the key. The attempt that takes over withdraws them first, so the queue ends with one
copy.

The claim is a lightweight transaction, the record is a plain write: each attempt has its own, and it counts only while
the key names that attempt. So an attempt that comes too late changes nothing. It knows by the clock whether it may be
too late: another one takes over only once the longest request is surely over.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from queuey.errors import InProgress, KeyReused, OutcomeUnknown, QueueyError, StorageUnavailable
from queuey.future import Waiting, start
from queuey.ids import TICKS_PER_SECOND, MessageId, unique_uuid
from queuey.model import Appended, AppendRequest, Draft, IdempotencyKey, Location, Queue
from queuey.model.values import IDEMPOTENCY_SECONDS
from queuey.storage.cassandra.appending import CassandraAppender
from queuey.storage.cassandra.deleting import failures_of
from queuey.storage.cassandra.session import ALL_CENTRES

__all__ = ["StoredKey", "append_keyed", "refuse_reused", "reused_keys"]

_ROW_TTL_SECONDS = IDEMPOTENCY_SECONDS + 3600
_LOCATION_BYTES = 18
_LEAST_WAIT_SECONDS, _MOST_WAIT_SECONDS = 0.02, 0.25
_GRACE_SECONDS = 5.0
"""Seconds beyond the longest request, and beyond the error of two clocks, after which an attempt counts as dead."""


class _Busy(Exception):
    """Another attempt holds one of the keys."""


@dataclass(frozen=True)
class StoredKey:
    """What is known of a key."""

    digest: bytes
    attempt: UUID
    since: int
    expires: int
    places: Sequence[Location]
    """What the key stands for."""
    written: Collection[Location]
    """Those of them that the attempt writes itself. The others were stored before, under keys of single messages."""
    done: bool
    """The attempt has stored what it claimed."""


async def append_keyed(
    appender: CassandraAppender, queue: Queue, drafts: Sequence[Draft], idempotency: IdempotencyKey | None
) -> Appended:
    """Append the drafts that are not stored yet under their keys or the request's.

    :raises KeyReused: a key stands for something else; nothing is stored.
    :raises InProgress: another attempt holds a key and did not let it go; nothing is stored.
    """
    keys = _keys(drafts, idempotency)
    clock, patience = appender.clock, appender.timing.request_seconds
    began, wait = clock.elapsed(), _LEAST_WAIT_SECONDS
    waited = 0.0
    looks = len(keys) > 1  # mostly a key is new, and then its claim says so
    while True:
        try:
            return await _Attempt(appender, queue, drafts, idempotency, keys).run(looks=looks)
        except _Busy:
            if not looks:
                looks = True
                continue
            if waited > patience or clock.elapsed() - began > patience:
                raise InProgress from None
            waited += wait
            await appender.session.pause(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads, hides nothing
            wait = min(2 * wait, _MOST_WAIT_SECONDS)


async def refuse_reused(appender: CassandraAppender, requests: Sequence[AppendRequest]) -> None:
    """:raises KeyReused: a message's key stands for something else."""
    keyed: defaultdict[UUID, list[Draft]] = defaultdict(list)
    queues = {request.queue.uuid: request.queue for request in requests}
    for request in requests:
        keyed[request.queue.uuid] += [draft for draft in request.drafts if draft.idempotency is not None]
    for uuid, drafts in keyed.items():
        if drafts and await reused_keys(appender, queues[uuid], drafts):
            raise KeyReused


async def reused_keys(appender: CassandraAppender, queue: Queue, drafts: Sequence[Draft]) -> Collection[str]:
    """Keys of these drafts that stand for something else, so that :func:`append_keyed` would refuse the drafts."""
    wanted, reused = dict[str, IdempotencyKey](), set[str]()
    for one in [draft.idempotency for draft in drafts if draft.idempotency is not None]:
        if wanted.setdefault(one.key, one) != one:
            reused.add(one.key)
    stored, now = await _stored_keys(appender, queue, wanted), appender.clock.now_ticks()
    return reused | {key for key, one in wanted.items() if _is_another(stored[key], one, now)}


async def _stored_keys(appender: CassandraAppender, queue: Queue, keys: Collection[str]) -> dict[str, StoredKey | None]:
    asked = {key: appender.session.ask("idempotency_find", (queue.uuid, key), ALL_CENTRES) for key in keys}
    return {key: _kept(await rows) for key, rows in asked.items()}


def _is_another(kept: StoredKey | None, wanted: IdempotencyKey, now: int) -> bool:
    """Whether a key stands for something else."""
    return kept is not None and kept.expires > now and kept.digest != wanted.digest


def _keys(drafts: Sequence[Draft], idempotency: IdempotencyKey | None) -> dict[str, IdempotencyKey]:
    """:raises KeyReused: the request uses one key for two things."""
    keys: dict[str, IdempotencyKey] = {}
    for one in (idempotency, *(draft.idempotency for draft in drafts)):
        if one is not None and keys.setdefault(one.key, one) != one:
            raise KeyReused
    return keys


class _Attempt:
    """One attempt to store a request's drafts, each key once."""

    def __init__(
        self,
        appender: CassandraAppender,
        queue: Queue,
        drafts: Sequence[Draft],
        idempotency: IdempotencyKey | None,
        keys: dict[str, IdempotencyKey],
    ) -> None:
        self._appender = appender
        self._queue = queue
        self._drafts = drafts
        self._idempotency = idempotency
        self._keys = keys
        self._id = unique_uuid()
        self._found: dict[str, StoredKey | None] = {}
        """What is known of each key."""
        self._claimed: set[str] = set()
        self._now = appender.clock.now_ticks()
        """One moment decides which keys are more than a day old."""
        self._written: Collection[Location] = ()
        self._planned = 0.0
        """When it last began to claim its keys."""

    async def run(self, *, looks: bool) -> Appended:
        """:param looks: otherwise the key is taken for new, and its claim fails if it is not.
        :raises _Busy: another attempt holds, or held, one of the keys; nothing is claimed or stored.
        """
        self._found = dict.fromkeys(self._keys)
        if looks:
            await self._look()
        whole = self._known(self._idempotency)
        if whole is not None:
            return Appended(whole, repeated=True)
        fresh = self._fresh()
        try:
            placed = await self._appender.store(self._queue, [self._drafts[at] for at in fresh], self._plan)
        except OutcomeUnknown:
            raise  # the claims stay, with the ids that may be stored: the next attempt reads them
        except (QueueyError, _Busy):
            await self._release()
            raise
        await self._record(placed)
        return Appended(self._answer(placed), repeated=bool(self._drafts) and not fresh)

    async def _look(self) -> None:
        """Read all keys, and refuse the request before any is claimed."""
        self._found = await _stored_keys(self._appender, self._queue, self._keys)
        if any(_is_another(kept, self._keys[key], self._now) for key, kept in self._found.items()):
            raise KeyReused

    def _known(self, idempotency: IdempotencyKey | None) -> Sequence[Location] | None:
        """The locations that an earlier request with this key stored."""
        kept = self._found[idempotency.key] if idempotency is not None else None
        live = kept is not None and kept.done and kept.expires > self._now
        return kept.places if kept is not None and live else None

    def _fresh(self) -> list[int]:
        """The drafts to store, by index.

        They are the drafts without a key, and the first draft of each unknown key.
        """
        fresh, seen = [], set()
        for at, draft in enumerate(self._drafts):
            if draft.idempotency is None or (
                self._known(draft.idempotency) is None and draft.idempotency.key not in seen
            ):
                fresh.append(at)
            if draft.idempotency is not None:
                seen.add(draft.idempotency.key)
        return fresh

    def _answer(self, stored: Sequence[Location]) -> list[Location]:
        """One location per draft, of those just stored and those known before."""
        new = dict(zip(self._fresh(), stored, strict=True))
        first: dict[str, Location] = {}
        answer = []
        for at, draft in enumerate(self._drafts):
            known = self._known(draft.idempotency)
            if at in new:
                place = new[at]
            elif known is not None:
                place = known[0]
            elif draft.idempotency is not None:
                place = first[draft.idempotency.key]
            else:
                raise AssertionError("a draft without a key is always new")
            if draft.idempotency is not None:
                first.setdefault(draft.idempotency.key, place)
            answer.append(place)
        return answer

    def _wanted(self, stored: Sequence[Location]) -> dict[str, Sequence[Location]]:
        """The locations that each unknown key is to stand for."""
        whole, wanted = self._answer(stored), dict[str, Sequence[Location]]()
        for place, draft in zip(whole, self._drafts, strict=True):
            if draft.idempotency is not None and self._known(draft.idempotency) is None:
                wanted.setdefault(draft.idempotency.key, [place])
        if self._idempotency is not None:
            wanted[self._idempotency.key] = whole
        return wanted

    async def _plan(self, placed: Sequence[Location]) -> None:
        """Claim the keys with the ids about to be written, or renew the claims.

        Keys of a dead attempt come first, with its ids. Once it has lost them, it can neither record what it stored nor
        store again, even if it comes back to life. Only then are its ids withdrawn, and only after that forgotten: if
        this attempt dies as well, the next one finds them.

        :raises _Busy: another attempt was first.
        """
        self._planned = self._appender.clock.elapsed()
        self._written = frozenset(placed)
        wanted, taken = self._wanted(placed), dict[str, Collection[Location]]()
        await self._get({key: self._claim(key, places, taken) for key, places in wanted.items()}, but_for=taken)
        if taken:
            known = {place for draft in self._drafts for place in self._known(draft.idempotency) or ()}
            left = {place for places in taken.values() for place in places}
            await self._appender.withdraw(self._queue, sorted(left - known))
            await self._get({key: self._move(key, wanted[key], self._written) for key in taken})

    async def _get(self, steps: Mapping[str, Waiting[bool]], but_for: Collection[str] = ()) -> None:
        """Take one step for each key, all at the same time.

        It notes the keys that this attempt then holds.

        :raises _Busy: another attempt holds one of them.
        """
        failure: QueueyError | _Busy | None = None
        for key, outcome in [(key, start(step)) for key, step in steps.items()]:
            try:
                if not await outcome:
                    raise _Busy
            except (QueueyError, _Busy) as error:
                failure = failure or error
            else:
                if key not in but_for:
                    self._claimed.add(key)
        if failure is not None:
            raise failure

    async def _claim(self, key: str, places: Sequence[Location], taken: dict[str, Collection[Location]]) -> bool:
        """Claim a key that is free, more than a day old, or held by a dead attempt.

        :param taken: receives the ids that the dead attempt may have written.
        """
        kept = self._found[key]
        if kept is None or kept.attempt == self._id or kept.expires <= self._now:
            return await self._move(key, places, self._written)
        timing = self._appender.timing
        patience = timing.request_seconds + 2 * timing.clock_error_seconds + _GRACE_SECONDS
        if kept.since > self._now - round(patience * TICKS_PER_SECOND):
            return False
        taken[key] = kept.written
        return await self._move(key, kept.places, kept.written)

    async def _move(self, key: str, places: Sequence[Location], written: Collection[Location]) -> bool:
        """Let a key name this attempt and some ids, if it still is as this attempt knows it.

        So changes never overlap.

        :returns: False if another attempt holds the key.
        :raises OutcomeUnknown: it is not known whether the key changed.
        """
        session, where, before = self._appender.session, (self._queue.uuid, key), self._found[key]
        said = self._said(key, places, written)
        name, values = "idempotency_claim", (*where, *said, _ROW_TTL_SECONDS)
        if before is not None:
            name, values = "idempotency_change", (_ROW_TTL_SECONDS, *said, *where, before.attempt, before.since)
        if not await session.decide(
            name, values, "idempotency_find", where, lambda rows: bool(rows) and tuple(rows[0][:-1]) == said
        ):
            return False
        self._found[key] = _kept([(*said, None)])
        return True

    def _said(self, key: str, places: Sequence[Location], written: Collection[Location]) -> tuple[Any, ...]:
        """What a key is to say, from ``digest`` to ``answer``."""
        now = self._appender.clock.now_ticks()
        answer = b"".join([bytes([place in written, place.partition]) + place.id.bytes for place in places])
        expires = now + self._keys[key].seconds * TICKS_PER_SECOND
        return self._keys[key].digest, self._id, now, expires, answer

    async def _record(self, placed: Sequence[Location]) -> None:
        """Record under each key that this attempt has stored what it claimed.

        If it took so long that another attempt may hold a key by now, the key is asked.

        :raises OutcomeUnknown: another attempt took over, or it is not known.
        """
        wanted = self._wanted(placed)
        tell, where = self._appender.session.tell, self._queue.uuid
        rows = [(where, key, self._id, _ROW_TTL_SECONDS) for key in wanted]
        if await failures_of([tell("idempotency_stored", row, ALL_CENTRES) for row in rows]):
            raise OutcomeUnknown
        if self._is_old(wanted):
            try:
                await self._get({key: self._move(key, places, self._written) for key, places in wanted.items()})
            except (StorageUnavailable, _Busy) as error:
                raise OutcomeUnknown from error

    def _is_old(self, keys: Collection[str]) -> bool:
        """Whether another attempt may take this one for dead."""
        clock, most = self._appender.clock, self._appender.timing.request_seconds
        now = clock.now_ticks()
        since = min([kept.since for key in keys if (kept := self._found[key]) is not None], default=now)
        return max(clock.elapsed() - self._planned, (now - since) / TICKS_PER_SECOND) > most

    async def _release(self) -> None:
        """Release the keys, since nothing was stored under them.

        A key that cannot be released expires with its age.
        """
        asked = [
            self._appender.session.compare_and_set("idempotency_release", (self._queue.uuid, key, self._id))
            for key in self._claimed
        ]
        for future in asked:
            try:
                await future
            except QueueyError:
                continue


def _kept(rows: Sequence[tuple[Any, ...]]) -> StoredKey | None:
    """:param rows: the last value of each names an attempt that stored what it claimed, or is None."""
    if not rows or rows[0][1] is None:
        return None
    digest, attempt, since, expires, answer, _ = rows[0]
    places = [
        Location(answer[at + 1], MessageId.from_bytes(answer[at + 2 : at + _LOCATION_BYTES]))
        for at in range(0, len(answer or b""), _LOCATION_BYTES)
    ]
    written = {
        place for place, is_written in zip(places, (answer or b"")[::_LOCATION_BYTES], strict=True) if is_written
    }
    return StoredKey(digest, attempt, since, expires, places, written, attempt in [row[-1] for row in rows])
