"""The receivers of one thread: served in turn, or each in a task of an event loop."""

from __future__ import annotations

import asyncio
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import cast

from qdo.bench.clock import SECOND
from qdo.bench.drivers import BlockingConsumer, Driver, LoopConsumer, LoopDriver
from qdo.bench.histogram import TimeHistogram
from qdo.bench.pace import at_once, task_sleep, thread_sleep
from qdo.bench.receivers import Distinct, InOrder, LoadReceiver, OpenMessages, ReceiverContext, run_receivers

_SLEPT = 50_000
"""Nanoseconds: a look that takes longer has waited for something."""


class ReceiverThread(ABC):
    """Some receivers of a process, and what serves them."""

    def __init__(self, context: ReceiverContext) -> None:
        self.context = context
        self.lag = TimeHistogram()
        """The longest times for which messages may have waited for this thread; empty where none can wait."""

    @abstractmethod
    def consumer(self, topic: int, view: int) -> LoopConsumer:
        """For a receiver that is served here."""

    @abstractmethod
    def add(self, receiver: LoadReceiver) -> None:
        """Serve this one, too."""

    @abstractmethod
    def run(self, out: InOrder, begin: int, is_over: Callable[[], bool]) -> None:
        """Serve them until the run is over.

        :param begin: when the warm-up is over; what waits for the generator before does not count.
        """


class InTurn(ReceiverThread):
    """One after the other. One that waits holds up all, so none waits unless it is alone."""

    def __init__(self, driver: Driver, distinct: Distinct, unsettled: OpenMessages) -> None:
        super().__init__(ReceiverContext(driver.target, distinct, unsettled, thread_sleep(driver.target.clock)))
        self._driver = driver
        self._receivers: list[LoadReceiver] = []

    def consumer(self, topic: int, view: int) -> LoopConsumer:
        return BlockingConsumer(self._driver.consumer(topic, view))

    def add(self, receiver: LoadReceiver) -> None:
        self._receivers.append(receiver)

    def run(self, out: InOrder, begin: int, is_over: Callable[[], bool]) -> None:
        at_once(run_receivers(self._receivers, self.context, out, is_over))


class InLoop(ReceiverThread):
    """All at once, in tasks of an event loop. Each task serves its receivers in turn."""

    def __init__(self, driver: LoopDriver, distinct: Distinct, unsettled: OpenMessages, tasks: int) -> None:
        super().__init__(ReceiverContext(driver.target, distinct, unsettled, task_sleep(driver.target.clock)))
        self._driver = driver
        self._tasks: list[list[LoadReceiver]] = [[] for _ in range(tasks)]
        self._added = 0

    def consumer(self, topic: int, view: int) -> LoopConsumer:
        return self._driver.loop_consumer(topic, view)

    def add(self, receiver: LoadReceiver) -> None:
        self._tasks[self._added % len(self._tasks)].append(receiver)
        self._added += 1

    def run(self, out: InOrder, begin: int, is_over: Callable[[], bool]) -> None:
        selector = WatchedSelector(self.lag, begin)
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(self._serve(out, is_over))

    async def _serve(self, out: InOrder, is_over: Callable[[], bool]) -> None:
        tasks = [some for some in self._tasks if some]
        begin, wait = self.context.target.clock.now(), self.context.target.workload.queuey.receiving.wait

        async def one(at: int) -> None:
            # Those that would begin together would ask again together whenever their waits are over.
            await self.context.sleep(begin + int(wait * SECOND * at / len(tasks)))
            await run_receivers(tasks[at], self.context, out, is_over)

        async with asyncio.TaskGroup() as group:
            for at in range(len(tasks)):
                group.create_task(one(at))


class WatchedSelector(selectors.DefaultSelector):
    """Notes the longest times for which the events of a loop may have waited for it.

    An event that is found without a wait may have been there since the loop looked before. It is handled when the loop
    looks again at the latest.
    """

    def __init__(self, lag: TimeHistogram, begin: int, now: Callable[[], int] = time.monotonic_ns) -> None:
        """:param begin: what is handled before does not count."""
        super().__init__()
        self._lag = lag
        self._begin = begin
        self._now = now
        self._looked = now()
        self._since = self._looked
        """When the events that are handled now were there at the earliest."""
        self._events = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As in the base class."""
        before = self._now()
        for _ in range(self._events if before >= self._begin else 0):
            self._lag.record(before - self._since)
        found = super().select(timeout)
        after = self._now()
        # What a look that slept has found came while it slept.
        self._since = after if after - before > _SLEPT else self._looked
        self._looked, self._events = after, len(found)
        return found


def receiver_threads(
    driver: Driver, distinct: Distinct, unsettled: OpenMessages, threads: int
) -> Sequence[ReceiverThread]:
    """What serves the receivers of a process.

    :param threads: or tasks, if an event loop is to serve them.
    """
    if driver.target.workload.queuey.receiving.loop:
        return [InLoop(cast("LoopDriver", driver), distinct, unsettled, threads)]
    return [InTurn(driver, distinct, unsettled) for _ in range(threads)]
