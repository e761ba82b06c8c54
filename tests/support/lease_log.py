"""What receivers of a lease group did and saw, and whether the promises were kept (G21, G22)."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

__all__ = ["HandOut", "LeaseLog", "Verdict"]


class HandOut(NamedTuple):
    """One delivery. Moments are seconds on the clock of the test's process."""

    message: str
    receiver: str
    asked: float
    """Before the request was sent."""
    answered: float
    """After its answer was read."""
    visibility: float
    deliveries: int

    @property
    def held_until(self) -> float:
        """Up to here at least, nobody else may have it: the server granted the lease after the request was sent."""
        return self.asked + self.visibility


class Verdict(NamedTuple):
    """What was found."""

    held_by_two: list[str]
    handed_after_acknowledgement: list[str]
    never_handed: set[str]


@dataclass
class LeaseLog:
    """Thread-safe."""

    handed: dict[str, list[HandOut]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: dict[str, float] = field(default_factory=dict)
    """When the answer to the acknowledgement was read."""
    given_back: dict[tuple[str, int], float] = field(default_factory=dict)
    """By message and delivery: when an acknowledgement was sent, answered or not."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, handed: Iterable[HandOut]) -> None:
        with self._lock:
            for one in handed:
                self.handed[one.message].append(one)

    def gives_back(self, sent: float, handed: Iterable[HandOut]) -> None:
        with self._lock:
            for one in handed:
                self.given_back.setdefault((one.message, one.deliveries), sent)

    def took_back(self, answered: float, messages: Iterable[str]) -> None:
        """The server said that these are acknowledged."""
        with self._lock:
            for message in messages:
                self.acknowledged.setdefault(message, answered)

    def judge(self, appended: Iterable[str]) -> Verdict:
        return Verdict(
            [message for message, found in self.handed.items() if self._overlap(found)],
            [message for message, found in self.handed.items() if self._is_late(message, found)],
            {*appended} - self.handed.keys(),
        )

    def _overlap(self, found: list[HandOut]) -> bool:
        ordered = sorted(found, key=lambda one: one.deliveries)
        for first, second in pairwise(ordered):
            ended = min(first.held_until, self.given_back.get((first.message, first.deliveries), first.held_until))
            if second.answered < ended or first.deliveries == second.deliveries:
                return True
        return False

    def _is_late(self, message: str, found: list[HandOut]) -> bool:
        answered = self.acknowledged.get(message)
        return answered is not None and any(one.asked > answered for one in found)
