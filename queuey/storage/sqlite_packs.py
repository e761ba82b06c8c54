"""Making packs, and taking them apart, inside a transaction of an embedded store.

Three things keep a pack's range to itself, so that a reader merges nothing: what came as a batch is stamped without gaps, and
is packed only if no scheduled message is due in between; what is stored under an id of its own has the pack around it
unpacked before; and what is packed later is all there is between two ids below the watermark.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from queuey.errors import CorruptMessage
from queuey.ids import MessageId
from queuey.model import Columns, Span
from queuey.storage import packs
from queuey.storage.packs import cut, encoded, packed, read_whole
from queuey.storage.seals import corrupt, seals_of
from queuey.storage.sqlite_committer import Transaction
from queuey.storage.sqlite_file import SQL
from queuey.storage.sqlite_pages import PageBuilder, Wanted, pack_of

__all__ = ["insert", "remove", "seal"]


def insert(transaction: Transaction, place: bytes, columns: Columns) -> None:
    """Insert messages of one partition, in packs where they are many.

    :param columns: ids rising; no message between them is in a pack.
    """
    crossed = _any_between(transaction, place, columns)
    for run in cut(columns):
        if len(run) < packs.LEAST or (crossed and _any_between(transaction, place, run)):
            _insert_rows(transaction, place, run, _seals(run))
        else:
            _insert_pack(transaction, place, run)
            transaction.inserted += len(run)


def remove(transaction: Transaction, place: bytes, ids: Collection[MessageId]) -> None:
    """Remove messages by id, there or not. Afterwards no pack has one of these ids between its ends.

    :raises CorruptMessage: of a pack's messages that cannot be told from each other; those before it are removed, see
        :meth:`Transaction.whole`.
    """
    for message_id in ids:
        transaction.execute(SQL["delete_message"], (place, *message_id))
        if not transaction.connection.changes():
            for seq, *_ in transaction.look(SQL["pack_over"], (place, *message_id)):
                _unpack(transaction, place, seq, ids)


def seal(transaction: Transaction, place: bytes, span: Span, now_ticks: int) -> MessageId | None:
    """Make one pack of what lies loose, or in small packs, at the beginning of a span.

    What is left at the end of the span and fills no pack stays as it is: it may grow.

    :param span: not past the watermark.
    :returns: where to go on; None at the end of the span, or where a message is damaged.
    """
    span = Span(_behind_pack(transaction, place, span.after), span.upto)
    builder = PageBuilder(Wanted(span, packs.MOST, now_ticks, max_bytes=packs.MOST_BYTES), transaction.look)
    try:
        page = builder.page(transaction.cursor(SQL["read_ascending"], (place, *span.after, *span.upto, now_ticks)))
    except CorruptMessage:
        return None
    parts, taken = builder.whole()
    found = Columns.joined(parts)
    if not page.more or not found:
        return None
    if len(found) >= packs.LEAST and (len(parts) > 1 or not taken):
        for seq in taken:
            transaction.look(SQL["pack_delete"], (seq,))
        for leftovers in ("delete_between", "packs_delete_between"):  # expired, so not found
            transaction.execute(SQL[leftovers], (place, *found[0].id, *found[-1].id))
        _insert_pack(transaction, place, found)
    return found[-1].id


def _behind_pack(transaction: Transaction, place: bytes, after: MessageId) -> MessageId:
    """The end of the pack that an id lies in, or the id."""
    for _, *last in transaction.look(SQL["pack_over"], (place, *after)):
        return MessageId(*last)
    return after


def _insert_pack(transaction: Transaction, place: bytes, columns: Columns) -> None:
    head, rest = packed(columns)
    known = (place, *_first_and_last(columns), len(columns), *_bounds(columns.expires_ticks))
    transaction.look(SQL["pack_insert"], (*known, head.crc, rest.crc, head.data, rest.data))


def _bounds(values: Sequence[int]) -> tuple[int, int]:
    """The least and the greatest."""
    return (values[0], values[-1]) if isinstance(values, range) else (min(values), max(values))


def _any_between(transaction: Transaction, place: bytes, columns: Columns) -> bool:
    return bool(transaction.execute(SQL["any_between"], (place, *_first_and_last(columns))))


def _first_and_last(columns: Columns) -> tuple[int, int, int, int]:
    """The ids of these two."""
    return columns.ticks[0], columns.tails[0], columns.ticks[-1], columns.tails[-1]


def _insert_rows(transaction: Transaction, place: bytes, columns: Columns, seals: Sequence[int]) -> None:
    kinds, keys = encoded(columns.content_types), encoded(columns.keys)
    for message, kind, key, seal_ in zip(columns, kinds, keys, seals, strict=True):
        transaction.insert((place, message.ticks, message.tail, message.expires_ticks, seal_, kind, key, message.body))


def _unpack(transaction: Transaction, place: bytes, seq: int, without: Collection[MessageId]) -> None:
    """Make rows of a pack's messages: what was damaged stays so.

    :raises CorruptMessage: its messages cannot be told from each other; nothing changed.
    """
    head, rest = pack_of(transaction.look, seq)
    if head is None:
        raise corrupt(next(iter(without)))
    try:
        columns, sound = read_whole(head, rest)
    except ValueError as error:
        raise corrupt(next(iter(without))) from error
    transaction.look(SQL["pack_delete"], (seq,))
    kept = [at for at in range(len(columns)) if head.id_at(at) not in without]
    transaction.inserted -= len(kept)  # counted when they came
    if kept:
        rows = packs.taken_from(columns, kept)
        seals = [seal if sound[at] else ~seal for at, seal in zip(kept, _seals(rows), strict=True)]
        _insert_rows(transaction, place, rows, seals)


def _seals(columns: Columns) -> list[int]:
    kinds, keys = encoded(columns.content_types), encoded(columns.keys)
    return seals_of(columns.ticks, columns.tails, kinds, keys, columns.bodies)
