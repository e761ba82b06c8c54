"""What clients of SQS sent, got and deleted, and whether the promises were kept (G21, G22, G26)."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Got", "SqsLog", "Verdict"]


class Got(NamedTuple):
    """One delivery of a message. Moments are seconds on the clock of the test's process."""

    body: str
    message: str
    """Its MessageId: a message that was stored twice has two."""
    group: str
    number: int
    """In which order it was sent in its group."""
    asked: float
    """Before the request was sent."""


class Verdict(NamedTuple):
    """What was found, by bodies."""

    lost: set[str]
    """Sent, and never received."""
    stored_twice: set[str]
    handed_after_deletion: set[str]
    out_of_order: set[str]
    """Received first when a later one of its group had been received."""

    @property
    def is_clean(self) -> bool:
        return not any(self)


@dataclass
class SqsLog:
    """Thread-safe."""

    sent: set[str] = field(default_factory=set)
    got: dict[str, list[Got]] = field(default_factory=lambda: defaultdict(list))
    done: set[str] = field(default_factory=set)
    """Of which a copy was deleted: a standard queue may have stored what was sent again twice."""
    _deleted: dict[str, float] = field(default_factory=dict)
    """When the answer to the deletion was read, by MessageId."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sends(self, body: str) -> None:
        """The server said that it has the message."""
        with self._lock:
            self.sent.add(body)

    def gets(self, one: Got) -> None:
        with self._lock:
            self.got[one.body].append(one)

    def deletes(self, one: Got, answered: float) -> None:
        """The server said that a message is gone."""
        with self._lock:
            self.done.add(one.body)
            self._deleted.setdefault(one.message, answered)

    def judge(self) -> Verdict:
        return Verdict(
            self.sent - self.got.keys(),
            {body for body, found in self.got.items() if len({one.message for one in found}) > 1},
            {body for body, found in self.got.items() if any(map(self._is_late, found))},
            self._out_of_order(),
        )

    def _is_late(self, one: Got) -> bool:
        return one.asked > self._deleted.get(one.message, one.asked)

    def _out_of_order(self) -> set[str]:
        """Groups are looked at in the order in which messages were first received."""
        firsts: Mapping[str, Got] = {body: found[0] for body, found in self.got.items()}
        newest: Counter[str] = Counter()
        wrong = set()
        for body, one in firsts.items():
            if one.number < newest[one.group]:
                wrong.add(body)
            newest[one.group] = max(newest[one.group], one.number)
        return wrong
