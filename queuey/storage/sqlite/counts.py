"""Counts what lies in a span of an embedded store, from its indexes alone.

It reads no message.
"""

from __future__ import annotations

from collections.abc import Iterator

from queuey.ids import MessageId
from queuey.model import ReadRequest, Span, SpanCount
from queuey.storage.checksums import corrupt
from queuey.storage.sqlite.pages import Ask, PackEntry, PageBuilder, head_of
from queuey.storage.sqlite.rows import partition_of
from queuey.storage.sqlite.statements import SQL

__all__ = ["count_span", "end_of"]


def count_span(ask: Ask, partition_key: bytes, span: Span, now_ticks: int, limit: int, step: int) -> SpanCount:
    """See :meth:`queuey.storage.MessageStore.count_span`.

    :raises CorruptMessage: a pack's ids are damaged.
    """
    count = _Count(ask, partition_key, now_ticks, limit, step)
    for part in _parts(ask, partition_key, span, now_ticks):
        if count.more:
            break
        if isinstance(part, PackEntry):
            count.take_pack(part, span)
        else:
            count.take_loose(part)
    newest = end_of(ask, partition_key, span, now_ticks, newest=True)
    return SpanCount(newest, min(count.counted, limit), count.more, count.split_points)


class _Count:
    """Counts messages in order, up to one more than a limit.

    It notes every n-th as a split point.
    """

    def __init__(self, ask: Ask, partition_key: bytes, now_ticks: int, limit: int, step: int) -> None:
        self._ask, self._partition_key, self._now = ask, partition_key, now_ticks
        self._limit, self._step = limit, step
        self.counted = 0
        self.split_points: list[MessageId] = []

    @property
    def more(self) -> bool:
        return self.counted > self._limit

    def take_loose(self, span: Span) -> None:
        """Count messages that are in no pack."""
        bound = (self._partition_key, *span.after, *span.upto, self._now)
        ((found,),) = self._ask(SQL["count"], (*bound, self._limit + 1 - self.counted))
        after = span.after
        for _, apart in self._due(found):
            ((ticks, tail),) = self._ask(SQL["id_after"], (self._partition_key, *after, *bound[3:], apart - 1))
            after = MessageId(ticks, tail)
            self.split_points.append(after)
        self.counted += found

    def take_pack(self, entry: PackEntry, span: Span) -> None:
        if entry.is_whole(span, self._now) and not self._is_due(entry.messages):
            self.counted += entry.messages
            return
        head = head_of(self._ask, entry.seq)
        if head is None:
            raise corrupt(entry.first)
        chosen = entry.chosen(head, span, self._now)
        self.split_points += [head.id_at(chosen[at - 1]) for at, _ in self._due(len(chosen))]
        self.counted += len(chosen)

    def _is_due(self, found: int) -> bool:
        """Whether any of the next messages is a split point."""
        step = self._step
        return bool(step) and self.counted // step < min(self.counted + found, self._limit) // step

    def _due(self, found: int) -> Iterator[tuple[int, int]]:
        """The next messages that are split points.

        Each is given as two distances: from the counted messages, and from the last split point.
        """
        if not self._step:
            return
        before = 0
        for number in range(self.counted // self._step + 1, min(self.counted + found, self._limit) // self._step + 1):
            at = number * self._step - self.counted
            yield at, at - before
            before = at


def _parts(ask: Ask, partition_key: bytes, span: Span, now_ticks: int) -> Iterator[PackEntry | Span]:
    """The packs of a span and the spans between them, in order.

    Spans come only if some messages are in no pack.
    """
    bound = (partition_key, *span.after, *span.upto, now_ticks)
    ((has_loose,),) = ask(SQL["count"], (*bound, 1))
    after = span.after
    for row in ask(SQL["packs_in"], bound):
        entry = PackEntry.of_index(row)
        if has_loose and after < entry.first:
            yield Span(after, entry.first.before())
        yield entry
        after = entry.last
    if has_loose and after < span.upto:
        yield Span(after, span.upto)


def end_of(ask: Ask, partition_key: bytes, span: Span, now_ticks: int, *, newest: bool) -> MessageId | None:
    """The first or the last live id of a span.

    Packs whose ids are damaged are skipped.
    """
    sql = SQL["ids_descending" if newest else "ids_ascending"]
    request = ReadRequest(
        partition_of(partition_key), span, 1, newest_first=newest, with_bodies=False, skip_corrupt=True
    )
    builder = PageBuilder(request, now_ticks, ask)
    rows = ask(sql, (partition_key, *span.after, *span.upto, now_ticks))
    try:
        page = builder.page(rows)
    finally:
        rows.close(True)
    return page.messages[0].id if page.messages else None
