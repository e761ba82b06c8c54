"""What waits behind the offsets of a streaming query.

It is looked at, counted, and cut to a limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import ceil
from typing import Literal

from qdo.client import Client, SpanCounts
from qdo.pipeline.candidates import Candidates
from qdo.pipeline.checkpoint import Offsets, QueueOffset
from qdo.pipeline.options import ReadOptions
from qdo.pipeline.planner import check_partitions, check_queues, place_of
from qdo.pipeline.spans import TASK_ROWS, Part, shares
from qdo.pipeline.task_reader import Counting, connect, log, subscribed, survey
from queuey.errors import CursorLost, DataLost, QueueNotFound, ServerUnreachable
from queuey.ids import MAX_TICKS, ZERO_ID, MessageId

__all__ = ["Backlog", "Waiting"]

Waiting = dict[tuple[str, int], int]
"""Messages that can be read, by queue and partition, counted up to a limit."""


class Backlog:
    """The queues of one streaming query, from one look to the next.

    The driver has it.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._opened: Client | None = None
        self._candidates = Candidates(options.subscription)
        self._target: dict[str, QueueOffset] | None = None
        """Where a run with Trigger.AvailableNow ends; None for any other run."""
        self._counts: dict[tuple[str, int, MessageId, MessageId], int] = {}
        """Messages of the spans that were planned last."""
        self._waited = 0
        """Partitions that had messages at the last look."""
        self._more: set[tuple[str, int]] = set()
        """Partitions that had more than were counted."""
        self._split_points: dict[tuple[str, int, int], MessageId] = {}
        """By queue, partition and a number of messages: the id of the last of them, if it is known."""

    @property
    def client(self) -> Client:
        """Connected when it is first needed."""
        if self._opened is None:
            self._opened = connect(self._options.reach)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    @property
    def has_target(self) -> bool:
        return self._target is not None

    def begin(self) -> dict[str, QueueOffset]:
        """Where a query without a checkpoint begins."""
        names = self._names()
        check_queues(self._options.start, names)
        return {name: first for name in names if (first := self._first(name)) is not None}

    def fix_target(self) -> None:
        """Let what is there now be all that this run reads."""
        self._target = {}
        for name in self._names():
            # A missing queue is reported once it is known whether the query had begun with it.
            with suppress(QueueNotFound):
                self._target[name] = _offset(survey(self.client, name, partitions=self._partitions(name)))

    def _names(self) -> Sequence[str]:
        return subscribed(self.client, self._options.subscription)

    def _partitions(self, queue: str) -> Sequence[int] | Literal["all"]:
        """The partitions that are assigned, or all there are and will be."""
        assigned = self._options.subscription.assigned
        return "all" if assigned is None else assigned[queue]

    def _first(self, queue: str) -> QueueOffset | None:
        """Where a queue begins; None if it does not exist.

        :raises DataLost: it is named, and does not exist. A pattern only means queues that exist.
        """
        try:
            there = survey(self.client, queue)
        except QueueNotFound as error:
            if self._options.fail_on_data_loss and self._options.subscription.pattern is None:
                raise DataLost(f"there is no queue {queue}: failOnDataLoss=false waits for it") from error
            return None
        numbers = self._options.subscription.numbers(queue, there.partitions)
        if self._options.since_ticks is not None:
            begins = dict.fromkeys(numbers, self._beginning) if self._beginning > ZERO_ID else {}
            return QueueOffset(there.incarnation, begins)
        check_partitions(self._options.start, queue, there.partitions)
        places = {number: place_of(self._options.start, queue, number, "latest") for number in numbers}
        ids = {number: there.spans[number].newest if place == "latest" else place for number, place in places.items()}
        return QueueOffset(there.incarnation, {n: id_ for n, id_ in ids.items() if isinstance(id_, MessageId)})

    @property
    def _beginning(self) -> MessageId:
        """Before all messages that are wanted of a partition which no offset names."""
        since = self._options.since_ticks
        # Not the last message before: the moment may be to come, and what is stored until then is not wanted either.
        return ZERO_ID if since is None or since <= 0 else MessageId.first_of(min(since, MAX_TICKS))

    def _reached(self, offset: QueueOffset | None, number: int) -> MessageId:
        """The last id read of a partition, or its beginning."""
        return self._beginning if offset is None else offset.ids.get(number, self._beginning)

    # One look

    def look(self, offsets: Offsets, most: int | None) -> tuple[dict[str, QueueOffset], Waiting]:
        """How far the queues can be read, and how many messages that would be.

        Messages of a partition are counted as far as it matters. Under a limit, that is two even shares of the limit,
        by the number of partitions that had messages at the last look. Most spans are cut at the end of one share, so
        the same request asks for that id: to count 200,000 messages in each of eight partitions took 38 of the 47 ms
        of a look (measured). If that does not add up to the limit, because few partitions have most of the messages,
        they are counted up to the limit.

        :raises ServerUnreachable: no server answers. Of several, the first that does is asked from now on.
        """
        try:
            return self._looked(offsets, most)
        except ServerUnreachable:
            if len(self._options.reach.urls) == 1:
                raise
        self.close()
        self._opened = None
        # The look that failed may have learned of new queues, which are named once only.
        self._candidates = Candidates(self._options.subscription)
        return self._looked(offsets, most)

    def _looked(self, offsets: Offsets, most: int | None) -> tuple[dict[str, QueueOffset], Waiting]:
        names = self._candidates.now(self.client)
        countings = [Counting(max(TASK_ROWS, self._options.min_per_trigger or 0))]
        if most is not None:
            countings = [Counting(most + 1)]  # one more, to know whether there is more
            if self._waited:
                share = ceil(most / self._waited)
                countings.insert(0, Counting(min(2 * share, most + 1), share))
        for counting in countings:
            newest, waiting = self._counted(names, offsets, counting)
            if most is None or not self._more or sum(waiting.values()) > most:
                break
        self._waited = len(waiting)
        self._candidates.left(name for name, _ in waiting)
        return newest, waiting

    def _counted(
        self, names: Iterable[str], offsets: Offsets, counting: Counting
    ) -> tuple[dict[str, QueueOffset], Waiting]:
        newest: dict[str, QueueOffset] = {}
        waiting: Waiting = {}
        for known in (self._counts, self._split_points, self._more):
            known.clear()
        for name in names:
            offset = offsets.get(name)
            found = self._survey(name, offset, counting)
            if found is None:
                continue
            if offset is None or offset.incarnation != found.incarnation:
                offset = QueueOffset(found.incarnation, {})
            begins: dict[int, MessageId] = {}
            if self._beginning > ZERO_ID and not offset.ids.keys() >= found.spans.keys():
                # They were counted from their first message. The offset names them from now on.
                begins = {number: self._reached(offset, number) for number in found.spans}
                found = self._survey(name, QueueOffset(found.incarnation, begins), counting)
                if found is None or found.incarnation != offset.incarnation:
                    continue
            ends = self._ends(name, found)
            ahead = {number: end for number, end in ends.items() if end > self._reached(offset, number)}
            newest[name] = QueueOffset(found.incarnation, {**offset.ids, **begins, **ahead})
            for number, end in ahead.items():
                span = found.spans[number]
                waiting[name, number] = span.messages or 1
                if counting.step is not None and span.split_points:
                    self._split_points[name, number, counting.step] = span.split_points[0]
                if span.more:
                    self._more.add((name, number))
                elif end == span.newest:
                    self._counts[name, number, self._reached(offset, number), end] = span.messages or 0
        return newest, waiting

    def _survey(self, queue: str, offset: QueueOffset | None, counting: Counting) -> SpanCounts | None:
        """What came behind an offset, in all partitions.

        It is None if the queue does not exist and need not.

        :raises DataLost: a queue that is named was deleted or made anew. A pattern only means queues that exist.
        """
        try:
            return survey(self.client, queue, offset, partitions=self._partitions(queue), counting=counting)
        except (CursorLost, QueueNotFound) as error:
            if isinstance(error, QueueNotFound) and self._options.subscription.pattern is not None:
                return None
            if self._options.fail_on_data_loss:
                raise DataLost(
                    f"queue {queue} was deleted, or made anew ({error}): failOnDataLoss=false goes on with what is there now"
                ) from error
            log.warning("queue %s was deleted, or made anew: going on with what is there now", queue)
            if isinstance(error, QueueNotFound):
                return None
            return survey(self.client, queue, partitions=self._partitions(queue), counting=counting)

    def _ends(self, queue: str, found: SpanCounts) -> Mapping[int, MessageId]:
        """The last ids of a queue's partitions, none behind the target of AvailableNow."""
        ends = _offset(found).ids
        if self._target is None:
            return ends
        target = self._target.get(queue)
        if target is None or target.incarnation != found.incarnation:
            return {}
        return {number: min(end, target.at(number)) for number, end in ends.items()}

    # Cutting

    def cut(
        self, offsets: Offsets, newest: dict[str, QueueOffset], waiting: Waiting, most: int
    ) -> dict[str, QueueOffset]:
        """Offsets that are ``most`` messages ahead.

        The partitions share the limit in proportion to the messages that wait, as far as these were counted.
        """
        begun = {(name, number): self._reached(offsets.get(name), number) for name, number in waiting}
        cut = {
            where: share
            for where, share in zip(waiting, shares(list(waiting.values()), most), strict=True)
            if share < waiting[where] or where in self._more
        }
        self._find_split_points(cut, begun, newest)
        ends = {name: dict(offset.ids) for name, offset in newest.items()}
        for (name, number), share in cut.items():
            point = self._split_points.get((name, number, share))
            if point is not None and point < ends[name][number]:
                ends[name][number] = point
                self._counts[name, number, begun[name, number], point] = share
        return {name: QueueOffset(offset.incarnation, ends[name]) for name, offset in newest.items()}

    def _find_split_points(self, cut: Waiting, begun: Mapping[tuple[str, int], MessageId], newest: Offsets) -> None:
        """Look up the last ids of these shares, where they are not known.

        Partitions of one queue with equal shares need one request.
        """
        alike: dict[tuple[str, int], dict[int, MessageId]] = defaultdict(dict)
        for (name, number), share in cut.items():
            if (name, number, share) not in self._split_points:
                alike[name, share][number] = begun[name, number]
        for (name, share), places in alike.items():
            behind = QueueOffset(newest[name].incarnation, places)
            try:
                found = survey(self.client, name, behind, counting=Counting(share, share))
            except (CursorLost, QueueNotFound):
                continue  # deleted since the look: the task that reads it says so
            for number, span in found.spans.items():
                if number in places and span.split_points:
                    self._split_points[name, number, share] = span.split_points[0]

    def parts(self, start: Offsets, end: Offsets) -> Iterator[Part]:
        """The spans between two offsets, with the messages of those that were counted."""
        for name, offset in end.items():
            before = start.get(name)
            if before is None or before.incarnation != offset.incarnation:
                before = QueueOffset(offset.incarnation, {})
            for number, upto in offset.ids.items():
                after = self._reached(before, number)
                if after < upto:
                    messages = self._counts.get((name, number, after, upto))
                    yield Part(name, offset.incarnation, number, after, upto, messages)


def _offset(found: SpanCounts) -> QueueOffset:
    """Behind all that was found."""
    ids = {number: span.newest for number, span in found.spans.items() if span.newest is not None}
    return QueueOffset(found.incarnation, ids)
