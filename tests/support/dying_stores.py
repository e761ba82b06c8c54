"""Stores whose server dies at one of its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.memory import MemoryStores


class Died(BaseException):
    """The server died here."""


class DyingStores(MemoryStores):
    """Stores of a server that dies at one of its calls, before it is carried out or behind that."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, IdGenerator(clock))
        self.dies_at, self.calls, self.is_done = -1, 0, False
        self.at_call: dict[int, Callable[[], None]] = {}
        """What happens right before a call."""
        for store, names in (
            (self.leases, ("step", "forget_group", "keep_group")),
            (self.messages, ("delete",)),
            (self.metadata, ("replace_queue",)),
            (self.tasks, ("change_task",)),
        ):
            for name in names:
                setattr(store, name, self._dying(getattr(store, name)))

    def _dying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def carried_out(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            self.at_call.pop(self.calls, lambda: None)()
            if self.calls == self.dies_at and not self.is_done:
                raise Died
            found = call(*arguments, **named)
            if self.calls == self.dies_at:
                raise Died
            return found

        return carried_out
