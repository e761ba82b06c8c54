"""Messages in an embedded store's file."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import apsw

from queuey.errors import CorruptMessage, KeyReused, QueueNotFound
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import (
    Appended,
    AppendRequest,
    Columns,
    Consistency,
    Draft,
    Message,
    Once,
    Page,
    PartitionId,
    PartitionState,
    Placed,
    Queue,
    Span,
    Survey,
)
from queuey.promise import Promise
from queuey.storage import ONCE_SECONDS, MessageStore
from queuey.storage.seals import all_match, corrupt, seal_of
from queuey.storage.sqlite_committer import Row, Transaction
from queuey.storage.sqlite_file import SQL, SqliteFile

_READS = {
    (newest_first, with_bodies): SQL[
        ("read" if with_bodies else "ids") + ("_descending" if newest_first else "_ascending")
    ]
    for newest_first in (False, True)
    for with_bodies in (False, True)
}
_FETCH, _DELETE = SQL["fetch"], SQL["delete_message"]


_PARTITION_BYTES = [number.to_bytes(1, "big") for number in range(256)]


def _place(partition: PartitionId) -> bytes:
    return partition.queue.bytes + _PARTITION_BYTES[partition.number]


class SqliteMessages(SqliteFile, MessageStore):
    """The message half of :class:`~queuey.storage.sqlite.SqliteStore`."""

    def append(self, request: AppendRequest) -> Promise[Appended]:
        return self._committer.submit(lambda transaction: self._append(transaction, request), grows=True)

    def _append(self, transaction: Transaction, request: AppendRequest) -> Appended:
        queue, drafts, once = request
        key = queue.uuid.bytes
        if key in self._dropped:
            raise QueueNotFound
        if once is not None:
            earlier = self._earlier(transaction, key, once)
            if earlier is not None:
                return Appended(earlier, repeated=True)
        if any(draft[6] for draft in drafts):
            return self._append_once(transaction, key, drafts, once)
        placed = self._insert(transaction, key, drafts)
        if once is not None:
            self._remember(transaction, key, once, placed)
        return Appended(placed)

    def _append_once(
        self, transaction: Transaction, queue: bytes, drafts: Sequence[Draft], once: Once | None
    ) -> Appended:
        """Insert the drafts that are new, and remember the keys of all."""
        first: dict[str, int] = {}
        known: list[Placed | int | None] = []
        for index, draft in enumerate(drafts):
            if once is not None and draft.once not in (None, once) and draft.once.key == once.key:
                raise KeyReused
            known.append(self._known(transaction, queue, draft.once, drafts, first))
            if draft.once is not None:
                first.setdefault(draft.once.key, index)
        inserted = iter(
            self._insert(transaction, queue, [draft for draft, k in zip(drafts, known, strict=True) if k is None])
        )
        placed: list[Placed] = []
        for draft, earlier in zip(drafts, known, strict=True):
            place = next(inserted) if earlier is None else placed[earlier] if isinstance(earlier, int) else earlier
            placed.append(place)
            if draft.once is not None and earlier is None:
                self._remember(transaction, queue, draft.once, [place])
        if once is not None:
            self._remember(transaction, queue, once, placed)
        return Appended(placed, repeated=bool(drafts) and None not in known)

    def _known(
        self, transaction: Transaction, queue: bytes, once: Once | None, drafts: Sequence[Draft], first: dict[str, int]
    ) -> Placed | int | None:
        """Where a draft with this key is already: in the store, or earlier in its own batch (an index)."""
        if once is None:
            return None
        index = first.get(once.key)
        if index is not None:
            if drafts[index].once != once:
                raise KeyReused
            return index
        earlier = self._earlier(transaction, queue, once)
        return None if earlier is None else earlier[0]

    def _insert(self, transaction: Transaction, queue: bytes, drafts: Sequence[Draft]) -> list[Placed]:
        ids, insert = transaction.ids, transaction.insert
        tick, now_tail = ids.stamp(len(drafts)) if drafts else 0, ids.tail
        placed = []
        for partition, body, ttl, content_type, key, due, _ in drafts:
            if due is None or due <= tick:
                message_id = MessageId(tick, now_tail)
                tick += 1
            else:
                message_id = MessageId(due, ids.scheduled_tail())
            ticks, tail = message_id
            place = queue + _PARTITION_BYTES[partition]
            expires = ticks + ttl * TICKS_PER_SECOND
            kind = None if content_type is None else content_type.encode()
            key_bytes = None if key is None else key.encode()
            seal = seal_of(ticks, tail, kind, key_bytes, body)
            insert((place, ticks, tail, expires, seal, kind, key_bytes, body))
            placed.append(Placed(message_id, partition))
        return placed

    def _earlier(self, transaction: Transaction, queue: bytes, once: Once) -> list[Placed] | None:
        rows = transaction.look(SQL["once_find"], (queue, once.key, self._clock.now_ticks()))
        if not rows:
            return None
        digest, answer = rows[0]
        if digest != once.digest:
            raise KeyReused
        return [Placed(MessageId.from_bytes(answer[at + 1 : at + 17]), answer[at]) for at in range(0, len(answer), 17)]

    def _remember(self, transaction: Transaction, queue: bytes, once: Once, placed: Sequence[Placed]) -> None:
        answer = b"".join(place.partition.to_bytes(1, "big") + place.id.bytes for place in placed)
        expires = self._clock.now_ticks() + ONCE_SECONDS * TICKS_PER_SECOND
        transaction.look(SQL["once_keep"], (queue, once.key, once.digest, answer, expires))

    def watermark(self, consistency: Consistency) -> int:
        return self._ids.watermark()

    def read(
        self,
        partition: PartitionId,
        span: Span,
        *,
        limit: int,
        now_ticks: int,
        newest_first: bool = False,
        max_bytes: int = 4 << 20,
        with_bodies: bool = True,
        skip_corrupt: bool = False,
        consistency: Consistency = Consistency.STRONG,
    ) -> Promise[Page]:
        if partition.queue.bytes in self._dropped:
            return Promise.of(Page([], False))
        after, upto = span
        step_over = skip_corrupt and with_bodies
        rows_at_most = -1 if step_over else limit + 1  # how many are stepped over is not known before
        bindings = (_place(partition), *after, *upto, now_ticks, rows_at_most)
        began = perf_counter()
        try:
            page = self._reader().ask(
                _READS[newest_first, with_bodies],
                bindings,
                partial(_sound_page, limit, max_bytes) if step_over else partial(_page, limit, max_bytes, with_bodies),
            )
            self._observer.took("read", perf_counter() - began)
            return Promise.of(page)
        except (CorruptMessage, apsw.Error) as error:
            return Promise.failed(self._read_failed(error))

    def survey(
        self,
        partition: PartitionId,
        span: Span,
        *,
        now_ticks: int,
        limit: int = 0,
        every: int = 0,
        consistency: Consistency = Consistency.STRONG,
    ) -> Promise[Survey]:
        if partition.queue.bytes in self._dropped:
            return Promise.of(Survey(None, 0, False, ()))
        try:
            return Promise.of(self._survey_here(_place(partition), span, now_ticks, limit, every))
        except apsw.Error as error:
            return Promise.failed(self._read_failed(error))

    def _survey_here(self, place: bytes, span: Span, now_ticks: int, limit: int, every: int) -> Survey:
        """From the index alone, which steps over a million ids in a tenth of a second."""
        ask = self._reader().ask

        def bound(after: MessageId, *rest: int) -> tuple[Any, ...]:
            return (place, *after, *span.upto, now_ticks, *rest)

        ends = ask(SQL["ids_descending"], bound(span.after, 1), list)
        marks: list[MessageId] = []
        while every and (len(marks) + 1) * every <= limit:
            rows = ask(SQL["id_after"], bound(marks[-1] if marks else span.after, every - 1), list)
            if not rows:
                break
            marks.append(MessageId(*rows[0]))
        before = len(marks) * every
        counted = ask(SQL["count"], bound(marks[-1] if marks else span.after, limit - before + 1), list)
        total = before + int(counted[0][0])
        return Survey(MessageId(*ends[0][:2]) if ends else None, min(total, limit), total > limit, marks)

    def fetch(
        self, queue: Queue, wanted: Sequence[tuple[int, MessageId]], *, now_ticks: int
    ) -> Promise[Sequence[Message | None]]:
        if queue.uuid.bytes in self._dropped:
            return Promise.of([None] * len(wanted))
        found: list[Message | None] = []
        try:
            reader = self._reader()
            for number, message_id in wanted:
                page = reader.ask(
                    _FETCH, (_place(queue.partition(number)), *message_id, now_ticks), partial(_page, 1, 0, True)
                )
                found.append(page.messages[0] if page.messages else None)
        except (CorruptMessage, apsw.Error) as error:
            return Promise.failed(self._read_failed(error))
        return Promise.of(found)

    def put(
        self,
        queue: Queue,
        wanted: Sequence[tuple[int, MessageId]],
        *,
        body: bytes,
        content_type: str | None,
        ttl_seconds: int,
    ) -> Promise[bool]:
        def job(transaction: Transaction) -> bool:
            if queue.uuid.bytes in self._dropped:
                raise QueueNotFound
            now = transaction.ids.stamp()
            kind = None if content_type is None else content_type.encode()
            for number, (ticks, tail) in wanted:
                place = _place(queue.partition(number))
                transaction.execute(_DELETE, (place, ticks, tail))
                expires = max(now, ticks) + ttl_seconds * TICKS_PER_SECOND
                seal = seal_of(ticks, tail, kind, None, body)
                transaction.insert((place, ticks, tail, expires, seal, kind, None, body))
            return any(message_id.ticks < now for _, message_id in wanted)

        return self._committer.submit(job, grows=True)

    def delete(self, queue: Queue, wanted: Sequence[tuple[int, MessageId]]) -> Promise[None]:
        def job(transaction: Transaction) -> None:
            for number, message_id in wanted:
                transaction.execute(_DELETE, (_place(queue.partition(number)), *message_id))

        return self._committer.submit(job, grows=False)

    def inspect(self, partitions: Sequence[PartitionId], *, now_ticks: int) -> Promise[Sequence[PartitionState]]:
        try:
            return Promise.of([self._inspect_one(partition, now_ticks) for partition in partitions])
        except apsw.Error as error:
            return Promise.failed(self._read_failed(error))

    def _inspect_one(self, partition: PartitionId, now_ticks: int) -> PartitionState:
        if partition.queue.bytes in self._dropped:
            return PartitionState(0, 0, None, None)
        reader, place = self._reader(), _place(partition)

        def end(sql: str) -> MessageId | None:
            rows = reader.ask(sql, (place, now_ticks), list)
            return MessageId(*rows[0]) if rows else None

        ((depth, scheduled),) = reader.ask(SQL["depth"], (place, now_ticks, now_ticks), list)
        return PartitionState(depth, int(scheduled), end(SQL["oldest"]), end(SQL["newest"]))

    def drop(self, queue: uuid.UUID) -> Promise[None]:
        def job(transaction: Transaction) -> None:
            transaction.execute(SQL["drop_queue"], (queue.bytes,))
            self._dropped[queue.bytes] = self._clock.elapsed()

        return self._committer.submit(job, grows=False)


def _page(limit: int, max_bytes: int, with_bodies: bool, rows: Iterable[Row]) -> Page:
    """Rows to messages, each checked, until the limit of count or bytes; of ``rows`` one more than the limit may be there."""
    got: list[Row] = []
    room = max_bytes
    try:
        for row in rows:
            room -= len(row[5])
            if room < 0 and got:
                more = True
                break
            got.append(row)
        else:
            more = len(got) > limit
            del got[limit:]
    except TypeError as error:  # a flipped bit made a number of the body
        raise _corrupt(row) from error
    return Page(_messages(got, check=with_bodies), more)


def _sound_page(limit: int, max_bytes: int, rows: Iterable[Row]) -> Page:
    """The same, stepping over what does not match its checksum; ``rows`` are all there are."""
    got: list[Row] = []
    room, passed = max_bytes, 0
    counted = 0  # those after the page's last message are met again by the next page
    for row in rows:
        if not _is_sound(row):
            passed += 1
            continue
        room -= len(row[5])
        if len(got) == limit or (room < 0 and got):
            return Page(_messages(got, check=False), True, counted)
        got.append(row)
        counted = passed
    return Page(_messages(got, check=False), False, passed)


def _messages(rows: Sequence[Row], *, check: bool) -> Sequence[Message]:
    """Rows side by side, after a look at their seals.

    :raises CorruptMessage: one does not match.
    """
    if not rows:
        return []
    ticks, tails, expires, kinds, keys, bodies, seals = zip(*rows, strict=True)
    if check and not all_match(seals, ticks, tails, kinds, keys, bodies):
        raise _corrupt(next(row for row in rows if not _is_sound(row)))
    return Columns(ticks, tails, expires, _decoded(kinds), _decoded(keys), bodies)


def _is_sound(row: Row) -> bool:
    """Whether one row is as it was written."""
    ticks, tail, _, kind, key, body, seal = row
    return all_match((seal,), (ticks,), (tail,), (kind,), (key,), (body,))


def _corrupt(row: Row) -> CorruptMessage:
    return corrupt(MessageId(row[0], row[1]))


def _decoded(names: Row) -> Sequence[str | None]:
    if names.count(None) == len(names):
        return names
    return [None if name is None else name.decode() for name in names]
