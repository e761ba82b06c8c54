"""Readers that follow a queue over kills and stops of its server, and note what each answer told them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from qdo.client import Client, Message, Page
from qdo.measure import Served
from queuey.errors import StorageUnavailable
from queuey.ids import MessageId, format_timestamp, parse_timestamp
from tests.support.effects import Place, place_of
from tests.support.node import PAUSE_SECONDS


@dataclass
class Reader:
    """What one reader was served, in order."""

    partitions: range
    served: list[Served] = field(default_factory=list)
    watermarks: list[int] = field(default_factory=list)
    bodies: dict[tuple[int, MessageId], bytes] = field(default_factory=dict)
    """What was served, by its place."""

    @property
    def fell(self) -> int:
        """How often a watermark was below one served before."""
        return sum(later < earlier for earlier, later in zip(self.watermarks, self.watermarks[1:], strict=False))

    def took(self, messages: Iterable[Message], upto: int | None) -> None:
        """:param upto: the answer was complete up to this tick; None: up to each partition's last message."""
        found: dict[int, list[MessageId]] = {number: [] for number in self.partitions}
        for message in messages:
            found[message.partition].append(message.id)
            self.bodies[message.partition, message.id] = message.body
        for number, ids in found.items():
            if upto is not None:
                self.served.append(Served(number, MessageId.last_of(upto), ids))
            elif ids:
                self.served.append(Served(number, ids[-1], ids))


@dataclass
class CursorReader(Reader):
    """Goes on from the cursor of the answer before."""

    limit: int = 100
    cursor: str | None = None

    def caught_up(self, client: Client) -> bool:
        """Take one more page; whether that was the last one."""
        page = self.step(client)
        return page is not None and not page.more

    def step(self, client: Client) -> Page | None:
        try:
            page = client.read("q", cursor=self.cursor, limit=self.limit)
        except StorageUnavailable:
            time.sleep(PAUSE_SECONDS)
            return None
        watermark = parse_timestamp(page.watermark)
        self.cursor = page.cursor
        self.watermarks.append(watermark)
        self.took(page.messages, None if page.more else watermark)
        return page


@dataclass
class SpanReader(Reader):
    """Reads whole spans, each from where the watermark of the one before was."""

    upto: int = 0

    def step(self, client: Client) -> None:
        try:
            pages = list(client.pages("q", since=format_timestamp(self.upto + 1) if self.upto else None, limit=1000))
        except StorageUnavailable:
            time.sleep(PAUSE_SECONDS)
            return
        self.upto = parse_timestamp(pages[0].watermark)
        self.watermarks.append(self.upto)
        self.took([message for page in pages for message in page.messages], self.upto)


@dataclass
class Pages:
    """One way to read a queue from end to end; what it was given, answer after answer."""

    limit: int
    newest_first: bool = False
    since: str | None = None
    """Where all of it begins; None is the beginning of the queue."""
    got: list[Message] = field(default_factory=list)
    spans: int = 0
    cursor: str | None = None
    caught_up: bool = False

    def step(self, client: Client) -> None:
        """One page; newest first, one whole way from here down."""
        if self.newest_first:
            self.got = []
            for page in client.pages("q", until=self.since, limit=self.limit, newest_first=True):
                self.got += page.messages
                self.spans += 1
            return
        page = client.read("q", since=self.since if self.cursor is None else None, cursor=self.cursor, limit=self.limit)
        self.cursor, self.caught_up = page.cursor, not page.more
        self.got += page.messages
        self.spans += 1

    def finish(self, client: Client) -> None:
        """Read to the end of a queue that grows no more."""
        self.step(client)
        while not self.newest_first and not self.caught_up:
            self.step(client)

    @property
    def places(self) -> list[Place]:
        return [place_of(message) for message in self.got]

    @property
    def out_of_order(self) -> int:
        """Neighbours in a partition that do not rise, or fall newest first."""
        one_way = sorted(self.places, key=lambda place: place[0])  # stable: within a partition as they came
        rising = reversed(one_way) if self.newest_first else one_way
        return sum(a[0] == b[0] and a[1] >= b[1] for a, b in pairwise(rising))
