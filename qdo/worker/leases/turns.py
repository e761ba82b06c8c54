"""In which order a worker takes its queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from qdo.client.lease_values import Queues

__all__ = ["QueueTurns"]


class _Named(Protocol):
    name: str


Q = TypeVar("Q", bound=_Named)


@dataclass(frozen=True)
class QueueTurns:
    """In which order a request looks at its queues. By default each draws them, so no queue waits behind another."""

    in_order: Sequence[str] = ()
    """The first has what it has handed out first; others come last."""
    weights: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_given(self) -> bool:
        """Whether somebody said in which order."""
        return bool(self.in_order or self.weights)

    @property
    def order(self) -> Literal["first", "weighted"]:
        return "first" if self.in_order else "weighted"

    def where(self, names: Sequence[str]) -> Queues:
        """Queues as the client takes them."""
        if len(names) == 1:
            return names[0]
        if self.weights:
            return {name: self.weights.get(name, 1) for name in names}
        return sorted(names, key=self._place)

    def take_next(self, ready: deque[Q]) -> Q:
        """Of queues with messages that are ready, the one whose turn it is. It leaves the others."""
        if not self.in_order:
            return ready.popleft()
        first = min(ready, key=lambda queue: self._place(queue.name))
        ready.remove(first)
        return first

    def _place(self, name: str) -> int:
        return self.in_order.index(name) if name in self.in_order else len(self.in_order)
