"""What the stores of one process share."""

from __future__ import annotations

from uuid import UUID

from queuey.clock import Clock
from queuey.locks import new_lock

__all__ = ["Process"]


class Process:
    """What the stores of one process share."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = new_lock()
        """Makes every call of a store a single step."""
        self.dropped: set[UUID] = set()
