"""The embedded store: one SQLite file, durable, for one server process.

WAL with ``synchronous=FULL``: acknowledged means on disk. One committer writes in groups
(:mod:`queuey.storage.sqlite_committer`), a reader per thread reads without waiting for it, a
keeper thread does what need not happen on the way: checkpoints, expiry, room of dropped queues,
and noting the newest moment, so that no id and no watermark falls behind after a restart.

The layout and its measurements are in docs/decisions/004.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from queuey.clock import Clock
from queuey.errors import (
    ConfigurationError,
    CorruptMessage,
    KeyReused,
    QueueNotFound,
    StorageUnavailable,
)
from queuey.ids import TICKS_PER_SECOND, IdGenerator, MessageId
from queuey.model import (
    Appended,
    AppendRequest,
    ApplicationKey,
    Consistency,
    Draft,
    Message,
    Once,
    Page,
    PartitionId,
    PartitionState,
    Placed,
    Queue,
    QueueKind,
    Span,
)
from queuey.promise import Promise
from queuey.storage import ONCE_SECONDS, MessageStore, MetadataStore
from queuey.storage.sqlite_committer import Committer, Row, Transaction
from queuey.storage.sqlite_guard import FolderLock, Guard
from queuey.storage.sqlite_keeper import Keeper

log = logging.getLogger(__name__)

_RESTART_SLACK_SECONDS = 5.0
"""Ids and watermarks may have run this far past the newest noted moment when the process died."""
_BUSY_MS = 5000
"""How long a write waits for another process that writes, such as ``queuey key new``."""
_CHECKPOINT_PATIENCE_MS = 50
"""How long the committer, and all who wait for it, wait for readers of an old snapshot, such as a backup."""
_DROPPED_SECONDS = 600.0
"""How long a dropped incarnation is remembered to refuse appends that were under way; rows go by themselves."""


def _load_statements() -> dict[str, str]:
    text = (files("queuey.storage") / "sqlite.sql").read_text(encoding="utf-8")
    found = {}
    for part in text.split("\n-- ")[1:]:
        head, _, body = part.partition("\n")
        found[head.partition(":")[0]] = body.strip()
    return found


SQL = _load_statements()
_READS = {
    (newest_first, with_bodies): SQL[
        ("read" if with_bodies else "ids") + ("_descending" if newest_first else "_ascending")
    ]
    for newest_first in (False, True)
    for with_bodies in (False, True)
}
_FETCH, _DELETE = SQL["fetch"], SQL["delete_message"]


def seal_of(ticks: int, content_type: str | None, key: str | None, body: bytes) -> int:
    """What a row must match when it is read: its length, and a CRC32C bound to its id (G6).

    >>> seal_of(0, None, None, b"123456789") == 9 << 32 | 0xE3069283
    True
    """
    crc: int = crc32c(body)
    if content_type is not None or key is not None:
        crc = crc32c_extend(crc, f"{content_type}\n{key}".encode())
    return len(body) << 32 | (crc ^ ticks & 0xFFFFFFFF)


_PARTITION_BYTES = [number.to_bytes(1, "big") for number in range(256)]


def _place(partition: PartitionId) -> bytes:
    return partition.queue.bytes + _PARTITION_BYTES[partition.number]


class SqliteStore(MessageStore, MetadataStore):
    """Messages and metadata in one file.

    :raises StoreInUse: another server process serves this file.
    :raises ConfigurationError: the file cannot be opened, is no store, or lies on a network file system.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        ids: IdGenerator,
        *,
        synchronous: str = "full",
        reserve_mb: int = 64,
        cache_mb: int = 8,
        wal_mb: int = 64,
        serve: bool = True,
    ) -> None:
        """:param serve: False opens the file beside a running server, for keys and the like: no lock, no keeper."""
        self._path = path
        self._clock = clock
        self._ids = ids
        self._cache_kib = cache_mb * 1024
        self._wal_bytes = wal_mb << 20
        self._local = threading.local()
        self._readers: list[apsw.Connection] = []
        self._readers_lock = threading.Lock()
        self._closed = False
        self._lock = FolderLock(path) if serve else None
        self._read_only = self._lock is not None and self._lock.read_only
        try:
            self._writer = self._open_writer(synchronous)
        except apsw.Error as error:
            self._release()
            raise ConfigurationError(f"cannot open the store {path}: {error}") from error
        self._guard = Guard(path, reserve_bytes=reserve_mb << 20, read_only=self._read_only)
        dropped = self._writer.execute(SQL["dropped_all"]).fetchall()
        self._dropped: dict[Any, float] = {queue: clock.elapsed() for (queue,) in dropped}
        self._raise_floor()
        self._committer = Committer(self._writer, ids, self._guard, path.name)
        self._keeper: Keeper | None = None
        if serve and not self._read_only:
            self._keeper = Keeper(self, lambda: self._connect(read_only=False), wal_mb * 256)
            self._writer.set_wal_hook(self._wal_grew)
            self._keeper.start()

    # Opening and closing

    def _open_writer(self, synchronous: str) -> apsw.Connection:
        if self._read_only:
            return self._connect(read_only=True)
        connection = self._connect(read_only=False)
        if connection.execute("pragma journal_mode = wal").fetchall() != [("wal",)]:
            raise ConfigurationError(f"the store {self._path} cannot use a write-ahead log on this file system")
        connection.execute(f"pragma synchronous = {synchronous}")
        connection.execute("pragma wal_autocheckpoint = 0")
        connection.execute(f"pragma journal_size_limit = {self._wal_bytes}")
        connection.execute("begin immediate")
        for statement in SQL["schema"].split(";\n"):
            connection.execute(statement)
        connection.execute("commit")
        return connection

    def _connect(self, *, read_only: bool) -> apsw.Connection:
        """A connection of this thread's own.

        A store on a read-only file system without a write-ahead log cannot change at all, and is opened so.
        """
        if read_only:
            wal = self._path.with_name(self._path.name + "-wal")
            still = self._read_only and not (wal.exists() and wal.stat().st_size)
            uri = f"file:{self._path}?mode=ro" + ("&immutable=1" if still else "")
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            connection = apsw.Connection(uri, flags=flags)
        else:
            connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute(f"pragma cache_size = -{self._cache_kib // (4 if read_only else 1)}")
        return connection

    def _raise_floor(self) -> None:
        """Go on above everything an earlier process may have stamped or promised (G3, G4), also if the clock was set back."""
        rows: list[Row] = self._writer.execute(SQL["moment_read"]).fetchall()
        if rows:
            boot, elapsed, last = rows[0]
            since = self._clock.elapsed() - elapsed if boot == self._clock.boot() else _RESTART_SLACK_SECONDS
            self._ids.raise_floor(last + round(min(since, _RESTART_SLACK_SECONDS) * TICKS_PER_SECOND))

    def _reader(self) -> apsw.Connection:
        """This thread's own connection: a page is one statement, hence one short read transaction."""
        try:
            connection: apsw.Connection = self._local.connection
        except AttributeError:
            if self._closed:
                raise StorageUnavailable("the store is closed") from None
            connection = self._local.connection = self._connect(read_only=True)
            with self._readers_lock:
                self._readers.append(connection)
        return connection

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._keeper is not None:
            self._keeper.stop()
            self.note_moment()
        self._committer.close()
        with self._readers_lock:
            for reader in self._readers:
                reader.close()
        self._writer.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def problems(self) -> Sequence[str]:
        return self._guard.problems()

    # Messages

    def append(self, request: AppendRequest) -> Promise[Appended]:
        return self._committer.submit(lambda transaction: self._append(transaction, request), grows=True)

    def _append(self, transaction: Transaction, request: AppendRequest) -> Appended:
        queue, drafts, once = request
        key = queue.uuid.bytes
        if key in self._dropped:
            raise QueueNotFound
        if once is None and not any(draft[6] for draft in drafts):
            return Appended(self._insert(transaction, key, drafts))
        if once is not None:
            earlier = self._earlier(transaction, key, once)
            if earlier is not None:
                return Appended(earlier, repeated=True)
        return self._append_once(transaction, key, drafts, once)

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
            seal = seal_of(ticks, content_type, key, body)
            insert((place, ticks, tail, expires, seal, content_type, key, body))
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
        rows_at_most = -1 if skip_corrupt else limit + 1  # how many are stepped over is not known before
        bindings = (_place(partition), *after, *upto, now_ticks, rows_at_most)
        try:
            rows = self._reader().execute(_READS[newest_first, with_bodies], bindings)
            return Promise.of(_page(rows, limit, max_bytes, with_bodies, skip_corrupt))
        except CorruptMessage as error:
            return Promise.failed(error)
        except apsw.Error as error:
            return Promise.failed(self._read_failed(error))

    def _read_failed(self, error: apsw.Error) -> Exception:
        if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
            self._guard.damage = str(error)
        return StorageUnavailable(f"the store could not be read: {error}")

    def fetch(
        self, queue: Queue, wanted: Sequence[tuple[int, MessageId]], *, now_ticks: int
    ) -> Promise[Sequence[Message | None]]:
        if queue.uuid.bytes in self._dropped:
            return Promise.of([None] * len(wanted))
        found: list[Message | None] = []
        try:
            reader = self._reader()
            for number, message_id in wanted:
                rows = reader.execute(_FETCH, (_place(queue.partition(number)), *message_id, now_ticks))
                page = _page(rows, 1, 0, True, False)
                found.append(page.messages[0] if page.messages else None)
        except CorruptMessage as error:
            return Promise.failed(error)
        except apsw.Error as error:
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
            for number, (ticks, tail) in wanted:
                place = _place(queue.partition(number))
                transaction.execute(_DELETE, (place, ticks, tail))
                expires = max(now, ticks) + ttl_seconds * TICKS_PER_SECOND
                seal = seal_of(ticks, content_type, None, body)
                transaction.insert((place, ticks, tail, expires, seal, content_type, None, body))
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
            rows: list[Row] = reader.execute(sql, (place, now_ticks)).fetchall()
            return MessageId(*rows[0]) if rows else None

        counts: list[Row] = reader.execute(SQL["depth"], (place, now_ticks, now_ticks)).fetchall()
        depth, scheduled = counts[0]
        return PartitionState(depth, int(scheduled), end(SQL["oldest"]), end(SQL["newest"]))

    def drop(self, queue: uuid.UUID) -> Promise[None]:
        def job(transaction: Transaction) -> None:
            transaction.execute(SQL["drop_queue"], (queue.bytes,))
            self._dropped[queue.bytes] = self._clock.elapsed()

        return self._committer.submit(job, grows=False)

    # Metadata

    def create_queue(self, queue: Queue) -> Promise[tuple[Queue, bool]]:
        def job(transaction: Transaction) -> tuple[Queue, bool]:
            rows = transaction.look(SQL["queue_find"], (queue.application, queue.name))
            if rows:
                stored = _queue(rows[0])
                return stored, stored.uuid == queue.uuid
            transaction.look(SQL["queue_insert"], _queue_row(queue))
            return queue, True

        return self._committer.submit(job, grows=True)

    def find_queue(self, application: str, name: str) -> Promise[Queue | None]:
        return self._ask(SQL["queue_find"], (application, name), lambda rows: _queue(rows[0]) if rows else None)

    def replace_queue(self, old: Queue, new: Queue) -> Promise[bool]:
        def job(transaction: Transaction) -> bool:
            rows = transaction.look(SQL["queue_find"], (old.application, old.name))
            if not rows or _queue(rows[0]) != old:
                return False
            application, name, key, _, *settings = _queue_row(new)
            transaction.look(SQL["queue_update"], (application, name, key, *settings))
            return True

        return self._committer.submit(job, grows=True)

    def remove_queue(self, queue: Queue) -> Promise[bool]:
        def job(transaction: Transaction) -> bool:
            transaction.look(SQL["queue_delete"], (queue.application, queue.name, queue.uuid.bytes))
            if not transaction.connection.changes():
                return False
            transaction.look(SQL["removed_keep"], (queue.uuid.bytes,))
            return True

        return self._committer.submit(job, grows=False)

    def removed(self, limit: int = 100) -> Promise[Sequence[uuid.UUID]]:
        return self._ask(SQL["removed_list"], (limit,), lambda rows: [uuid.UUID(bytes=row[0]) for row in rows])

    def forget_removed(self, queue: uuid.UUID) -> Promise[None]:
        return self._tell(SQL["removed_forget"], (queue.bytes,))

    def list_queues(self, application: str, *, start: str = "", limit: int = 1000) -> Promise[Sequence[Queue]]:
        return self._ask(SQL["queue_list"], (application, start, limit), lambda rows: [_queue(row) for row in rows])

    def add_key(self, key: ApplicationKey) -> Promise[None]:
        return self._tell(SQL["key_insert"], (key.digest, key.application, key.label, key.created_ticks))

    def keys(self) -> Promise[Sequence[ApplicationKey]]:
        return self._ask(SQL["key_list"], (), lambda rows: [ApplicationKey(*row) for row in rows])

    def remove_key(self, application: str, label: str) -> Promise[int]:
        def job(transaction: Transaction) -> int:
            transaction.look(SQL["key_delete"], (application, label))
            return transaction.connection.changes()

        return self._committer.submit(job, grows=False)

    def _ask(self, sql: str, bindings: tuple[Any, ...], shape: Callable[[list[Row]], Any]) -> Promise[Any]:
        try:
            return Promise.of(shape(self._reader().execute(sql, bindings).fetchall()))
        except apsw.Error as error:
            return Promise.failed(self._read_failed(error))

    def _tell(self, sql: str, bindings: tuple[Any, ...]) -> Promise[None]:
        def job(transaction: Transaction) -> None:
            transaction.execute(sql, bindings)

        return self._committer.submit(job, grows=False)

    # What the keeper asks for

    def _wal_grew(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if self._keeper is not None:
            self._keeper.committed(pages)
        return apsw.SQLITE_OK

    def finish_checkpoint(self, mode: int) -> None:
        """Let the committer copy what the keeper's checkpoint left, so that the log can start over."""

        def copy() -> None:
            self._writer.set_busy_timeout(_CHECKPOINT_PATIENCE_MS)
            try:
                self._writer.wal_checkpoint(mode=mode)
            finally:
                self._writer.set_busy_timeout(_BUSY_MS)

        self._committer.run_between(copy)

    def found_damage(self, text: str) -> None:
        """Stop writing; readiness says why (G18)."""
        log.error("the store is damaged", extra={"error": text})
        self._guard.damage = text

    def newest_moment(self) -> int:
        """The newest tick stamped or served as a watermark."""
        return self._ids.last_ticks

    def note_moment(self) -> Promise[None]:
        """Write down how far time has got, for the next start."""

        def job(transaction: Transaction) -> None:
            moment = (self._clock.boot(), self._clock.elapsed(), transaction.ids.last_ticks)
            transaction.look(SQL["moment_keep"], moment)

        return self._committer.submit(job, grows=False)

    def has_refuse(self) -> bool:
        """Whether there is something whose room can be given back."""
        now = self._clock.elapsed()
        for queue, since in list(self._dropped.items()):
            if now - since > _DROPPED_SECONDS and not self._reader().execute(SQL["dropped_find"], (queue,)).fetchall():
                del self._dropped[queue]
        ((found,),) = self._reader().execute(SQL["refuse"], (self._clock.now_ticks(),)).fetchall()
        return bool(found)

    def purge(self, rows: int) -> Promise[int]:
        """Delete up to ``rows`` expired messages, idempotency keys, and messages of dropped queues each.

        :returns: how many went, more than 0 as long as there may be more.
        """

        def job(transaction: Transaction) -> int:
            def delete(name: str, *bindings: Any) -> int:
                transaction.execute(SQL[name], (*bindings, rows))
                return transaction.connection.changes()

            now = self._clock.now_ticks()
            gone = delete("purge_expired", now) + delete("purge_once", now)
            for (queue,) in transaction.look(SQL["dropped_one"], ()):
                left = delete("purge_dropped", queue, queue + b"\xff") + delete("purge_dropped_once", queue)
                if not left:
                    transaction.execute(SQL["drop_done"], (queue,))
                gone += left + 1
            return gone

        return self._committer.submit(job, grows=False)


def _page(rows: Any, limit: int, max_bytes: int, with_bodies: bool, skip_corrupt: bool) -> Page:
    """Rows to messages, each checked, until the limit of count or bytes."""
    got: list[Row] = []
    room, more, passed, counted = max_bytes, False, 0, 0
    step_over = skip_corrupt and with_bodies
    for row in rows:
        if step_over and not _is_sound(row):
            passed += 1
            continue
        room -= len(row[5])
        if len(got) == limit or (room < 0 and got):
            more = True
            rows.close()
            break
        got.append(row)
        counted = passed  # those after the page's last message are met again by the next page
    if with_bodies and not skip_corrupt:
        _refuse_corrupt(got)
    return Page([_message(row[:6]) for row in got], more, counted if more else passed)


def _is_sound(row: Row) -> bool:
    """A flipped bit may even make a text of a body."""
    return type(row[5]) is bytes and seal_of(row[0], row[3], row[4], row[5]) == row[6]


def _refuse_corrupt(rows: list[Row]) -> None:
    """Most messages have neither content type nor key: for them the seal is one expression, here in place."""
    try:
        suspects = [row for row in rows if (len(row[5]) << 32 | (crc32c(row[5]) ^ row[0] & 0xFFFFFFFF)) != row[6]]
    except TypeError:
        suspects = rows
    for row in suspects:
        if not _is_sound(row):
            named = MessageId(row[0], row[1]).hex
            raise CorruptMessage(f"message {named} does not match its checksum: step over it with skip_corrupt=true")


_message = partial(tuple.__new__, Message)
"""A row as a message, without the cost of calling its constructor."""


def _queue(row: Row) -> Queue:
    application, name, key, created, partitions, kind, consistency, principals = row
    return Queue(
        application,
        name,
        uuid.UUID(bytes=key),
        created,
        partitions,
        QueueKind(kind),
        Consistency(consistency),
        tuple(json.loads(principals)),
    )


def _queue_row(queue: Queue) -> Row:
    return (
        queue.application,
        queue.name,
        queue.uuid.bytes,
        queue.created_ticks,
        queue.partitions,
        str(queue.kind),
        str(queue.consistency),
        json.dumps(queue.principals),
    )
