"""Observers of stores: what was counted."""

from __future__ import annotations

from collections import Counter

from queuey.storage.observing import Unobserved, UnobservedLeases


class Counted(Unobserved):
    """How often each statement was answered whose name begins in one of some ways."""

    def __init__(self, *beginnings: str) -> None:
        self._beginnings = beginnings
        self.statements = Counter[str]()

    def took(self, what: str, seconds: float) -> None:
        if what.startswith(self._beginnings):
            self.statements[what] += 1


class Noted(Unobserved, UnobservedLeases):
    """What a store noted of its work for lease groups."""

    def __init__(self) -> None:
        self.leases = self
        self.written: list[int] = []
        self.wasted = 0

    def wrote_state(self, size: int) -> None:
        self.written.append(size)

    def wasted_ahead(self, messages: int) -> None:
        self.wasted += messages
