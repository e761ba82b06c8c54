"""Removes spans of messages from an embedded store: rows one by one, packs as a whole."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from queuey.ids import MessageId
from queuey.model import Span, SpanRemoval
from queuey.storage.checksums import corrupt
from queuey.storage.sqlite.packing import remove, uncount
from queuey.storage.sqlite.pages import pack_of
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Row, Transaction

__all__ = ["remove_span"]

_PACK_ROWS = 100
"""Rows that are deleted in the time of one pack."""
_MOST_BYTES = 16 << 20
"""Bytes of bodies that are deleted together: the file's pages that they take are read for it."""


class _Pack(NamedTuple):
    first: MessageId
    last: MessageId
    seq: int
    messages: int


def remove_span(
    transaction: Transaction, partition_key: bytes, span: Span, most: int, *, whole: bool = False
) -> SpanRemoval:
    """See :meth:`queuey.storage.MessageStore.delete_span`. If it raises, it has changed nothing."""
    where = (partition_key, *span.after, *span.upto)
    rows = transaction.execute(SQL["span_rows"], (*where, most))
    packs = transaction.execute(SQL["span_packs"], (*where, most // _PACK_ROWS + 1))
    end = min(
        span.upto,
        _end(rows, span.upto, is_cut=len(rows) == most),
        _end(packs, span.upto, is_cut=len(packs) > most // _PACK_ROWS),
    )
    if packs:
        with transaction.whole():
            return _remove_with_packs(transaction, partition_key, Span(span.after, end), packs, whole=whole)
    removed = _delete_between(transaction, "delete_between", partition_key, Span(span.after, end)) if rows else 0
    return SpanRemoval(removed, end)


def _remove_with_packs(
    transaction: Transaction, partition_key: bytes, span: Span, packs: list[Row], *, whole: bool
) -> SpanRemoval:
    """:raises CorruptMessage: a pack that is to be removed in part is damaged."""
    (after, end), removed = span, 0
    for first_ticks, first_tail, messages, seq, last_ticks, last_tail, _ in packs:
        pack = _Pack(MessageId(first_ticks, first_tail), MessageId(last_ticks, last_tail), seq, messages)
        if whole and pack.first <= end < pack.last:
            end = max(pack.first.before(), after)
            break
        if pack.first <= end and (pack.first <= after or pack.last > end):
            removed += _remove_part(transaction, partition_key, pack, Span(after, end))
    for statement in ("delete_between", "packs_delete_between"):
        removed += _delete_between(transaction, statement, partition_key, Span(after, end))
    return SpanRemoval(removed, end)


def _delete_between(transaction: Transaction, statement: str, partition_key: bytes, span: Span) -> int:
    """Delete whole rows or whole packs of a span; returns how many messages they had."""
    deleted = transaction.execute(SQL[statement], (partition_key, *span.after.following(), *span.upto))
    uncount(transaction, partition_key, deleted)
    transaction.counted.note_change(partition_key)
    return sum([messages for messages, _ in deleted])


def _end(rows: list[Row], upto: MessageId, *, is_cut: bool) -> MessageId:
    """Up to where these may be removed together.

    :param rows: the ticks and the tail of a last id, and the bytes of bodies, come last in each row.
    :param is_cut: there may be more of them.
    """
    within = sum(1 for size in accumulate([row[-1] for row in rows]) if size <= _MOST_BYTES)
    if within == len(rows) and not is_cut:
        return upto
    *_, ticks, tail, _ = rows[max(within, 1) - 1]
    return MessageId(ticks, tail)


def _remove_part(transaction: Transaction, partition_key: bytes, pack: _Pack, span: Span) -> int:
    """Remove those messages of a pack that lie in a span; the others become rows."""
    head, _ = pack_of(transaction.look, pack.seq)
    if head is None:
        raise corrupt(pack.first)
    inside = [id_ for id_ in map(head.id_at, range(pack.messages)) if span.after < id_ <= span.upto]
    if inside:
        remove(transaction, partition_key, inside)
    return len(inside)
