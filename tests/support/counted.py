"""How often a store over Cassandra was answered."""

from __future__ import annotations

from collections import Counter

from queuey.storage import Unobserved


class Counted(Unobserved):
    """How often each statement was answered whose name begins in one of some ways."""

    def __init__(self, *beginnings: str) -> None:
        self._beginnings = beginnings
        self.statements = Counter[str]()

    def took(self, what: str, seconds: float) -> None:
        if what.startswith(self._beginnings):
            self.statements[what] += 1
