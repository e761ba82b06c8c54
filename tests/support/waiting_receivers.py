"""Receivers that wait, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from queuey.clock import ManualClock
from queuey.future import Future, run, start
from queuey.http.admission import EXEMPT
from queuey.http.answer_room import CountedRoom
from queuey.http.pipeline import SMALL
from queuey.ids import ZERO_ID, IdGenerator
from queuey.model import AppendRequest, Draft, IdempotencyKey, Queue
from queuey.model.lease_requests import Action, ReceiveRequest, Settle
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.service import Service
from queuey.service.leases import Waiting
from queuey.service.queues import QueueSettings
from queuey.service.waiting.rooms import BLOCKED_REST_SECONDS
from queuey.settings import load_settings
from queuey.storage.memory import MemoryStores

__all__ = ["GROUP", "WAIT_SECONDS", "Receivers"]

GROUP, WAIT_SECONDS = "g", 20.0


class Receivers:
    """Receivers of one group. Its clock stands still but in :meth:`pass_time`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        stores = MemoryStores(self.clock, IdGenerator(self.clock))
        self.service = Service(load_settings(None, {}, {}), stores, clock=self.clock, waiters_by_hand=True)
        self.queue: Queue = run(self.service.queues.create("demo", "q", QueueSettings(partitions=2)))
        self.looks = 0
        self.after_look: Callable[[], object] = lambda: None
        """Called before a receiver hears what it found."""
        self._step = stores.leases.step
        stores.leases.step = self._counted  # type: ignore[method-assign]

    def _counted(self, step: LeaseStep) -> Future[LeaseOutcome]:
        self.looks += 1
        found = self._step(step)
        self.after_look()
        return found

    def append(self, *bodies: bytes, seconds: float = 0.0, partition: int = 1) -> None:
        due = self.clock.now_ticks() + round(seconds * 10_000_000) if seconds else None
        drafts = [Draft(partition, body, 1000, due_ticks=due) for body in bodies or (b"x",)]
        run(self.service.log.append(AppendRequest(self.queue, drafts)))

    def wait(
        self,
        seconds: float = WAIT_SECONDS,
        *,
        is_awaited: bool = True,
        attempt: str | None = None,
        partitions: Sequence[int] | None = (1, 2),
        visibility: float = 30.0,
        max_bytes: int = SMALL,
        settled: LeaseOutcome | None = None,
    ) -> Future[LeaseOutcome]:
        """:param settled: its leases are acknowledged."""
        """:param partitions: None for all, also those that come."""
        new = self.service.leases.new_group(self.service.leases.default_settings, ZERO_ID)
        receive = ReceiveRequest(1, visibility, max_bytes=max_bytes)
        group = GroupStep(self.queue, GROUP, new, receive_from=partitions or range(1, self.queue.partitions + 1))
        if settled is not None:
            ended = {
                one.partition: [Settle(one.message.id, one.hole.deliveries, Action.ACKNOWLEDGE)]
                for one in settled.handed
            }
            group = group._replace(token=settled.tokens[0], settles=ended)
        step = LeaseStep([group], receive=receive, attempt=IdempotencyKey(attempt, b"") if attempt else None)

        async def received() -> LeaseOutcome:
            waiting = Waiting(seconds, ["app:demo"], False, lambda: is_awaited, every=partitions is None)
            with CountedRoom(EXEMPT, receive) as room:
                return await self.service.leases.step(step, room, waiting)

        return start(received())

    def acknowledge(self, outcome: LeaseOutcome) -> None:
        """End the leases of an outcome; it does not matter if some have ended."""
        for one in outcome.handed:
            settles = {one.partition: [Settle(one.message.id, one.hole.deliveries, Action.ACKNOWLEDGE)]}
            step = LeaseStep([GroupStep(self.queue, GROUP, None, outcome.tokens[0], settles)])
            with CountedRoom(EXEMPT, None) as room:
                run(self.service.leases.step(step, room))

    def would_find(self, partitions: Sequence[int]) -> int:
        """How many messages a receiver that asks now would get of one."""
        group = GroupStep(self.queue, GROUP, None, receive_from=partitions)
        return len(self._step(LeaseStep([group], receive=ReceiveRequest(1, 30.0))).wait().handed)

    def look_soon(self) -> bool:
        """Whether one that waits looks again within the rest of a group that has something due."""
        soon = self.clock.elapsed() + BLOCKED_REST_SECONDS
        rooms = self.service.leases._rooms._rooms.values()
        return any(room.due <= soon for of_group in rooms for room in of_group.values())

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.service.waiters.tick()
