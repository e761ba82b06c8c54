"""The readers that wait, over a store in memory and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuey.clock import ManualClock
from queuey.future import Future, run, start
from queuey.ids import TICKS_PER_SECOND, IdGenerator, MessageId
from queuey.model import AppendRequest, Draft, Queue
from queuey.monitor.metrics import Monitor
from queuey.service.log import Log
from queuey.service.queues import Queues, QueueSettings
from queuey.service.waiting.registry import Waiters
from queuey.service.waiting.watch import Watch
from queuey.settings import load_settings
from queuey.storage.memory import MemoryStores

USER = "bid:joe@example.org"


class House:
    """The rules over a store in memory, and time in the test's hand: nothing happens but by :meth:`pass_time`."""

    def __init__(self, **given: Any) -> None:
        self.clock = ManualClock()
        self.ids = IdGenerator(self.clock)
        stores = MemoryStores(self.clock, self.ids)
        self.store = stores.messages
        self.monitor = Monitor("memory")
        self.waiters = Waiters(self.store, self.clock, self.monitor, load_settings(None, {}, given), by_hand=True)
        self.queues = Queues(stores, self.clock, self.monitor, self.waiters)
        self.log = Log(self.store, self.queues, self.clock, self.monitor, self.waiters)

    def queue(self, name: str = "q", partitions: int = 2) -> Queue:
        return run(self.queues.create("demo", name, QueueSettings(partitions=partitions)))

    def append(self, queue: Queue, partition: int = 1, *, delay_seconds: float = 0) -> MessageId:
        due = self.clock.now_ticks() + round(delay_seconds * TICKS_PER_SECOND) if delay_seconds else None
        appended = run(self.log.append(AppendRequest(queue, [Draft(partition, b"x", 1000, due_ticks=due)])))
        return appended.placed[0].id

    def watch(self, queue: Queue, *partitions: int, readers: Sequence[str] = (USER,)) -> Watch:
        return self.waiters.watch([(queue, number) for number in partitions], readers, in_thread=False)

    def wait(self, watch: Watch, seconds: float = 100) -> Future[None]:
        """A wait that is under way."""
        return start(watch.wait(self.clock.elapsed() + seconds))

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.waiters.tick()
