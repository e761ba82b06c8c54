"""What lies in a partition of an embedded store, told from its indexes without reading its messages."""

from __future__ import annotations

from collections.abc import Iterator

from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model import PartitionState, ReadRequest, Span, Survey
from queuey.storage.checksums import corrupt
from queuey.storage.sqlite.pages import Ask, PackEntry, PageBuilder, head_of
from queuey.storage.sqlite.rows import partition_of
from queuey.storage.sqlite.statements import SQL

__all__ = ["inspect", "survey"]


def inspect(ask: Ask, place: bytes, now_ticks: int) -> PartitionState:
    """See :meth:`queuey.storage.MessageStore.inspect`."""
    ((loose, scheduled),) = ask(SQL["depth"], (place, now_ticks, now_ticks))
    ((together,),) = ask(SQL["packs_depth"], (place, now_ticks))
    depth = loose + int(together)
    for (seq,) in ask(SQL["packs_expiring"], (place, now_ticks)):
        head = head_of(ask, seq)
        depth += 0 if head is None else sum([expires > now_ticks for expires in head.expires_ticks])
    oldest, newest = (_end(ask, place, Span(ZERO_ID, MAX_ID), now_ticks, newest=newest) for newest in (False, True))
    return PartitionState(depth, int(scheduled), oldest, newest)


def survey(ask: Ask, place: bytes, span: Span, now_ticks: int, limit: int, every: int) -> Survey:
    """See :meth:`queuey.storage.MessageStore.survey`.

    :raises CorruptMessage: a pack's ids are not as they were written.
    """
    count = _Count(ask, place, now_ticks, limit, every)
    for part in _parts(ask, place, span, now_ticks):
        if count.more:
            break
        if isinstance(part, PackEntry):
            count.take_pack(part, span)
        else:
            count.take_loose(part)
    newest = _end(ask, place, span, now_ticks, newest=True)
    return Survey(newest, min(count.counted, limit), count.more, count.marks)


class _Count:
    """Counts messages in order, up to one more than a limit, and marks each so many-th."""

    def __init__(self, ask: Ask, place: bytes, now_ticks: int, limit: int, every: int) -> None:
        self._ask, self._place, self._now = ask, place, now_ticks
        self._limit, self._every = limit, every
        self.counted = 0
        self.marks: list[MessageId] = []

    @property
    def more(self) -> bool:
        return self.counted > self._limit

    def take_loose(self, span: Span) -> None:
        """Messages in no pack."""
        bound = (self._place, *span.after, *span.upto, self._now)
        ((found,),) = self._ask(SQL["count"], (*bound, self._limit + 1 - self.counted))
        after = span.after
        for _, step in self._due(found):
            ((ticks, tail),) = self._ask(SQL["id_after"], (self._place, *after, *bound[3:], step - 1))
            after = MessageId(ticks, tail)
            self.marks.append(after)
        self.counted += found

    def take_pack(self, entry: PackEntry, span: Span) -> None:
        if entry.is_whole(span, self._now) and not self._is_due(entry.messages):
            self.counted += entry.messages
            return
        head = head_of(self._ask, entry.seq)
        if head is None:
            raise corrupt(entry.first)
        chosen = entry.chosen(head, span, self._now)
        self.marks += [head.id_at(chosen[at - 1]) for at, _ in self._due(len(chosen))]
        self.counted += len(chosen)

    def _is_due(self, found: int) -> bool:
        """Whether any of the next messages is to be marked."""
        every = self._every
        return bool(every) and self.counted // every < min(self.counted + found, self._limit) // every

    def _due(self, found: int) -> Iterator[tuple[int, int]]:
        """Which of the next messages are to be marked: how many after those counted, and after the mark before."""
        if not self._every:
            return
        before = 0
        for number in range(self.counted // self._every + 1, min(self.counted + found, self._limit) // self._every + 1):
            at = number * self._every - self.counted
            yield at, at - before
            before = at


def _parts(ask: Ask, place: bytes, span: Span, now_ticks: int) -> Iterator[PackEntry | Span]:
    """The packs of a span, and the spans between them if any message is in no pack, in order."""
    bound = (place, *span.after, *span.upto, now_ticks)
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


def _end(ask: Ask, place: bytes, span: Span, now_ticks: int, *, newest: bool) -> MessageId | None:
    """The first or the last live id of a span, stepping over packs whose ids are damaged."""
    sql = SQL["ids_descending" if newest else "ids_ascending"]
    request = ReadRequest(partition_of(place), span, 1, newest_first=newest, with_bodies=False, skip_corrupt=True)
    builder = PageBuilder(request, now_ticks, ask)
    rows = ask(sql, (place, *span.after, *span.upto, now_ticks))
    try:
        page = builder.page(rows)
    finally:
        rows.close(True)
    return page.messages[0].id if page.messages else None
