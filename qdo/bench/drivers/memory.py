"""A perfect system in memory: it loses nothing, repeats nothing and keeps order. It proves the judge and the generator.

It may stall at fixed times, as a server does that collects garbage or waits for its disk.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from qdo.bench.clock import SECOND, LoadClock
from qdo.bench.drivers import (
    BlockingConsumer,
    Consumer,
    Delivered,
    LoopConsumer,
    LoopDriver,
    MeasuredSystem,
    OutgoingMessage,
    Producer,
)
from queuey.errors import ConfigurationError

LOOK_SECONDS = 0.05
"""A receiver that waits looks at least as often."""


@dataclass(frozen=True, slots=True)
class _Token:
    index: int
    turn: int
    """Which of the times that the message was handed out."""


@dataclass
class _Line:
    """What one subscription of one queue has not settled."""

    waiting: list[tuple[int, int, int]] = field(default_factory=list)
    """A heap: the moment from which a message may be handed out, its number in the queue, and its turn. What was given back
    since has another turn, so an end of a lease that is over already hands out nothing."""
    turns: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    settled: set[int] = field(default_factory=set)
    held_keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Key to the message that is out, and until when."""


class _Queue:
    """Messages in their order, and a line for each subscription."""

    def __init__(self, views: int, clock: LoadClock) -> None:
        self._messages: list[OutgoingMessage] = []
        self._lines = [_Line() for _ in range(views)]
        self._clock = clock
        self._changed = threading.Condition()

    def append(self, messages: Sequence[OutgoingMessage]) -> None:
        now = self._clock.now()
        with self._changed:
            for message in messages:
                due = now + int(message.delay * SECOND)
                for line in self._lines:
                    heapq.heappush(line.waiting, (due, len(self._messages), 0))
                self._messages.append(message)
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)

    def take(self, subscription: int, most: int, visibility: float) -> list[tuple[OutgoingMessage, _Token]]:
        """:param visibility: seconds of the leases; 0 settles at once."""
        line = self._lines[subscription]
        now = self._clock.now()
        until = now + int(visibility * SECOND)
        taken: list[tuple[OutgoingMessage, _Token]] = []
        aside: list[tuple[int, int, int]] = []
        with self._changed:
            while len(taken) < most and line.waiting and line.waiting[0][0] <= now:
                entry = heapq.heappop(line.waiting)
                _, index, turn = entry
                if index in line.settled or turn != line.turns[index]:
                    continue
                message = self._messages[index]
                if message.key and line.held_keys.get(message.key, (index, 0))[0] != index:
                    aside.append(entry)
                    continue
                line.turns[index] += 1
                taken.append((message, _Token(index, line.turns[index])))
                if not visibility:
                    line.settled.add(index)
                    continue
                if message.key:
                    line.held_keys[message.key] = (index, until)
                heapq.heappush(aside, (until, index, line.turns[index]))
            for entry in aside:
                heapq.heappush(line.waiting, entry)
        return taken

    def settle(self, subscription: int, token: _Token) -> bool:
        line = self._lines[subscription]
        with self._changed:
            if token.index in line.settled or line.turns[token.index] != token.turn:
                return False
            line.settled.add(token.index)
            self._free(line, token.index)
            self._changed.notify_all()
            return True

    def give_back(self, subscription: int, token: _Token) -> None:
        line = self._lines[subscription]
        with self._changed:
            if token.index not in line.settled and line.turns[token.index] == token.turn:
                line.turns[token.index] += 1
                heapq.heappush(line.waiting, (self._clock.now(), token.index, line.turns[token.index]))
                self._changed.notify_all()

    def _free(self, line: _Line, index: int) -> None:
        key = self._messages[index].key
        if key and line.held_keys.get(key, (None, 0))[0] == index:
            del line.held_keys[key]


class MemoryDriver(LoopDriver):
    """Queues in this process."""

    modes = frozenset(["receive", "pop", "read", "follow"])
    loop_modes = modes
    delays = True
    keys = True
    in_process = True
    option_names: ClassVar[Mapping[str, str]] = {
        "stall": "seconds that the system stands still, at the beginning of each period",
        "every": "seconds of a period",
        "service": "seconds that each request takes",
    }

    def __init__(self, target: MeasuredSystem) -> None:
        super().__init__(target)
        self._stall = int(self.option("stall", 0) * SECOND)
        self._every = int(self.option("every", 10) * SECOND)
        self._service = int(self.option("service", 0) * SECOND)
        if self._stall and self._stall >= self._every:
            raise ConfigurationError("option stall: a stall is shorter than its period, the option every")
        workload = target.workload
        self.queues = [_Queue(workload.views, target.clock) for _ in range(workload.topics)]
        self._began = target.clock.now()

    def prepare(self) -> None:
        """There is nothing to make."""

    def serve(self) -> None:
        """Take the time of a request."""
        clock = self.target.clock
        now = clock.now()
        if self._stall and (now - self._began) % self._every < self._stall:
            clock.sleep_until(now - (now - self._began) % self._every + self._stall)
        if self._service:
            clock.sleep_until(clock.now() + self._service)

    def producer(self) -> Producer:
        return _MemoryProducer(self)

    def consumer(self, topic: int, subscription: int) -> Consumer:
        return _MemoryConsumer(self, topic, subscription)

    def loop_consumer(self, topic: int, subscription: int) -> LoopConsumer:
        return _MemoryLoopConsumer(self.consumer(topic, subscription))


class _MemoryProducer(Producer):
    def __init__(self, driver: MemoryDriver) -> None:
        self._driver = driver

    def send(self, topic: int, messages: Sequence[OutgoingMessage]) -> None:
        self._driver.serve()
        self._driver.queues[topic].append(messages)


class _MemoryConsumer(Consumer):
    def __init__(self, driver: MemoryDriver, topic: int, subscription: int) -> None:
        self._driver = driver
        self._queue = driver.queues[topic]
        self._subscription = subscription
        own = driver.target.workload.queuey.receiving
        self._batch = own.batch
        self._visibility = own.visibility if own.mode == "receive" else 0.0

    def receive(self, wait: float) -> Sequence[Delivered]:
        self._driver.serve()
        found = self._queue.take(self._subscription, self._batch, self._visibility)
        if not found and wait:
            self._queue.wait(min(wait, LOOK_SECONDS))
            found = self._queue.take(self._subscription, self._batch, self._visibility)
        return [Delivered(message.body, token if self._visibility else None) for message, token in found]

    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        self._driver.serve()
        return [self._queue.settle(self._subscription, one) for one in tokens if isinstance(one, _Token)]

    def fail(self, tokens: Sequence[object]) -> None:
        for one in tokens:
            if isinstance(one, _Token):
                self._queue.give_back(self._subscription, one)


class _MemoryLoopConsumer(BlockingConsumer):
    """Only its wait is one of the event loop: the rest takes no time."""

    async def receive(self, wait: float) -> Sequence[Delivered]:
        found = self._consumer.receive(0.0)
        if not found and wait:
            await asyncio.sleep(min(wait, LOOK_SECONDS))
            found = self._consumer.receive(0.0)
        return found
