"""The messages of one lease group that are read before they are handed out."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice
from time import perf_counter
from typing import NamedTuple

from queuey.errors import QueueyError
from queuey.future import Future, start
from queuey.ids import MessageId
from queuey.model import Columns, Message, Page, PartitionId, ReadRequest
from queuey.storage.cassandra.lease_access import GroupCall
from queuey.storage.cassandra.lease_work import awaited
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.leasing.access import ReadAhead
from queuey.storage.leasing.partition_book import AHEAD_BYTES, MOST_AHEAD, PartitionBook

__all__ = ["Demand", "GroupAhead"]

AHEAD_SECONDS = 1.0
"""How long messages that were read ahead may be handed out: so long may one still be given that another server has
deleted."""
_RENEWED_SECONDS = 0.6
"""Messages of this age are read again while a transaction is under way."""
_READS_TOGETHER = 16
"""Partitions whose messages are read at the same time."""
_STRETCHES = 16
"""The most stretches of a partition that each have an age of their own."""


class Demand(NamedTuple):
    """How many messages calls may be handed."""

    most: int
    """Of any partition."""
    named: Mapping[int, int]
    """More, by partition: of calls that receive from some partitions only."""

    @classmethod
    def by(cls, calls: Iterable[GroupCall]) -> Demand:
        most, named = 0, Counter[int]()
        for call in calls:
            if call.receives_from_all:
                most += call.most
            else:
                named.update(dict.fromkeys(call.receive_from, call.most))
        return cls(min(most, MOST_AHEAD), named)

    def times(self, factor: int) -> Demand:
        """As many calls again."""
        named = {number: factor * most for number, most in self.named.items()}
        return Demand(min(factor * self.most, MOST_AHEAD), named)

    def of(self, number: int) -> int:
        """At most, of one partition."""
        return min(self.most + self.named.get(number, 0), MOST_AHEAD)


class _Reading(NamedTuple):
    """Messages of one partition that are being read."""

    request: ReadRequest
    page: Future[Page]
    began: float
    renews: bool
    """They replace those that were read before."""

    @property
    def size(self) -> int:
        """Bytes in memory, at most."""
        return Columns.of(self.messages).size if self.page.done else AHEAD_BYTES

    @property
    def messages(self) -> Sequence[Message]:
        """Those that are read by now."""
        with suppress(QueueyError):
            return self.page.result().messages if self.page.done else ()
        return ()


class _Stretches:
    """When the messages ahead of one partition were read.

    Those of messages that are handed out stay for a while: the transaction may be undone.
    """

    def __init__(self) -> None:
        self._read: deque[tuple[MessageId, float]] = deque()
        """Up to which message was read when, in order."""

    def add(self, upto: MessageId, began: float) -> None:
        """Note that all messages up to this one are read."""
        if self._read and self._read[-1][0] >= upto:
            return
        self._read.append((upto, began))
        if len(self._read) > _STRETCHES:
            (_, oldest), (upto, _) = self._read.popleft(), self._read.popleft()
            self._read.appendleft((upto, oldest))

    def oldest(self, after: MessageId) -> float | None:
        """When the oldest messages behind an id were read; None if none were."""
        return next((began for upto, began in self._read if upto > after), None)

    def forget(self) -> None:
        """Note that what was read is forgotten."""
        self._read.clear()


class GroupAhead:
    """When the messages that come next were read, and those of states that are forgotten. One thread at a time uses it.

    What the next transaction will need is read while the one before is stored.
    """

    def __init__(self, server: CassandraServer, messages: CassandraMessages) -> None:
        self._server, self._messages = server, messages
        self._stretches: defaultdict[int, _Stretches] = defaultdict(_Stretches)
        """By partition."""
        self._kept: dict[int, ReadAhead] = {}
        """By partition whose state is forgotten."""
        self._reading: dict[int, _Reading] = {}
        """By partition."""
        self._with_more: set[int] = set()
        """Partitions that have more messages than were read."""
        self._usual = Demand(0, {})
        """By the calls of the last transaction."""
        self._began = 0.0

    @property
    def kept_bytes(self) -> int:
        """Of what no state has yet, at most."""
        kept = sum(kept.messages.size for kept in self._kept.values())
        return kept + sum(reading.size for reading in self._reading.values())

    def keep(self, book: PartitionBook) -> None:
        """Keep what was read for a state that is to be forgotten."""
        if book.left:
            self._kept[book.place.number] = book.give_ahead()

    def installed(self, book: PartitionBook) -> None:
        """Go on with what was kept, now that the state is read."""
        kept, read_at = self._kept.pop(book.place.number, None), self._read_at(book)
        if kept is None:
            return
        if read_at is None or self._is_old(book.place, read_at):
            self._stretches[book.place.number].forget()
            self._waste(len(kept.messages))
        else:
            book.take_ahead(kept)

    def _read_at(self, book: PartitionBook) -> float | None:
        """When the messages that come next were read; None if they were not."""
        return self._stretches[book.place.number].oldest(book.state.frontier)

    def _is_kept_long(self, number: int) -> bool:
        read_at = self._stretches[number].oldest(self._kept[number].since)
        return read_at is None or self._began - read_at >= AHEAD_SECONDS

    def _waste(self, messages: int) -> None:
        """Note that messages were read which are not handed out."""
        if messages:
            self._server.observer.leases.wasted_ahead(messages)

    def _is_old(self, place: PartitionId, read_at: float) -> bool:
        """Whether messages are to be read again, since they may have changed."""
        return perf_counter() - read_at > AHEAD_SECONDS or self._server.changed.since(place, read_at)

    def _is_late(self, place: PartitionId, began: float) -> bool:
        """The same of messages whose reading began then. What this transaction itself reads may take its time."""
        return self._server.changed.since(place, began) if began >= self._began else self._is_old(place, began)

    # Before a transaction

    def prepare(self, books: Mapping[int, PartitionBook], watermark: int, now_ticks: int, demand: Demand) -> None:
        """Let messages be read again that are readable by now, or may have changed.

        :param demand: by the calls that are known. Messages that are not in memory are read for all partitions at once.
        """
        self._began = perf_counter()
        for number in [at for at in self._kept if self._is_kept_long(at)]:
            self._waste(len(self._kept.pop(number).messages))
        for number, book in books.items():
            book.next_unread = 0
            read_at = self._read_at(book)
            if read_at is not None and self._is_old(book.place, read_at):
                book.forget_ahead()
                self._stretches[number].forget()
        demand = Demand(max(demand.most, self._usual.most), demand.named)
        for number in [number for number, reading in self._reading.items() if reading.page.done]:
            self._take(number, books)
        for number in _needed(books, demand):
            self._take(number, books)
        needed = _needed(books, demand)
        for first in range(0, len(needed), _READS_TOGETHER):
            some = needed[first : first + _READS_TOGETHER]
            for number in some:
                self._read(books[number], watermark, now_ticks, demand)
            for number in some:
                self._take(number, books)

    def _read(
        self, book: PartitionBook, watermark: int, now_ticks: int, demand: Demand, *, renews: bool = False
    ) -> None:
        """Begin to read messages of one partition."""
        number = book.place.number
        request = book.next_request(watermark, demand.of(number), renews=renews)
        page = start(self._messages.page(request, now_ticks=now_ticks))
        self._reading[number] = _Reading(request, page, perf_counter(), renews)

    def _take(self, number: int, books: Mapping[int, PartitionBook]) -> None:
        """Take in what is read of one partition."""
        reading, book = self._reading.pop(number, None), books.get(number)
        if reading is None:
            return
        if book is None or self._is_late(book.place, reading.began):
            self._waste(len(reading.messages))
            return
        with suppress(QueueyError):  # a step that needs the messages reads them again, and tells
            page = awaited(reading.page)
            if page.more:
                self._with_more.add(number)
            else:
                self._with_more.discard(number)
            if reading.renews:
                book.forget_ahead()
                self._stretches[number].forget()
            book.take_page(reading.request, page)
            if book.left:
                self._stretches[number].add(book.upto, reading.began)

    # During a transaction

    def look_on(
        self, books: Mapping[int, PartitionBook], watermark: int, now_ticks: int, calls: Sequence[GroupCall]
    ) -> None:
        """Begin to read what the next transaction will need.

        :param calls: of this transaction, which is carried out in memory.
        """
        self._usual = Demand.by(calls)
        demand = self._usual.times(2)
        soon = {*_needed(books, demand)} & self._with_more
        for number, book in books.items():
            if len(self._reading) >= _READS_TOGETHER:
                return
            if number in self._reading or book.passes_over:
                continue
            read_at = self._read_at(book)
            if read_at is not None and self._began - read_at > _RENEWED_SECONDS:
                self._read(book, watermark, now_ticks, demand, renews=True)
            elif number in soon:
                self._read(book, watermark, now_ticks, demand)

    def note(self, books: Mapping[int, PartitionBook]) -> None:
        """Note when messages were read that lie ahead now."""
        for number, book in books.items():
            if len(book.ahead):
                self._stretches[number].add(book.upto, self._began)
            else:
                self._stretches[number].forget()


def _needed(books: Mapping[int, PartitionBook], demand: Demand) -> Sequence[int]:
    """Partitions of which more is to be read, for the messages that wait longest to be in memory."""
    short = [number for number, book in books.items() if book.left < demand.of(number) and not book.passes_over]
    if not short:
        return ()
    most = demand.most
    ticks = merge(*[book.ahead.ticks[book.at : book.at + most] for book in books.values()])
    last = next(islice(ticks, most - 1, None), None) if most else None
    return [number for number in short if _is_needed(books[number], demand.named.get(number, 0), last, most)]


def _is_needed(book: PartitionBook, named: int, last: int | None, most: int) -> bool:
    """:param last: the ticks of the last message that calls of all partitions may be handed; None if that is not known."""
    if book.left < named or (most and not book.left):
        return True
    return most > 0 and (last is None or book.ahead.ticks[-1] < last)
