"""Writers and readers of one queue through several servers."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from qdo.client import Appended, Client, NewMessage
from qdo.client.wire import appended_from
from qdo.measure import percentiles, skipped
from queuey.clock import SystemClock
from queuey.errors import ClockUnsafe
from queuey.ids import MessageId
from tests.support.effects import Effects, Place, everything, place_of
from tests.support.fleet import LOOKS, Fleet, wait_until_readable
from tests.support.node import PAUSE_SECONDS, busy
from tests.support.readers import CursorReader, SpanReader

SIZES = (1, 1, 1, 1, 1, 1, 30, 100)
KEYED = 0.5
"""Of the appends have an idempotency key. Of those, a good part of the time passes between stamping and sending."""
WRITERS = 3
"""At each server."""
REST_SECONDS = 0.01
"""Between two appends of a writer, so that readers keep up: a reader that is behind passes nothing."""
now_ticks = SystemClock().now_ticks


def plainly(client: Client, queue: str, new: Sequence[NewMessage]) -> Sequence[Appended]:
    """Append without an idempotency key, which the client would make."""
    data = json.dumps({"messages": [message.to_wire() for message in new]}).encode()
    headers = {"Content-Type": "application/json"}
    path = ("v1", client.application, queue)
    return appended_from(client._do(client._endpoint.ask("POST", *path, data=data, headers=headers)))


@dataclass
class Writer:
    """Appends through one server, alone or many at once; some messages are due a moment later."""

    name: str
    client: Client
    chance: random.Random
    effects: Effects = field(default_factory=Effects)
    answered: dict[Place, int] = field(default_factory=dict)
    """When the writer was told, in ticks, by place."""
    batches: list[Sequence[Place]] = field(default_factory=list)
    unsure: list[Sequence[bytes]] = field(default_factory=list)
    """Bodies of each append of which nobody can say what became of it."""
    refused_clock: int = 0
    numbers: count[int] = field(default_factory=count)

    def step(self) -> None:
        bodies = [f"{self.name} {next(self.numbers)}".encode() for _ in range(self.chance.choice(SIZES))]
        delay = self.chance.choice((None, None, 0.05, 0.5))
        new = [NewMessage(body, delay_seconds=delay if at % 2 else None) for at, body in enumerate(bodies)]
        unknown = self.effects.unknown
        places = [place_of(where) for where in self.effects.append(bodies, partial(self._send, new))]
        if places:
            self.answered |= dict.fromkeys(places, now_ticks())
            self.batches.append(places)
        elif self.effects.unknown > unknown:
            self.unsure.append(bodies)
        time.sleep(REST_SECONDS)

    def _send(self, new: Sequence[NewMessage]) -> Sequence[Appended]:
        try:
            return (
                self.client.append_batch("q", new) if self.chance.random() < KEYED else plainly(self.client, "q", new)
            )
        except ClockUnsafe:
            self.refused_clock += 1
            raise


@dataclass
class Follower:
    """Reads on and on, each time through any of the servers, and notes when it first saw each message."""

    reader: CursorReader | SpanReader
    clients: Sequence[Client]
    chance: random.Random
    seen: dict[tuple[Hashable, MessageId], int] = field(default_factory=dict)

    def step(self) -> None:
        self.through(self.chance.choice(self.clients))
        time.sleep(PAUSE_SECONDS)

    def through(self, client: Client) -> None:
        before = len(self.reader.served)
        self.reader.step(client)
        now = now_ticks()
        for served in self.reader.served[before:]:
            for message_id in served.ids:
                self.seen.setdefault((served.partition, message_id), now)

    def catch_up(self, last: MessageId) -> None:
        """Go on until all up to this id was served."""
        wait_until_readable(self.clients[0], "q", last)
        reader = self.reader
        if isinstance(reader, SpanReader):
            self.through(self.clients[0])
            return
        while not reader.caught_up(self.clients[0]):
            pass


@dataclass
class Traffic:
    """A queue ``q``: some writers at each server, and readers that go from server to server."""

    fleet: Fleet
    partitions: range
    chance: random.Random
    writers: list[Writer] = field(init=False)
    followers: list[Follower] = field(init=False)

    def __post_init__(self) -> None:
        fleet, chance = self.fleet, self.chance
        fleet.client(0).create_queue("q", partitions=len(self.partitions))
        clients = [client for _ in range(WRITERS) for client in fleet.clients()]
        self.writers = [Writer(f"writer-{number}", client, chance) for number, client in enumerate(clients)]
        readers = (
            CursorReader(self.partitions, limit=200),
            CursorReader(self.partitions, limit=1000),
            SpanReader(self.partitions),
        )
        self.followers = [Follower(reader, fleet.clients(), chance) for reader in readers]

    @contextmanager
    def flowing(self) -> Iterator[None]:
        steps: list[Callable[[], object]] = [writer.step for writer in self.writers]
        with busy(*steps, *(follower.step for follower in self.followers)):
            yield

    def catch_up(self) -> None:
        """Let every reader come to the end of what was acknowledged."""
        last = max(message_id for writer in self.writers for _, message_id in writer.answered)
        for follower in self.followers:
            follower.catch_up(last)

    @property
    def acknowledged(self) -> dict[int, list[MessageId]]:
        places = [place for writer in self.writers for place in writer.answered]
        return {
            number: [message_id for partition, message_id in places if partition == number]
            for number in self.partitions
        }

    def read_and_gone(self) -> tuple[int, int]:
        """Messages that some reader was given and that are not in the queue any more; of them those whose body is, at another place."""
        stored = {place_of(message): message.body for message in everything(self.fleet.client(0, retries=LOOKS), "q")}
        read = {place: body for follower in self.followers for place, body in follower.reader.bodies.items()}
        gone = {place: body for place, body in read.items() if place not in stored}
        bodies = set(stored.values())
        return len(gone), sum(body in bodies for body in gone.values())

    def appends(self) -> int:
        """How many were acknowledged by now."""
        return sum(writer.effects.ok for writer in self.writers)

    def skips(self) -> int:
        """Messages that some reader passed without being given them, over all readers."""
        found = [skipped(self.acknowledged, follower.reader.served) for follower in self.followers]
        return sum(len(ids) for missing in found for ids in missing.values())

    def delay_ms(self) -> float:
        """From when a writer was told, or a message was due if that is later, until a reader had it: of 99 in 100."""
        waits = [
            follower.seen[place] - max(told, place[1].ticks)
            for follower in self.followers
            for writer in self.writers
            for place, told in writer.answered.items()
            if place in follower.seen
        ]
        return percentiles(waits)[99] / 10_000
