"""A server of leases and the buffer of a worker, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qdo.client.lease_values import Delivery, Settled
from qdo.worker.leases.buffer import LeaseBuffer
from qdo.worker.leases.due import due
from qdo.worker.leases.values import Ended, HeldMessage, JobOutcome, LeaseQueue, LeaseRequest
from qdo.worker.options import WorkerOptions
from qdo.worker.work import Counts
from queuey.clock import ManualClock
from queuey.ids import MessageId

VISIBILITY = 30


class LeaseServer:
    """A server with one queue or more, and the buffer of a worker: what is due is looked at, and nothing waits."""

    def __init__(self, *names: str, **options: Any) -> None:
        self.clock = ManualClock()
        options = {"lease": True, "threads": 2} | options
        self.buffer = LeaseBuffer(WorkerOptions(**options), self.clock.elapsed, Counts())
        self.number = 0
        self.follow(*names or ["q"])

    def follow(self, *names: str) -> None:
        """Receive from these queues. New ones pass their trial, with leases of the same length."""
        self.buffer.follow(names)
        queues = self.buffer.holdings.queues
        for queue in queues.by_name.values():
            queue.per_key = 1
            queues.has_passed(queue, self.clock.elapsed())

    @property
    def queue(self) -> LeaseQueue:
        return self.queue_of("q")

    def queue_of(self, name: str) -> LeaseQueue:
        return self.buffer.holdings.queues.by_name[name]

    def due(self) -> LeaseRequest | None:
        """The request that a sender would get now."""
        for asked in sorted(self.buffer.holdings.queues.sets, key=lambda one: one.asked_at):
            found = due(self.buffer.holdings, asked, self.clock.elapsed())
            if isinstance(found, LeaseRequest):
                return found
        return None

    def asks(self) -> LeaseRequest:
        found = self.due()
        assert found is not None
        return found

    def answer(self, request: LeaseRequest, *deliveries: Delivery, stale: Sequence[str] = ()) -> None:
        with self.buffer.outcomes() as outcomes:
            outcomes.answered(request, Settled(stale=tuple(stale), messages=deliveries))

    def delivery(
        self,
        queue: str = "q",
        *,
        deliveries: int = 1,
        failures: int = 0,
        size: int = 1,
        body: bytes | None = None,
        key: str | None = None,
        seconds: float = VISIBILITY,
    ) -> Delivery:
        self.number += 1
        return Delivery(
            MessageId(1000 + self.number, 0),
            1,
            b"x" * size if body is None else body,
            key=key,
            queue=queue,
            group="g",
            receipt=f"r{self.number}",
            deliveries=deliveries,
            failures=failures,
            first_delivered="100",
            visible_at=str(100 + seconds),
        )

    def begin(self, thread: int = 0) -> Sequence[HeldMessage]:
        """The first call of a turn."""
        turn = self.buffer.take(thread)
        assert turn is not None
        assert turn.begin_next(self.clock.elapsed())
        return turn.current

    def end(self, taken: Sequence[HeldMessage], thread: int = 0, how: JobOutcome = JobOutcome.DONE) -> None:
        self.buffer.end(thread, [Ended(taken, how)])

    @property
    def held(self) -> int:
        return len(self.queue.held)


def receipts(request: LeaseRequest) -> list[str]:
    return [message.receipt for one in request.ended for message in one.messages]


def names(request: LeaseRequest) -> list[str]:
    return [queue.name for queue in request.queues]
