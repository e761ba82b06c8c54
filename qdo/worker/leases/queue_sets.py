"""Which queues of a worker are asked together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from qdo.worker.leases.values import LeaseQueue, LeaseRequest, QueueSet

__all__ = ["QueueSets"]


class QueueSets:
    """The queues of a worker, each in one set. The lock of the buffer guards its fields."""

    def __init__(self) -> None:
        self.by_name: dict[str, LeaseQueue] = {}
        self.sets: list[QueueSet] = []

    @property
    def open_sets(self) -> int:
        """Sets of queues from which the worker receives."""
        return sum(one.is_open for one in self.sets)

    @property
    def lasting_sets(self) -> int:
        """Sets of queues that are not on trial."""
        return sum(not one.is_on_trial for one in self.sets)

    def follow(self, names: Collection[str], now: float, *, at_once: bool = False) -> None:
        """Receive from these queues, and from no others any more.

        :param at_once: ask new ones together with others from the beginning, since their order counts.
        """
        for name in names:
            if name not in self.by_name:
                queue = self.by_name[name] = LeaseQueue(name, self._new_set(now, is_on_trial=True), now)
                if at_once:
                    self.has_passed(queue, now)
        for name, queue in [*self.by_name.items()]:
            queue.is_open = name in names
            if not queue.is_open:
                self.try_alone(queue, now)
                if not (queue.held or any(one.names(queue) for one in self.sets)):
                    del self.by_name[name], queue.asked_with.queues[name]
        self.drop_unused()

    def _new_set(self, now: float, **how: Any) -> QueueSet:
        self.sets.append(QueueSet(now, **how))
        return self.sets[-1]

    def drop_unused(self) -> None:
        self.sets = [one for one in self.sets if one.queues or not one.is_idle]

    def try_alone(self, queue: LeaseQueue, now: float) -> None:
        """Nobody knows whether messages can be received from this queue: ask it by itself."""
        if not queue.asked_with.is_on_trial:
            self._new_set(now, is_on_trial=True).take_in(queue)
            self.drop_unused()

    def has_passed(self, queue: LeaseQueue, now: float) -> None:
        """A request about this queue alone was answered: ask it together with others."""
        trial = queue.asked_with
        if not (trial.is_on_trial and queue.is_open):
            return
        for one in self.sets:
            if not one.is_on_trial and len(one.queues) < one.most and one.suits(queue):
                one.take_in(queue)
                self.drop_unused()
                return
        trial.is_on_trial, trial.resume_at = False, now

    def split(self, request: LeaseRequest, now: float) -> None:
        """The server takes no request about all of these queues: ask them by two requests from now on."""
        asked = request.asked
        asked.most = max(len(request.queues) // 2, 1)
        other = self._new_set(now, is_on_trial=False, most=asked.most)
        for queue in [*asked.queues.values()][asked.most :]:
            other.take_in(queue)
