"""The messages of one lease group that are read before they are handed out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import perf_counter

from queuey.errors import QueueyError
from queuey.future import start
from queuey.model import PartitionId
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.leasing.access import ReadAhead
from queuey.storage.leasing.book import MOST_AHEAD, PartitionBook

__all__ = ["GroupAhead"]

AHEAD_SECONDS = 1.0
"""How long messages that were read ahead may be handed out: so long may one still be given that another server has
deleted."""
_READS_TOGETHER = 16
"""Partitions whose messages are read at the same time."""


class GroupAhead:
    """When the messages that come next were read, and those of states that are forgotten. One thread at a time uses it."""

    def __init__(self, server: CassandraServer, messages: CassandraMessages) -> None:
        self._server, self._messages = server, messages
        self._read_at: dict[int, float] = {}
        """By partition, when messages were read ahead."""
        self._kept: dict[int, ReadAhead] = {}
        """By partition whose state is forgotten."""
        self._began = 0.0

    @property
    def kept_bytes(self) -> int:
        return sum(kept.messages.size for kept in self._kept.values())

    def keep(self, book: PartitionBook) -> None:
        """Keep what was read for a state that is to be forgotten."""
        if book.left:
            self._kept[book.place.number] = book.read_ahead()

    def installed(self, book: PartitionBook) -> None:
        """Go on with what was kept, now that the state is read."""
        number = book.place.number
        kept, read_at = self._kept.pop(number, None), self._read_at.pop(number, None)
        if kept is not None and read_at is not None and not self._is_old(book.place, read_at):
            book.take_ahead(kept)
            self._read_at[number] = read_at

    def _is_old(self, place: PartitionId, read_at: float) -> bool:
        """Whether messages are to be read again, since they may have changed."""
        return perf_counter() - read_at > AHEAD_SECONDS or self._server.changed.since(place, read_at)

    def prepare(self, books: Mapping[int, PartitionBook], watermark: int, now_ticks: int, *, most: int) -> None:
        """Let messages be read again that are readable by now, or may have changed.

        :param most: messages that may be handed out. Those that are not in memory are read for all partitions at once.
        """
        self._began = perf_counter()
        self._kept = {
            at: kept for at, kept in self._kept.items() if self._began - self._read_at.get(at, 0.0) < AHEAD_SECONDS
        }
        for number, book in books.items():
            book.next_unread = 0
            read_at = self._read_at.get(number)
            if read_at is not None and self._is_old(book.place, read_at):
                book.forget_ahead()
                del self._read_at[number]
        few = min(most, MOST_AHEAD)
        wanted = [book for book in books.values() if book.left < few and not book.passes_over]
        for first in range(0, len(wanted), _READS_TOGETHER):
            self._read_pages(wanted[first : first + _READS_TOGETHER], watermark, now_ticks)

    def _read_pages(self, books: Sequence[PartitionBook], watermark: int, now_ticks: int) -> None:
        requests = [book.next_request(watermark) for book in books]
        pages = [start(self._messages.page(request, now_ticks=now_ticks)) for request in requests]
        for book, request, page in zip(books, requests, pages, strict=True):
            with suppress(QueueyError):  # a step that needs the messages reads them again, and tells
                book.take_page(request, page.wait())

    def note(self, books: Mapping[int, PartitionBook]) -> None:
        """Note when messages were read that lie ahead now."""
        for number, book in books.items():
            if len(book.ahead):
                self._read_at.setdefault(number, self._began)
            else:
                self._read_at.pop(number, None)
