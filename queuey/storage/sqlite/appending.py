"""Appends inside a transaction of an embedded store, with their idempotency keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuey.clock import Clock
from queuey.errors import KeyReused, QueueNotFound
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import Appended, AppendRequest, Draft, Drafts, IdempotencyKey, Location, LocationsInOrder
from queuey.storage.checksums import NOTHING_BESIDE, beside, making_sense
from queuey.storage.sqlite import packs
from queuey.storage.sqlite.checked_rows import with_checksum, without_checksum
from queuey.storage.sqlite.packing import Ready, insert
from queuey.storage.sqlite.remembering import KEYS, key_seq, place_of
from queuey.storage.sqlite.rows import PARTITION_BYTES, message_row
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Transaction

__all__ = ["SqliteAppender", "ready_apart"]

_IN_ORDER = b"\xff"
"""Stands where a partition's number would stand. The value stored for an idempotency key is then one id, followed by
the partitions of the messages that were stamped from it on. Otherwise it is 17 bytes for each message: its partition's
number and its id."""
_LOCATION_BYTES = 17


class SqliteAppender:
    """Stores the messages of a request, without repeating them."""

    def __init__(self, clock: Clock, dropped: set[bytes]) -> None:
        """:param dropped: incarnations that accept no more messages."""
        self._clock = clock
        self._dropped = dropped

    def append(self, transaction: Transaction, request: AppendRequest, made: Ready | None) -> Appended:
        """:param made: the drafts, ready to be stored.
        :raises QueueNotFound, KeyReused: nothing is stored.
        """
        queue, drafts, idempotency, _ = request
        key = queue.uuid.bytes
        if key in self._dropped:
            raise QueueNotFound
        if idempotency is not None:
            earlier = self._earlier(transaction, key, idempotency)
            if earlier is not None:
                return Appended(earlier, repeated=True)
        if _have_keys(drafts):
            return self._append_keyed(transaction, key, drafts, idempotency)
        placed = _insert(transaction, key, drafts, made)
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
            own = draft.idempotency
            if idempotency is not None and own not in (None, idempotency) and own.key == idempotency.key:
                raise KeyReused
            known.append(self._known(transaction, queue, own, drafts, first))
            if own is not None:
                first.setdefault(own.key, index)
        new = [draft for draft, earlier in zip(drafts, known, strict=True) if earlier is None]
        inserted = iter(_insert(transaction, queue, new, None))
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
        """The location of a draft with this key, if it is stored already.

        It is a location in the store, or an index in the draft's own batch.
        """
        if idempotency is None:
            return None
        index = first.get(idempotency.key)
        if index is not None:
            if drafts[index].idempotency != idempotency:
                raise KeyReused
            return index
        earlier = self._earlier(transaction, queue, idempotency)
        return None if earlier is None else earlier[0]

    def _earlier(
        self, transaction: Transaction, queue: bytes, idempotency: IdempotencyKey
    ) -> Sequence[Location] | None:
        """The locations that an earlier request stored under this key."""
        key = idempotency.key
        row = transaction.named(KEYS, queue, key)
        if row is None:
            asked = (place_of(queue, key), queue, key, self._clock.now_ticks())
            rows = transaction.look(SQL["idempotency_find"], asked)
            if not rows:
                return None
            row = rows[0]
        with making_sense():
            _, _, _, _, digest, answer, _ = without_checksum(row)
        if digest != idempotency.digest:
            raise KeyReused
        with making_sense():
            if answer[:1] == _IN_ORDER:
                return LocationsInOrder(MessageId.from_bytes(answer[1:17]), answer[17:])
            starts = range(0, len(answer), _LOCATION_BYTES)
            return [Location(answer[at], MessageId.from_bytes(answer[at + 1 : at + 17])) for at in starts]

    def _remember(
        self, transaction: Transaction, queue: bytes, idempotency: IdempotencyKey, placed: Sequence[Location]
    ) -> None:
        if isinstance(placed, LocationsInOrder):
            answer = _IN_ORDER + placed.first.bytes + placed.partitions
        else:
            answer = b"".join([PARTITION_BYTES[number] + id_.bytes for number, id_ in placed])
        key, digest, seconds = idempotency
        expires = transaction.ids.stamp() + seconds * TICKS_PER_SECOND
        values = (key_seq(expires, seconds), place_of(queue, key), queue, key, digest, answer, expires)
        transaction.keep(KEYS, with_checksum(values), queue, key)


def ready(drafts: Sequence[Draft]) -> Ready | None:
    """Drafts ready to be stored in packs.

    None if they are too few, or some are not due now.
    """
    if len(drafts) < packs.LEAST:
        return None
    columns = Drafts.of(drafts)
    return Ready.of(columns) if columns.dues.count(None) == len(columns) else None


def ready_apart(drafts: Sequence[Draft]) -> Ready | None:
    """The part of :func:`ready` that can run before the committer's turn.

    It does nothing for drafts with keys of their own, since the store may have some of them.
    """
    return None if _have_keys(drafts) else ready(drafts)


def _have_keys(drafts: Sequence[Draft]) -> bool:
    """Whether some of them have an idempotency key of their own."""
    if len(drafts) == 1:
        return drafts[0].idempotency is not None
    keys: Sequence[Any] = (
        drafts.idempotency_keys if isinstance(drafts, Drafts) else [draft.idempotency for draft in drafts]
    )
    return keys.count(None) < len(keys)


def _insert(transaction: Transaction, queue: bytes, drafts: Sequence[Draft], made: Ready | None) -> Sequence[Location]:
    made = made or ready(drafts)
    return _insert_each(transaction, queue, drafts) if made is None else insert(transaction, queue, made)


def _insert_each(transaction: Transaction, queue: bytes, drafts: Sequence[Draft]) -> list[Location]:
    ids, insert_row = transaction.ids, transaction.insert
    tick, now_tail = ids.stamp(len(drafts)) if drafts else 0, ids.tail
    placed = []
    for partition, body, ttl, content_type, key, due, _, headers in drafts:
        if due is None or due <= tick:
            message_id = MessageId(tick, now_tail)
            tick += 1
        else:
            message_id = MessageId(due, ids.scheduled_tail())
        expires = message_id.ticks + ttl * TICKS_PER_SECOND
        plain = content_type is None and key is None and headers is None
        around = NOTHING_BESIDE if plain else beside(content_type, key, headers)
        insert_row(message_row(queue + PARTITION_BYTES[partition], message_id, expires, body, around))
        placed.append(Location(partition, message_id))
    return placed
