"""What the harness writes down of a system with order by key, by a clock that only counts.

The system keeps its promises, or breaks one of them. Requests and answers take drawn times and are lost, receivers fail, forget
what they have, and acknowledge when their leases are over.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from qdo.bench.clock import SECOND
from qdo.bench.records import FAILED, STORED, UNKNOWN, ReceivedRow, SentRow
from qdo.bench.unsettled import Quiet

Lie = Literal["opens while one waits", "opens when a lease ends", "opens at once", "returns", "forgets"]
VISIBILITY, WAIT = SECOND, 3 * SECOND
MESSAGES, KEYS, RECEIVERS = 40, 3, 4
END = 200 * SECOND


@dataclass
class _Kept:
    """A message, as the system has it."""

    number: int
    visible_at: int = 0
    turn: int = 0
    failures: int = 0
    is_leased: bool = False
    is_gone: bool = False
    """Acknowledged, or a dead letter."""


@dataclass
class KeySystem:
    """A lease group with order by key, and how it lies."""

    per_key: int = 1
    max_failures: int = 0
    lie: Lie | None = None
    pops: bool = False
    _messages: list[_Kept] = field(default_factory=list)

    def append(self, number: int) -> None:
        self._messages.append(_Kept(number))

    @property
    def has_more(self) -> bool:
        return not all(one.is_gone for one in self._messages)

    def receive(self, now: int, most: int) -> list[tuple[int, int]]:
        """Numbers and turns."""
        handed: list[_Kept] = []
        for key in range(KEYS):
            of_key = [one for one in self._messages if one.number % KEYS == key and not one.is_gone]
            if self._is_closed(of_key, now):
                continue
            for one in of_key:
                if sum(other.number % KEYS == key for other in handed) == self.per_key or len(handed) == most:
                    break
                if self.lie == "forgets" and one.is_leased and one.visible_at <= now and one.number % 2:
                    one.is_gone = True
                    continue
                failures = one.failures + one.is_leased
                if one.visible_at > now or (
                    self.lie == "opens when a lease ends" and one.is_leased and len(of_key) > 1
                ):
                    continue
                if self.max_failures and failures >= self.max_failures:
                    one.is_gone = True
                    continue
                one.failures = failures
                handed.append(one)
        for one in handed:
            one.turn += 1
            one.visible_at, one.is_leased, one.is_gone = now + VISIBILITY, True, self.pops
        return [(one.number, one.turn) for one in handed]

    def _is_closed(self, of_key: list[_Kept], now: int) -> bool:
        if self.lie == "opens at once":
            return False
        return any(one.visible_at > now and (one.is_leased or self.lie != "opens while one waits") for one in of_key)

    def acknowledge(self, number: int, turn: int) -> bool:
        found = self._of_turn(number, turn)
        if found is not None:
            found.is_gone = self.lie != "returns" or number % 4 != 0
        return found is not None

    def fail(self, now: int, number: int, turn: int) -> None:
        found = self._of_turn(number, turn)
        if found is not None:
            found.failures += 1
            found.is_leased = False
            found.visible_at = now + SECOND * found.failures // 2

    def _of_turn(self, number: int, turn: int) -> _Kept | None:
        (found,) = [one for one in self._messages if one.number == number]
        return found if found.turn == turn and not found.is_gone else None


class KeyHistory:
    """One run: its rows are there when it is made."""

    def __init__(self, system: KeySystem, seed: int) -> None:
        self._system, self._chance = system, random.Random(seed)
        self._now, self._end = 0, END
        self.unanswered = 0
        self.sent: list[SentRow] = []
        self.received: list[ReceivedRow] = []
        steps = [self._sends(), *(self._receives(at) for at in range(RECEIVERS))]
        due = [(0, at, step) for at, step in enumerate(steps)]
        while due:
            self._now, at, step = heapq.heappop(due)
            if (moment := next(step, None)) is not None:
                heapq.heappush(due, (moment, at, step))
        self.received.sort(key=lambda row: row.arrived)
        since = max((max(row.arrived, row.settled) for row in self.received), default=0)
        self.quiet = Quiet(since, self._now + 60 * SECOND, {0: self.unanswered} if self.unanswered else {})

    def _later(self, most: float) -> int:
        return self._now + 1 + self._chance.randrange(int(most * SECOND))

    def _sends(self) -> Iterator[int]:
        late: list[int] = []
        for number in range(MESSAGES):
            begun, outcome = self._now, STORED
            yield self._later(0.1)
            if self._chance.random() < 0.1:
                # Its request is still under way: it may be carried out after those that come.
                outcome = UNKNOWN
                late.append(number)
            else:
                self._system.append(number)
            yield self._later(0.1)
            self.sent.append(SentRow(0, number, 1, outcome, begun, begun, begun, self._now))
            if late and self._chance.random() < 0.4:
                self._system.append(late.pop())
        while self._system.has_more and self._now < END:
            yield self._now + SECOND
        self._end = self._now + 2 * SECOND

    def _receives(self, consumer: int) -> Iterator[int]:
        chance, system = self._chance, self._system
        while self._now < self._end:
            asked = self._now
            yield self._later(0.05)
            give_up, handed = self._now + WAIT, system.receive(self._now, 5)
            while not handed and self._now < give_up:
                yield self._now + SECOND // 20
                handed = system.receive(self._now, 5)
            if chance.random() < 0.1:  # the answer is lost
                yield self._later(2)
                if chance.random() < 0.3:
                    self.unanswered += 1
                    continue
            yield self._later(0.05)
            rows = [self._row(consumer, number, asked) for number, _ in handed]
            yield from self._settles(handed, rows)
            self.received += rows

    def _row(self, consumer: int, number: int, asked: int) -> ReceivedRow:
        held = 0 if self._system.pops else asked + VISIBILITY
        return ReceivedRow(0, consumer, 0, number, number % KEYS, 0, 0, 0, 0, asked, self._now, held, 0, 0)

    def _settles(self, handed: list[tuple[int, int]], rows: list[ReceivedRow]) -> Iterator[int]:
        chance, system = self._chance, self._system
        if self._system.pops:
            return
        yield self._later(chance.choice([0.05, 0.05, 0.5, 2.5]))
        if chance.random() < 0.1:
            return  # it forgets what it has
        failed = [at for at in range(len(rows)) if chance.random() < 0.15]
        for at in failed:
            row = rows[at]
            rows[at] = row._replace(flags=FAILED, held_until=min(row.held_until, self._now))
        yield self._later(0.05)
        for at in failed:
            system.fail(self._now, *handed[at])
        yield self._later(0.05)
        good = [at for at in range(len(rows)) if at not in failed]
        for at in good:
            rows[at] = rows[at]._replace(settling=self._now)
        comes, is_answered = chance.random() < 0.95, chance.random() < 0.9
        yield self._later(0.1)
        held = {at: comes and system.acknowledge(*handed[at]) for at in good}
        yield self._later(0.1)
        for at in good if comes and is_answered else []:
            rows[at] = rows[at]._replace(settled=self._now) if held[at] else rows[at]._replace(settling=0)
