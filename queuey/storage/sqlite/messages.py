"""Messages in an embedded store's file."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import apsw

from queuey.clock import Clock
from queuey.errors import KeyReused, QueueNotFound, QueueyError
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND, IdGenerator, MessageId
from queuey.model import (
    Appended,
    AppendRequest,
    Consistency,
    Draft,
    Drafts,
    IdempotencyKey,
    Location,
    LocationsInOrder,
    Message,
    Page,
    PartitionId,
    PartitionState,
    Queue,
    ReadRequest,
    Span,
    SpanCount,
    bytes_of,
)
from queuey.storage import IDEMPOTENCY_SECONDS, MessageStore
from queuey.storage.checksums import NONSENSE, making_sense
from queuey.storage.sqlite import packs
from queuey.storage.sqlite.committer import Transaction
from queuey.storage.sqlite.counts import count_span, inspect
from queuey.storage.sqlite.file import SqliteFile
from queuey.storage.sqlite.packing import Ready, insert, pack, remove
from queuey.storage.sqlite.pages import Ask, PageBuilder, is_bulk, message_in, one_row
from queuey.storage.sqlite.read_cache import ReadCache, find_copy, keep, read_copy
from queuey.storage.sqlite.rows import PARTITION_BYTES, key_of, message_row
from queuey.storage.sqlite.statements import SQL

log = logging.getLogger(__name__)

_READS = {
    (newest_first, with_bodies): SQL[
        ("read" if with_bodies else "ids") + ("_descending" if newest_first else "_ascending")
    ]
    for newest_first in (False, True)
    for with_bodies in (False, True)
}
_FETCH = SQL["fetch"]
_MANY_LOOSE = 10_000
"""Partitions that wait for their messages to be packed."""
_IN_ORDER = b"\xff"
"""In place of a partition's number: an answer kept for an idempotency key has one id, and the partitions of what was stamped from it on."""


class SqliteMessages(SqliteFile, MessageStore):
    """The message half of :class:`~queuey.storage.sqlite.SqliteStore`."""

    def __init__(
        self, path: Path, clock: Clock, ids: IdGenerator, *, segments_mb: int = 1024, serve: bool = True, **how: Any
    ) -> None:
        """:param segments_mb: of all segments together; 0 is none.
        :param how: see :class:`~queuey.storage.sqlite.file.SqliteFile`, as for the other parameters.
        """
        self._segments: ReadCache | None = None
        super().__init__(path, clock, ids, serve=serve, **how)
        if serve and not self._read_only:
            segments = ReadCache(self._path.with_name(self._path.name + "-segments"), segments_mb << 20)
            if segments_mb:
                self._segments = segments
            elif segments.folder.sizes:
                self._tell(SQL["cached_runs_delete_all"], ()).wait()
                segments.folder.remove([*segments.folder.sizes])

    def append(self, request: AppendRequest) -> Future[Appended]:
        drafts, ready = request.drafts, None
        # Packs are made ready here, but not by the main thread: that one is the event loop's.
        if len(drafts) >= packs.LEAST and threading.current_thread() is not threading.main_thread():
            ready = None if _have_keys(drafts) else _ready(drafts)
        return self._committer.submit(
            lambda transaction: self._append(transaction, request, ready), grows=True, size=_size(drafts)
        )

    def _append(self, transaction: Transaction, request: AppendRequest, ready: Ready | None) -> Appended:
        queue, drafts, idempotency = request
        key = queue.uuid.bytes
        if key in self._dropped:
            raise QueueNotFound
        if idempotency is not None:
            earlier = self._earlier(transaction, key, idempotency)
            if earlier is not None:
                return Appended(earlier, repeated=True)
        if _have_keys(drafts):
            return self._append_keyed(transaction, key, drafts, idempotency)
        placed = self._insert(transaction, key, drafts, ready)
        if idempotency is not None:
            self._remember(transaction, key, idempotency, placed)
        return Appended(placed)

    def _append_keyed(
        self, transaction: Transaction, queue: bytes, drafts: Sequence[Draft], idempotency: IdempotencyKey | None
    ) -> Appended:
        """Insert the drafts that are new, and remember the keys of all."""
        first: dict[str, int] = {}
        known: list[Location | int | None] = []
        for index, draft in enumerate(drafts):
            if (
                idempotency is not None
                and draft.idempotency not in (None, idempotency)
                and draft.idempotency.key == idempotency.key
            ):
                raise KeyReused
            known.append(self._known(transaction, queue, draft.idempotency, drafts, first))
            if draft.idempotency is not None:
                first.setdefault(draft.idempotency.key, index)
        inserted = iter(
            self._insert(transaction, queue, [draft for draft, k in zip(drafts, known, strict=True) if k is None])
        )
        placed: list[Location] = []
        for draft, earlier in zip(drafts, known, strict=True):
            location = next(inserted) if earlier is None else placed[earlier] if isinstance(earlier, int) else earlier
            placed.append(location)
            if draft.idempotency is not None and earlier is None:
                self._remember(transaction, queue, draft.idempotency, [location])
        if idempotency is not None:
            self._remember(transaction, queue, idempotency, placed)
        return Appended(placed, repeated=bool(drafts) and None not in known)

    def _known(
        self,
        transaction: Transaction,
        queue: bytes,
        idempotency: IdempotencyKey | None,
        drafts: Sequence[Draft],
        first: dict[str, int],
    ) -> Location | int | None:
        """Where a draft with this key is already: in the store, or earlier in its own batch (an index)."""
        if idempotency is None:
            return None
        index = first.get(idempotency.key)
        if index is not None:
            if drafts[index].idempotency != idempotency:
                raise KeyReused
            return index
        earlier = self._earlier(transaction, queue, idempotency)
        return None if earlier is None else earlier[0]

    def _insert(
        self, transaction: Transaction, queue: bytes, drafts: Sequence[Draft], ready: Ready | None = None
    ) -> Sequence[Location]:
        ready = ready or _ready(drafts)
        return self._insert_each(transaction, queue, drafts) if ready is None else insert(transaction, queue, ready)

    def _insert_each(self, transaction: Transaction, queue: bytes, drafts: Sequence[Draft]) -> list[Location]:
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
            expires = ticks + ttl * TICKS_PER_SECOND
            insert(message_row(queue + PARTITION_BYTES[partition], ticks, tail, expires, content_type, key, body))
            placed.append(Location(partition, message_id))
        return placed

    def _earlier(
        self, transaction: Transaction, queue: bytes, idempotency: IdempotencyKey
    ) -> Sequence[Location] | None:
        rows = transaction.look(SQL["idempotency_find"], (queue, idempotency.key, self._clock.now_ticks()))
        if not rows:
            return None
        digest, answer = rows[0]
        if digest != idempotency.digest:
            raise KeyReused
        with making_sense():
            if answer[:1] == _IN_ORDER:
                return LocationsInOrder(MessageId.from_bytes(answer[1:17]), answer[17:])
            starts = range(0, len(answer), 17)
            return [Location(answer[at], MessageId.from_bytes(answer[at + 1 : at + 17])) for at in starts]

    def _remember(
        self, transaction: Transaction, queue: bytes, idempotency: IdempotencyKey, placed: Sequence[Location]
    ) -> None:
        if isinstance(placed, LocationsInOrder):
            answer = _IN_ORDER + placed.first.bytes + placed.partitions
        else:
            answer = b"".join(location.partition.to_bytes(1, "big") + location.id.bytes for location in placed)
        expires = self._clock.now_ticks() + IDEMPOTENCY_SECONDS * TICKS_PER_SECOND
        transaction.look(SQL["idempotency_keep"], (queue, idempotency.key, idempotency.digest, answer, expires))

    def watermark(self, consistency: Consistency) -> int:
        return self._ids.watermark()

    def read(
        self, request: ReadRequest, *, now_ticks: int, consistency: Consistency = Consistency.STRONG
    ) -> Future[Page]:
        if request.partition.queue.bytes in self._dropped:
            return Future.of(Page([], False))
        reader, partition_key = self._reader(), key_of(request.partition)
        if self._unsound and partition_key in self._unsound:
            return self._refuses(partition_key)
        builder = PageBuilder(request, now_ticks, reader.beside)
        segments = self._segments if is_bulk(request) else None

        def paged(rows: Any) -> Page:
            return builder.page(
                rows, segments.ahead(reader.beside, partition_key, request, now_ticks) if segments is not None else None
            )

        ask = reader.ask if segments is None else reader.ask_lasting
        after, upto = request.span
        began = perf_counter()
        try:
            page = ask(
                _READS[request.newest_first, request.with_bodies], (partition_key, *after, *upto, now_ticks), paged
            )
            self._observer.took("read", perf_counter() - began)
            self._note_read(partition_key, request, page, builder)
            return Future.of(page)
        except (QueueyError, apsw.Error, *NONSENSE) as error:
            return Future.failed(self._read_failed(error))

    def _note_read(self, partition_key: bytes, request: ReadRequest, page: Page, builder: PageBuilder) -> None:
        """What readers of many meet is for the keeper to put together."""
        if request.limit < packs.MOST or request.newest_first or not page.messages:
            return
        if builder.is_loose:
            if page.more and request.with_bodies and len(self._loose) < _MANY_LOOSE:
                self._loose.setdefault(partition_key, request.span.after)  # its next pages come with the first one's
        elif self._segments is not None and not builder.is_copy:
            self._segments.was_read(partition_key, request, page.messages[-1].id)

    def count_span(
        self,
        partition: PartitionId,
        span: Span,
        *,
        now_ticks: int,
        limit: int = 0,
        step: int = 0,
        consistency: Consistency = Consistency.STRONG,
    ) -> Future[SpanCount]:
        if partition.queue.bytes in self._dropped:
            return Future.of(SpanCount(None, 0, False, ()))
        if self._unsound and key_of(partition) in self._unsound:
            return self._refuses(key_of(partition))
        try:
            reader = self._reader()
            with reader.snapshot():
                return Future.of(count_span(reader.beside, key_of(partition), span, now_ticks, limit, step))
        except (QueueyError, apsw.Error, *NONSENSE) as error:
            return Future.failed(self._read_failed(error))

    def fetch(self, queue: Queue, wanted: Sequence[Location], *, now_ticks: int) -> Future[Sequence[Message | None]]:
        if queue.uuid.bytes in self._dropped:
            return Future.of([None] * len(wanted))
        for number, _ in wanted if self._unsound else ():
            if (partition_key := key_of(queue.partition(number))) in self._unsound:
                return self._refuses(partition_key)
        try:
            reader = self._reader()
            with reader.snapshot():
                places = [(key_of(queue.partition(number)), message_id) for number, message_id in wanted]
                return Future.of([_fetched(reader.beside, *partition_key, now_ticks) for partition_key in places])
        except (QueueyError, apsw.Error, *NONSENSE) as error:
            return Future.failed(self._read_failed(error))

    def put(
        self,
        queue: Queue,
        wanted: Sequence[Location],
        *,
        body: bytes,
        content_type: str | None,
        key: str | None,
        ttl_seconds: int,
    ) -> Future[bool]:
        def job(transaction: Transaction) -> bool:
            if queue.uuid.bytes in self._dropped:
                raise QueueNotFound
            now = transaction.ids.stamp()
            with _whole(transaction, wanted):
                for number, (ticks, tail) in wanted:
                    partition_key = key_of(queue.partition(number))
                    remove(transaction, partition_key, [MessageId(ticks, tail)])
                    expires = max(now, ticks) + ttl_seconds * TICKS_PER_SECOND
                    transaction.insert(message_row(partition_key, ticks, tail, expires, content_type, key, body))
            return any(message_id.ticks < now for _, message_id in wanted)

        return self._committer.submit(job, grows=True, size=len(body) * len(wanted))

    def delete(self, queue: Queue, wanted: Sequence[Location]) -> Future[None]:
        def job(transaction: Transaction) -> None:
            ids: dict[int, set[MessageId]] = {}
            for number, message_id in wanted:
                ids.setdefault(number, set()).add(message_id)
            with _whole(transaction, wanted):
                for number, doomed in ids.items():
                    remove(transaction, key_of(queue.partition(number)), doomed)

        return self._committer.submit(job, grows=False)

    def inspect(self, partitions: Sequence[PartitionId], *, now_ticks: int) -> Future[Sequence[PartitionState]]:
        try:
            return Future.of([self._inspect_one(partition, now_ticks) for partition in partitions])
        except (QueueyError, apsw.Error, *NONSENSE) as error:
            return Future.failed(self._read_failed(error))

    def _inspect_one(self, partition: PartitionId, now_ticks: int) -> PartitionState:
        if partition.queue.bytes in self._dropped:
            return PartitionState(0, 0, None, None)
        reader = self._reader()
        with reader.snapshot():
            return inspect(reader.beside, key_of(partition), now_ticks)

    def tidy_some(self) -> bool:
        is_short = self.is_short_of_room()
        has_room = self._segments is not None and self._made_room(self._segments, is_short=is_short)
        return not is_short and (self.pack_some() or (has_room and self.copy_some()))

    def pack_some(self) -> bool:
        """Make a pack of messages that a reader of many met one by one.

        :returns: False if there is nothing more to do.
        """
        try:
            partition_key, after = self._loose.popitem()
        except KeyError:
            return False
        span, now = Span(after, MessageId.last_of(self._ids.watermark())), self._clock.now_ticks()

        def job(transaction: Transaction) -> MessageId | None:
            return None if partition_key[:-1] in self._dropped else pack(transaction, partition_key, span, now)

        goes_on = self._committer.submit(job, grows=True).wait()
        if goes_on is not None:
            self._loose[partition_key] = goes_on
        return True

    def copy_some(self) -> bool:
        """Make a segment of packs that readers of many meet again and again.

        :returns: False if there is nothing more to do.
        """
        segments, now = self._segments, self._clock.now_ticks()
        if segments is None or (found := segments.take()) is None:
            return False
        (partition_key, span), reader = found, self._reader()
        with reader.snapshot():
            copy = find_copy(reader.beside, partition_key, span, now)
            columns = read_copy(reader.beside, copy.packs) if copy.packs else None
        segments.went_on(partition_key, span, copy)
        if columns is not None:
            try:
                written = segments.folder.append(columns)
            except OSError as error:
                log.warning("no segment could be written: %s", error)
                return False
            self._committer.submit(
                partial(keep, partition_key=partition_key, copy=copy, written=written, now_ticks=now), grows=True
            ).wait()
        return True

    def _made_room(self, segments: ReadCache, *, is_short: bool) -> bool:
        """Forget segments that cannot be used, and those that there is no room for; whether there is some for new ones.

        :param is_short: the disk is: then none stays.
        """
        while segments.spoilt:
            self._tell(SQL["cached_run_delete"], (segments.spoilt.pop(),)).wait()
        if segments.is_due(self._clock.elapsed()):
            used = {number for (number,) in self._reader().ask(SQL["cached_run_files"], (), list)}
            segments.folder.remove([number for number in segments.folder.sizes if number not in used])
        for number in [*segments.folder.sizes] if is_short else segments.unused(self._clock.now_ticks()):
            self._tell(SQL["cached_runs_delete"], (number,)).wait()
            segments.folder.remove([number])
        return segments.has_room

    def drop(self, queue: uuid.UUID) -> Future[None]:
        def job(transaction: Transaction) -> None:
            transaction.execute(SQL["drop_queue"], (queue.bytes,))
            self._dropped[queue.bytes] = self._clock.elapsed()

        return self._committer.submit(job, grows=False)


_ROW_BYTES = 256
"""What a message costs beside its body, in bytes that take as long to write."""


def _size(drafts: Sequence[Draft]) -> int:
    return bytes_of(drafts) + len(drafts) * _ROW_BYTES


def _ready(drafts: Sequence[Draft]) -> Ready | None:
    """Drafts made ready to be stored together; None of those that are not."""
    if len(drafts) < packs.LEAST:
        return None
    columns = Drafts.of(drafts)
    return Ready.of(columns) if columns.dues.count(None) == len(columns) else None


def _have_keys(drafts: Sequence[Draft]) -> bool:
    """Whether some have an idempotency key of their own."""
    if len(drafts) == 1:
        return drafts[0].idempotency is not None
    onces = drafts.idempotency_keys if isinstance(drafts, Drafts) else [draft[6] for draft in drafts]
    return onces.count(None) < len(onces)


def _whole(transaction: Transaction, wanted: Sequence[Location]) -> AbstractContextManager[None]:
    """A change of several messages is made whole or not at all: a pack among them may be damaged (G10)."""
    return transaction.whole() if len(wanted) > 1 else nullcontext()


def _fetched(ask: Ask, partition_key: bytes, message_id: MessageId, now_ticks: int) -> Message | None:
    found = one_row(ask(_FETCH, (partition_key, *message_id, now_ticks)))
    if found is None:
        for seq, *_ in list(ask(SQL["pack_over"], (partition_key, *message_id))):
            return message_in(ask, seq, message_id, now_ticks)
    return found
