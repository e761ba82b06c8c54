"""Messages in an embedded store's file."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile
from math import inf
from time import perf_counter
from typing import Any

import apsw

from queuey.errors import CorruptMessage, QueueNotFound, QueueyError
from queuey.future import Future, Inbox
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import (
    EMPTY_PARTITION,
    Appended,
    AppendRequest,
    Consistency,
    Draft,
    Location,
    Message,
    Overwrite,
    Page,
    PartitionId,
    PartitionState,
    Queue,
    ReadRequest,
    Span,
    SpanCount,
    SpanRemoval,
    bytes_of,
)
from queuey.storage import MessageStore
from queuey.storage.checksums import NONSENSE, beside
from queuey.storage.sqlite.appending import SqliteAppender, ready_apart
from queuey.storage.sqlite.counts import count_span
from queuey.storage.sqlite.file import File
from queuey.storage.sqlite.inspecting import Inspector
from queuey.storage.sqlite.packing import remove
from queuey.storage.sqlite.pages import Ask, PageBuilder, all_rows, is_bulk, message_in, one_row
from queuey.storage.sqlite.purging import Purge
from queuey.storage.sqlite.readers import Reader
from queuey.storage.sqlite.removing import remove_span
from queuey.storage.sqlite.rows import key_of, message_row
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.tidying import Tidying
from queuey.storage.sqlite.transaction import Transaction

__all__ = ["SqliteMessages"]

_READS = {
    (newest_first, with_bodies): SQL[
        ("read" if with_bodies else "ids") + ("_descending" if newest_first else "_ascending")
    ]
    for newest_first in (False, True)
    for with_bodies in (False, True)
}
_READ_IN_DAMAGE = {
    newest_first: SQL[name].replace(
        " content_type, key, body, checksum, headers,",
        " max(content_type, x''), max(key, x''), max(body, x''), cast(checksum as integer), max(headers, x''),",
    )
    for newest_first, name in ((False, "read_ascending"), (True, "read_descending"))
}
"""The same with bodies, where a flipped bit has made text of some bytes, which fails the whole page if it is no UTF-8: empty bytes
of it match no checksum."""
_FETCH = SQL["fetch"]
_ROW_BYTES = 256
"""Extra cost of a message beside its body, in bytes that take as long to write."""
_PURGE = Purge(
    expired=("purge_expired", "purge_idempotency", "purge_expired_packs"),
    dropped=("purge_dropped", "purge_dropped_idempotency", "purge_dropped_packs"),
    counted={
        "purge_expired": " returning partition_key, 1, length(body)",
        "purge_expired_packs": " returning partition_key, messages, bytes",
    },
)


class SqliteMessages(MessageStore):
    """The messages of one file."""

    def __init__(self, file: File) -> None:
        self.file = file
        """The file that has them."""
        self._dropped = file.dropped
        self._unsound = file.unsound
        self._readers = file.readers
        self._committer = file.committer
        self._appender = SqliteAppender(file.clock, file.dropped)
        self._inspector = Inspector(file.readers, file.committer, file.counters, file.clock.elapsed, keeps=file.serves)
        self.tidying = Tidying(file)
        file.purger.add(_PURGE)
        if file.upkeep is not None:
            file.upkeep.add(self.tidying.run)

    def append(self, request: AppendRequest) -> Future[Appended]:
        drafts, append = request.drafts, self._appender.append
        # All appends would wait for the committer while it made a large batch ready.
        made = ready_apart(drafts) if request.is_bulk else None
        size = size_of(drafts)

        def job(transaction: Transaction) -> Appended:
            return append(transaction, request, made)

        return self._committer.submit(job, grows=True, size=size, is_light=True)

    def use_loop(self, inbox: Inbox | None) -> None:
        self.file.use_loop(inbox)

    def stays_open(self) -> bool:
        return self._committer.turns.stay_open()

    def append_within(self, transaction: Transaction, request: AppendRequest) -> Appended:
        """Append messages in a transaction.

        :raises QueueNotFound, KeyReused: nothing is stored.
        """
        return self._appender.append(transaction, request, None)

    def watermark(self, consistency: Consistency) -> int:
        return self.file.ids.watermark()

    def read(
        self, request: ReadRequest, *, now_ticks: int, consistency: Consistency = Consistency.STRONG
    ) -> Future[Page]:
        if request.partition.queue.bytes in self._dropped:
            return Future.of(Page([], False))
        partition_key = key_of(request.partition)
        if self._unsound and partition_key in self._unsound:
            return Future.failed(self.file.refusal_of(partition_key))
        try:
            with self._readers.lend() as reader:
                return Future.of(self._read(reader, partition_key, request, now_ticks))
        except (QueueyError, apsw.Error, *NONSENSE) as error:
            return Future.failed(self.file.read_failed(error))

    def _read(self, reader: Reader, partition_key: bytes, request: ReadRequest, now_ticks: int) -> Page:
        builder = PageBuilder(request, now_ticks, reader.beside)
        cache = self.tidying.cache if is_bulk(request) else None

        def paged(rows: Any) -> Page:
            return builder.page(
                rows, cache.next_run(reader.beside, partition_key, request, now_ticks) if cache is not None else None
            )

        ask = reader.ask if cache is None else reader.ask_lasting
        after, upto = request.span
        began = perf_counter()
        sql, asked = _READS[request.newest_first, request.with_bodies], (partition_key, *after, *upto, now_ticks)
        try:
            page = ask(sql, asked, paged)
        except UnicodeDecodeError:
            if not request.with_bodies:
                raise
            builder = PageBuilder(request, now_ticks, reader.beside)
            page = ask(_READ_IN_DAMAGE[request.newest_first], asked, paged)
        self.file.observer.took("read", perf_counter() - began)
        self.tidying.note_read(partition_key, request, page, builder)
        return page

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
            return Future.failed(self.file.refusal_of(key_of(partition)))
        try:
            with self._readers.lend() as reader, reader.snapshot():
                return Future.of(count_span(reader.beside, key_of(partition), span, now_ticks, limit, step))
        except (QueueyError, apsw.Error, *NONSENSE) as error:
            return Future.failed(self.file.read_failed(error))

    def fetch(self, queue: Queue, wanted: Sequence[Location], *, now_ticks: int) -> Future[Sequence[Message | None]]:
        if queue.uuid.bytes in self._dropped:
            return Future.of([None] * len(wanted))
        keyed = [(key_of(queue.partition(number)), message_id) for number, message_id in wanted]
        for partition_key, _ in keyed if self._unsound else ():
            if partition_key in self._unsound:
                return Future.failed(self.file.refusal_of(partition_key))
        try:
            with self._readers.lend() as reader, reader.snapshot():
                return Future.of([_fetched(reader.beside, *place, now_ticks) for place in keyed])
        except (QueueyError, apsw.Error, *NONSENSE) as error:
            return Future.failed(self.file.read_failed(error))

    def fetch_within(
        self, transaction: Transaction, queue: Queue, wanted: Sequence[Location], *, now_ticks: int
    ) -> Sequence[Message | None]:
        """Messages by location, with those that the transaction itself has added.

        :raises CorruptMessage: one is damaged.
        """
        keyed = [(key_of(queue.partition(number)), message_id) for number, message_id in wanted]
        return [_fetched(transaction.execute, *place, now_ticks) for place in keyed]

    def put(self, queue: Queue, wanted: Sequence[Location], new: Overwrite) -> Future[bool]:
        def job(transaction: Transaction) -> bool:
            if queue.uuid.bytes in self._dropped:
                raise QueueNotFound
            now = transaction.ids.stamp()
            keys = new.keys_over(wanted, [self._there(transaction, queue, place) for place in wanted])
            with _whole(transaction, wanted):
                for (number, message_id), key in zip(wanted, keys, strict=True):
                    partition_key = key_of(queue.partition(number))
                    remove(transaction, partition_key, [message_id])
                    expires = max(now, message_id.ticks) + new.ttl_seconds * TICKS_PER_SECOND
                    around = beside(new.content_type, key, new.headers)
                    transaction.insert(message_row(partition_key, message_id, expires, new.body, around))
            return any(message_id.ticks < now for _, message_id in wanted)

        return self._committer.submit(job, grows=True, size=(len(new.body) + len(new.headers or b"")) * len(wanted))

    def _there(self, transaction: Transaction, queue: Queue, place: Location) -> Message | None:
        """The message that is about to be overwritten; None if it is damaged, and nobody knows its key."""
        try:
            (found,) = self.fetch_within(transaction, queue, [place], now_ticks=self.file.clock.now_ticks())
        except (CorruptMessage, *NONSENSE):
            return None
        return found

    def delete(self, queue: Queue, wanted: Sequence[Location]) -> Future[None]:
        def job(transaction: Transaction) -> None:
            ids: dict[int, set[MessageId]] = {}
            for number, message_id in wanted:
                ids.setdefault(number, set()).add(message_id)
            with _whole(transaction, wanted):
                for number, doomed in ids.items():
                    remove(transaction, key_of(queue.partition(number)), doomed)

        return self._committer.submit(job, grows=False)

    def delete_span(
        self, queue: Queue, number: int, span: Span, *, most: int, whole: bool = False
    ) -> Future[SpanRemoval]:
        partition_key = key_of(queue.partition(number))

        def job(transaction: Transaction) -> SpanRemoval:
            if queue.uuid.bytes in self._dropped:
                return SpanRemoval(0, span.upto)
            return remove_span(transaction, partition_key, span, most, whole=whole)

        return self._committer.submit(job, grows=False)

    def inspect(
        self, partitions: Sequence[PartitionId], *, now_ticks: int, seconds: float = inf
    ) -> Future[Sequence[PartitionState]]:
        keys = [None if one.queue.bytes in self._dropped else key_of(one) for one in partitions]
        try:
            states = self._inspector.states([key for key in keys if key is not None], now_ticks, seconds)
        except (QueueyError, apsw.Error, *NONSENSE) as error:
            return Future.failed(self.file.read_failed(error))
        known = takewhile(lambda key: key is None or key in states, keys)
        return Future.of([EMPTY_PARTITION if key is None else states[key] for key in known])

    def drop(self, queue: uuid.UUID) -> Future[None]:
        def job(transaction: Transaction) -> None:
            transaction.execute(SQL["drop_queue"], (queue.bytes,))
            self._dropped.add(queue.bytes)
            self.file.lease_book.forget_queue(queue)

        return self._committer.submit(job, grows=False)

    def clock_error_seconds(self) -> float:
        return self.file.ids.ahead_seconds

    def problems(self) -> Sequence[str]:
        return self.file.problems()

    def close(self) -> None:
        self.file.close()


def size_of(drafts: Sequence[Draft]) -> int:
    """Bytes that take as long to write as these messages."""
    return bytes_of(drafts) + len(drafts) * _ROW_BYTES


def _whole(transaction: Transaction, wanted: Sequence[Location]) -> AbstractContextManager[None]:
    """Make a change of several messages whole or not at all (G10).

    A pack among them may be damaged.
    """
    return transaction.whole() if len(wanted) > 1 else nullcontext()


def _fetched(ask: Ask, partition_key: bytes, message_id: MessageId, now_ticks: int) -> Message | None:
    found = one_row(all_rows(ask(_FETCH, (partition_key, *message_id, now_ticks))), message_id)
    if found is None:
        for seq, *_ in list(ask(SQL["pack_over"], (partition_key, *message_id))):
            return message_in(ask, seq, message_id, now_ticks)
    return found
