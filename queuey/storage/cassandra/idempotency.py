"""Idempotency keys in Cassandra: lightweight transactions around an append (G7).

A key's row names the attempt that stores under it, and the ids. An attempt claims the key with the ids that it is about
to write, writes, and only then records that it is done. It is answered once that record exists. An attempt that died in
between leaves its ids in the row. The attempt that takes over withdraws them first, so the queue ends with one copy.
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
from queuey.model import Appended, AppendRequest, Consistency, Draft, IdempotencyKey, Location, Queue
from queuey.model.values import IDEMPOTENCY_SECONDS
from queuey.storage.cassandra.appending import CassandraAppender

__all__ = ["StoredKey", "append_keyed", "refuse_reused", "reused_keys"]

_ROW_TTL_SECONDS = IDEMPOTENCY_SECONDS + 3600
_LOCATION_BYTES = 17
_LEAST_WAIT_SECONDS, _MOST_WAIT_SECONDS = 0.02, 0.25
_GRACE_SECONDS = 5.0
"""Seconds beyond the longest request after which an attempt counts as dead."""


class _Busy(Exception):
    """Another attempt holds one of the keys."""


@dataclass(frozen=True)
class StoredKey:
    """A key's row."""

    digest: bytes
    attempt: UUID
    since: int
    expires: int
    done: bool
    places: Sequence[Location]


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
    while True:
        try:
            return await _Attempt(appender, queue, drafts, idempotency, keys).run()
        except _Busy:
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
    level = appender.session.to_read(Consistency.STRONG)
    asked = {key: appender.session.ask("idempotency_find", (queue.uuid, key), level) for key in keys}
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
        self._claimed: set[str] = set()
        self._now = appender.clock.now_ticks()
        """One moment decides which keys are more than a day old."""

    async def run(self) -> Appended:
        """:raises _Busy: another attempt holds one of the keys; nothing is claimed or stored."""
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
        answer = self._answer(placed)
        await self._record(answer)
        return Appended(answer, repeated=bool(self._drafts) and not fresh)

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

    def _wanted(self, stored: Sequence[Location], whole: Sequence[Location]) -> dict[str, Sequence[Location]]:
        """The locations that each unknown key is to stand for.

        :param whole: the locations of the whole request.
        """
        wanted: dict[str, Sequence[Location]] = {}
        for place, draft in zip(self._answer(stored), self._drafts, strict=True):
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
        wanted, taken = self._wanted(placed, placed), dict[str, Sequence[Location]]()
        await self._get({key: self._claim(key, places, taken) for key, places in wanted.items()}, but_for=taken)
        if taken:
            known = {place for draft in self._drafts for place in self._known(draft.idempotency) or ()}
            left = {place for places in taken.values() for place in places}
            await self._appender.withdraw(self._queue, sorted(left - known))
            await self._get({key: self._move(key, wanted[key], done=False) for key in taken})

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

    async def _claim(self, key: str, places: Sequence[Location], taken: dict[str, Sequence[Location]]) -> bool:
        """Claim a key that is free, more than a day old, or held by a dead attempt.

        :param taken: receives the ids that the dead attempt may have written.
        """
        kept = self._found[key]
        if kept is None or kept.attempt == self._id or kept.expires <= self._now:
            return await self._move(key, places, done=False)
        patience = self._appender.timing.request_seconds + _GRACE_SECONDS
        if kept.since > self._now - round(patience * TICKS_PER_SECOND):
            return False
        taken[key] = kept.places
        return await self._move(key, kept.places, done=False)

    async def _move(self, key: str, places: Sequence[Location], *, done: bool) -> bool:
        """Change a key's row, if it still is as this attempt knows it.

        So changes never overlap.

        :returns: False if another attempt holds the key.
        :raises OutcomeUnknown: it is not known whether the row changed.
        """
        session, where, before = self._appender.session, (self._queue.uuid, key), self._found[key]
        said = self._said(key, places, done=done)
        name, values = "idempotency_claim", (*where, *said, _ROW_TTL_SECONDS)
        if before is not None:
            name, values = "idempotency_change", (_ROW_TTL_SECONDS, *said, *where, before.attempt, before.since)
        if not await session.decide(
            name, values, "idempotency_find", where, lambda rows: [*map(tuple, rows)] == [said]
        ):
            return False
        self._found[key] = _kept([said])
        return True

    def _said(self, key: str, places: Sequence[Location], *, done: bool) -> tuple[Any, ...]:
        """The new values of a key's row, from ``digest`` to ``answer``."""
        now = self._appender.clock.now_ticks()
        answer = b"".join(place.partition.to_bytes(1, "big") + place.id.bytes for place in places)
        expires = now + self._keys[key].seconds * TICKS_PER_SECOND
        return self._keys[key].digest, self._id, now, expires, done, answer

    async def _record(self, answer: Sequence[Location]) -> None:
        """Record under each key that the append is done.

        :raises OutcomeUnknown: another attempt took over, or it is not known.
        """
        stored = [answer[at] for at in self._fresh()]
        outcomes = [start(self._move(key, places, done=True)) for key, places in self._wanted(stored, answer).items()]
        applied = True
        for outcome in outcomes:
            try:
                applied = await outcome and applied
            except StorageUnavailable:
                applied = False
        if not applied:
            raise OutcomeUnknown

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
    if not rows or rows[0][1] is None:
        return None
    digest, attempt, since, expires, done, answer = rows[0]
    places = [
        Location(answer[at], MessageId.from_bytes(answer[at + 1 : at + _LOCATION_BYTES]))
        for at in range(0, len(answer or b""), _LOCATION_BYTES)
    ]
    return StoredKey(digest, attempt, since, expires, bool(done), places)
