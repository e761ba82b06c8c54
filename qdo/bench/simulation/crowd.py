"""The receivers of one queue at several servers.

In an exact group one transaction at a time changes the state. Servers hand their steps over to the group's home, and
requests that wait there share its next one. In a weak group each server hands out by itself, from what it knows of
the others: what two hand out before either knows of the other is a duplicate.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator
from typing import Any

import simpy

from qdo.bench.order import StreamOrder
from qdo.bench.simulation.costs import CostTable
from qdo.bench.simulation.outcome import LimitUse, SimulatedFigures
from qdo.bench.simulation.scenario import ReceiverCrowd, Scenario
from queuey.model.lease_spread import MOST_K, Spread

__all__ = ["simulate_crowd"]

Steps = Generator[simpy.Event, Any, None]
CALLS_TOGETHER = 64
"""Of one transaction, as in queuey/storage/cassandra/lease_lines.py."""
EACH = 8
"""A receive of a weak group looks at this many messages for each server, as in lease_shares.py."""
LEFT_STEPS = 4
"""Steps for which a server leaves the messages of others to them."""
HOME = 0
TOGETHER = "more queues, or a weak group; more servers do not help"
EMPTY_SECONDS = 0.005
"""Until a receiver asks again after an answer without messages."""


class _Crowd(ABC):
    """What both kinds of groups have: receivers, servers with lines, and a backlog."""

    def __init__(self, scenario: Scenario, crowd: ReceiverCrowd, costs: CostTable) -> None:
        self.crowd = crowd
        self.costs = costs
        self.network = scenario.machines.network
        self.speed = scenario.machines.speed
        self.env = simpy.Environment()
        self.chance = random.Random(f"{scenario.seed}/group")  # noqa: S311 -- repeatable, not secret
        self.lines: list[deque[simpy.Event]] = [deque() for _ in range(crowd.servers)]
        self.wake = [self.env.event() for _ in range(crowd.servers)]
        self.order = StreamOrder()
        self.receipts = 0
        self.transactions = 0
        self.steps = 0
        self.seen = bytearray(crowd.messages)
        self.over = self.env.event()
        self.ended = 0.0
        fixed, each = costs.receive.transaction()
        self.fixed, self.each = fixed / self.speed, each / self.speed

    def run(self) -> SimulatedFigures:
        for number in range(self.crowd.receivers):
            self.env.process(self._receiver(number % self.crowd.servers))
        self.begin()
        self.env.run(until=self.over)
        self.order.end()
        return self.figures()

    @abstractmethod
    def begin(self) -> None:
        """Start the processes of the group."""

    @abstractmethod
    def limit(self) -> LimitUse:
        """What bounds it."""

    def way(self, server: int) -> float:
        """Seconds from a receiver of this server to the line that its calls wait in."""
        return self.network

    def _receiver(self, server: int) -> Steps:
        """Settle what it has and receive more, in one request, for ever."""
        while True:
            asked = self.env.event()
            yield self.env.timeout(self.way(server))
            self.ask(server, asked)
            got: int = yield asked
            yield self.env.timeout(self.way(server) + (got * self.crowd.work if got else EMPTY_SECONDS))

    def ask(self, server: int, call: simpy.Event) -> None:
        """Put a call into the line of its server."""
        self.lines[server].append(call)
        if not self.wake[server].triggered:
            self.wake[server].succeed()

    def taken(self, server: int) -> list[simpy.Event]:
        """The calls of the next step of a server."""
        line = self.lines[server]
        return [line.popleft() for _ in range(min(len(line), CALLS_TOGETHER))]

    def is_over(self) -> bool:
        """All messages were handed out."""
        return self.over.triggered

    def hand_out(self, message: int) -> bool:
        """Note a receipt, and whether it is the first one."""
        self.receipts += 1
        if self.seen[message]:
            return False
        self.seen[message] = 1
        self.order.add(message)
        if self.order.received == self.crowd.messages:
            self.ended = self.env.now
            self.over.succeed()
        return True

    def figures(self) -> SimulatedFigures:
        rate = self.order.received / self.ended
        duplicates = self.receipts - self.order.received
        return SimulatedFigures(
            {
                "messages/s": rate,
                "requests/s": self.steps / self.ended,
                "requests of a transaction": self.steps / max(1, self.transactions),
                "duplicates, %": 100 * duplicates / self.receipts,
                "disorder, %": 100 * self.order.out_of_order / self.order.received,
                "displacement": self.order.moved / self.order.received,
            },
            [self.limit()],
        )


class _ExactCrowd(_Crowd):
    """One transaction at a time."""

    def __init__(self, scenario: Scenario, crowd: ReceiverCrowd, costs: CostTable) -> None:
        super().__init__(scenario, crowd, costs)
        self._handed = costs.handed / self.speed
        self._is_shared = bool(scenario.machines.shared)
        if self._is_shared:
            stretch = self._stretch()
            self.fixed, self.each = self.fixed * stretch, self.each * stretch
        self._next = 0
        self._busy = 0.0
        self._keys: list[deque[int]] = []
        if crowd.keys:
            self._keys = self._by_key()
        self._open: deque[int] = deque(range(len(self._keys)))
        self._waiting: deque[simpy.Event] = deque()
        """Calls that found nothing; what comes wakes one of them."""
        self._hot_closed = 0.0
        """Seconds in which the busiest key was closed."""

    def _stretch(self) -> float:
        """How much longer a transaction takes on a machine that all share, since its processors also hand steps over."""
        receivers = range(self.crowd.receivers)
        away = sum(number % self.crowd.servers != HOME for number in receivers) / len(receivers)
        return 1 + away * self.costs.handed / max(1e-9, self.costs.receive.at(len(receivers)).processors)

    def _by_key(self) -> list[deque[int]]:
        keys: list[deque[int]] = [deque() for _ in range(self.crowd.keys)]
        for message in range(self.crowd.messages):
            hot = self.crowd.hot and self.chance.random() < self.crowd.hot
            keys[0 if hot else self.chance.randrange(self.crowd.keys)].append(message)
        return keys

    def begin(self) -> None:
        self.env.process(self._steps())

    def way(self, server: int) -> float:
        """To the group's home; all other servers hand their steps over to it."""
        if server == HOME:
            return self.network
        return 2 * self.network + (0.0 if self._is_shared else self._handed / 2)

    def ask(self, server: int, call: simpy.Event) -> None:
        super().ask(HOME, call)

    def _steps(self) -> Steps:
        while not self.is_over():
            if not self.lines[HOME]:
                self.wake[HOME] = self.env.event()
                yield self.wake[HOME]
            began = self.env.now
            calls = self.taken(HOME)
            yield self.env.timeout(self.fixed + self.each * len(calls))
            self._busy += self.env.now - began
            self.transactions += 1
            self.steps += len(calls)
            for call in calls:
                got = self._receive()
                if got or not self._keys:
                    call.succeed(got)
                else:
                    self._waiting.append(call)

    def _receive(self) -> int:
        """Messages of one call. A key is closed while some of its messages are out; a call takes several of one key."""
        some: range | list[int]
        if not self._keys:
            some = range(self._next, min(self._next + self.crowd.batch, self.crowd.messages))
            self._next = some.stop
        else:
            some = self._of_open_keys()
        for message in some:
            self.hand_out(message)
        return len(some)

    def _of_open_keys(self) -> range | list[int]:
        found: list[int] = []
        taken: list[int] = []
        while self._open and len(found) < self.crowd.batch:
            key = self._open.popleft()
            line = self._keys[key]
            many = min(self.crowd.per_key, len(line), self.crowd.batch - len(found))
            found += [line.popleft() for _ in range(many)]
            taken.append(key)
        if taken:
            self.env.process(self._reopen(taken, len(found)))
        return found

    def _reopen(self, keys: list[int], got: int) -> Steps:
        """Keys open when their messages are settled, which the receiver's next call does."""
        closed = self.env.now
        yield self.env.timeout(2 * self.network + got * self.crowd.work + self.fixed + self.each)
        if 0 in keys:
            self._hot_closed += self.env.now - closed
        self._open.extend(key for key in keys if self._keys[key])
        for _ in range(min(len(self._open), len(self._waiting))):
            self.ask(HOME, self._waiting.popleft())

    def limit(self) -> LimitUse:
        busy = self._busy / self.ended
        each = self.steps / max(1, self.transactions)
        if self.crowd.hot and self._hot_closed / self.ended > busy:
            closed = self._hot_closed / self.ended
            said = f"messages of the busiest key are out {closed:.0%} of the time, {self.crowd.per_key} at once"
            return LimitUse("order of the busiest key", closed, said, "more messages of a key in a request (per_key)")
        said = f"a transaction is under way {busy:.0%} of the time, and each has {each:.1f} requests"
        return LimitUse("transactions of the group", busy, said, TOGETHER)


class _WeakCrowd(_Crowd):
    """Each server for itself."""

    def __init__(self, scenario: Scenario, crowd: ReceiverCrowd, costs: CostTable) -> None:
        super().__init__(scenario, crowd, costs)
        self._first = 0
        """All messages before are stored as handed out."""
        self._owner = [self.chance.randrange(crowd.servers) for _ in range(crowd.messages)]
        self._stored = [float("inf")] * crowd.messages
        """The moment from which other servers know that a message was handed out."""
        self._spreads = [Spread() for _ in range(crowd.servers)]
        self._own: list[set[int]] = [set() for _ in range(crowd.servers)]
        self._left = [0] * crowd.servers
        self._busy = 0.0

    def begin(self) -> None:
        for server in range(self.crowd.servers):
            self.env.process(self._steps(server))

    def _steps(self, server: int) -> Steps:
        while not self.is_over():
            if not self.lines[server]:
                self.wake[server] = self.env.event()
                yield self.wake[server]
            calls = self.taken(server)
            began = self.env.now
            picked = [self._pick(server) for _ in calls]
            yield self.env.timeout(self.fixed + self.each * len(calls))
            self._busy += self.env.now - began
            self.transactions += 1
            self.steps += len(calls)
            duplicates = 0
            for some in picked:
                for message in some:
                    if self.is_over():
                        return
                    duplicates += not self.hand_out(message)
                    self._stored[message] = min(self._stored[message], self.env.now)
            self._spreads[server].note(handed=sum(map(len, picked)), duplicates=duplicates)
            for call, some in zip(calls, picked, strict=True):
                call.succeed(len(some))

    def _pick(self, server: int) -> list[int]:
        """Messages that this server does not know to be handed out, among the first K of these."""
        crowd, own, now = self.crowd, self._own[server], self.env.now
        while self._first < crowd.messages and self._stored[self._first] <= now:
            self._first += 1
        is_auto = crowd.k == "auto"
        k = crowd.k if isinstance(crowd.k, int) else self._k(server)
        most = max(k, crowd.batch) if not is_auto else k
        window: list[int] = []
        at = self._first
        while at < crowd.messages and len(window) < most:
            if self._stored[at] > now and at not in own:
                window.append(at)
            at += 1
        is_shared = is_auto and crowd.servers > 1
        some = self._shared(server, window) if is_shared else self._random(window, k)
        own.update(some)
        return some

    def _k(self, server: int) -> int:
        shared = EACH * self.crowd.servers if self.crowd.servers > 1 else 1
        return min(max(self._spreads[server].k, shared, self.crowd.batch), MOST_K)

    def _random(self, window: list[int], k: int) -> list[int]:
        """One after the other, each at random among the first K that are left."""
        picks = min(self.crowd.batch, len(window))
        return [window.pop(self.chance.randrange(min(k, len(window)))) for _ in range(picks)]

    def _shared(self, server: int, window: list[int]) -> list[int]:
        """Its own share first; that of others only when it has found none of its own for a while."""
        found = [message for message in window if self._owner[message] == server][: self.crowd.batch]
        if found or not window:
            self._left[server] = 0
            return found
        self._left[server] += 1
        return self._random(window, len(window)) if self._left[server] > LEFT_STEPS else []

    def limit(self) -> LimitUse:
        busy = self._busy / (self.ended * self.crowd.servers)
        said = f"a server is busy with steps {busy:.0%} of the time"
        return LimitUse("steps of servers", busy, said, "more servers, or larger batches")


def simulate_crowd(scenario: Scenario, crowd: ReceiverCrowd, costs: CostTable) -> SimulatedFigures:
    """All messages of the backlog, handed out once at least."""
    return (_ExactCrowd if crowd.exact else _WeakCrowd)(scenario, crowd, costs).run()
