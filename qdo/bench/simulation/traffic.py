"""The traffic of many queues: clients, servers, and nodes of Cassandra.

A request goes from its client to a server, whose interpreter it holds for its processor time; then to the copies of its
partition, of which most must answer. :mod:`~qdo.bench.simulation.shared` has the machine that all of them share.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from qdo.bench.histogram import TimeHistogram
from qdo.bench.simulation.costs import CostTable, OperationCost
from qdo.bench.simulation.notices import notice_limits
from qdo.bench.simulation.outcome import LimitUse, SimulatedFigures
from qdo.bench.simulation.scenario import Scenario, TrafficStream
from qdo.bench.simulation.shared import SharedMachine
from qdo.bench.simulation.stations import SharedThread, Station, Steps

__all__ = ["simulate_traffic"]

Answered = Generator[simpy.Event, Any, bool]
RETRY_SECONDS = 0.01


@dataclass(eq=False)
class _SimulatedServer:
    number: int
    rack: int
    interpreter: Station
    """A process of Python: one thread of it runs at a time."""
    in_flight: int = 0
    is_up: bool = True
    is_silent: bool = False
    """Its machine is gone: nobody says that it does not listen."""


@dataclass(eq=False)
class _Records:
    """What was seen after the warm-up."""

    response: TimeHistogram = field(default_factory=TimeHistogram)
    by_second: dict[int, TimeHistogram] = field(default_factory=dict)
    done: int = 0
    again: int = 0
    """Attempts that had no good answer."""
    waiting: dict[int, float] = field(default_factory=dict)
    """By the number of a request that has no answer yet, the moment at which it was due."""
    closed_appends: int = 0
    """Of closed loops, that were done."""

    def note(self, second: int, took: float) -> None:
        """An answer, or the end of the simulation for a request that has none."""
        self.response.record(int(took * 1e9))
        self.by_second.setdefault(second, TimeHistogram()).record(int(took * 1e9))

    def late_seconds(self, bound: float) -> int:
        """In which the p99 was over the bound."""
        return sum(one.percentile(99) > bound * 1e9 for one in self.by_second.values())

    def give_up(self, until: float, bound: float) -> None:
        """Count what has no answer with the time that it waited: else the worst would be missing.

        :param bound: seconds; what has waited for less says nothing yet.
        """
        for due in self.waiting.values():
            if until - due > bound:
                self.note(math.ceil(until) - 1, until - due)


class TrafficModel:
    """The model of one scenario."""

    def __init__(self, scenario: Scenario, costs: CostTable) -> None:
        self._scenario = scenario
        self._costs = costs
        self._env = env = simpy.Environment()
        self._chance = random.Random(f"{scenario.seed}/traffic")  # noqa: S311 -- repeatable, not secret
        machines, since = scenario.machines, scenario.warmup
        # Where all share one machine, other programs take a part of it, as they did when the costs were measured.
        self._speed = machines.speed * ((1 - costs.others) if machines.shared else 1.0)
        self._shared = SharedMachine(env, scenario, costs, self._scaled) if machines.shared else None
        self._servers = [
            _SimulatedServer(at, at % scenario.servers.racks, Station(env, 1, since=since))
            for at in range(scenario.servers.count)
        ]
        self._known = [*self._servers]
        nodes = scenario.nodes
        self._nodes = [Station(env, nodes.processors, since=since) for _ in range(nodes.count)]
        self._lost_rack: int | None = None
        self._numbers = itertools.count()
        self._records = _Records()

    def run(self) -> SimulatedFigures:
        """Simulate the whole time of the scenario."""
        scenario, env = self._scenario, self._env
        for name, stream in scenario.traffic.items():
            env.process(self._arrivals(name, stream))
            for at in range(stream.connections):
                env.process(self._closed_loop(stream, self._servers[at % len(self._servers)]))
        faults = scenario.faults
        if faults.rack:
            env.process(self._lose_rack(faults.rack))
        if faults.rolling:
            env.process(self._restart(faults.rolling))
        env.run(until=scenario.seconds)
        self._records.give_up(env.now, scenario.most_response)
        return self._figures()

    # Clients

    def _arrivals(self, name: str, stream: TrafficStream) -> Steps:
        rate = self._rate(stream)
        if not rate:
            return
        chance = random.Random(f"{self._scenario.seed}/{name}")  # noqa: S311 -- repeatable, not secret
        while True:
            yield self._env.timeout(chance.expovariate(rate))
            self._env.process(self._request(stream))

    def _request(self, stream: TrafficStream) -> Steps:
        due, number = self._env.now, next(self._numbers)
        self._records.waiting[number] = due
        partition = 0 if stream.hot and self._chance.random() < stream.hot else self._chance.randrange(1, 1 << 40)
        while not (yield from self._attempt(stream, self._pick(), partition)):
            self._records.again += self._env.now >= self._scenario.warmup
            yield self._env.timeout(RETRY_SECONDS)
        self._note(number)

    def _closed_loop(self, stream: TrafficStream, server: _SimulatedServer) -> Steps:
        """As the harness sends: each connection has a server of its own, and the costs are those of their number there."""
        cost = self._cost_of(stream)
        level = max(1.0, stream.connections / len(self._servers) / stream.queues)
        thread = SharedThread()
        while True:
            number = next(self._numbers)
            self._records.waiting[number] = self._env.now
            if self._shared is not None:
                yield from self._shared.generate(thread, cost.at(level).generator)
            while not (yield from self._attempt(stream, server, self._chance.randrange(1 << 40), level)):
                self._records.again += self._env.now >= self._scenario.warmup
                yield self._env.timeout(RETRY_SECONDS)
            self._records.closed_appends += stream.operation == "append" and self._env.now >= self._scenario.warmup
            self._note(number)

    def _note(self, number: int) -> None:
        now, records = self._env.now, self._records
        due = records.waiting.pop(number)
        if now >= self._scenario.warmup:
            records.done += 1
            records.note(int(now), now - due)

    def _pick(self) -> _SimulatedServer:
        return self._known[self._chance.randrange(len(self._known))] if self._known else self._servers[0]

    # Servers and nodes

    def _attempt(
        self, stream: TrafficStream, server: _SimulatedServer, partition: int, in_flight: float | None = None
    ) -> Answered:
        """One request, and whether it had a good answer.

        :param in_flight: of the requests with which it shares; None counts those at the server.
        """
        network = self._scenario.machines.network
        if not server.is_up:
            yield self._env.timeout(self._scenario.servers.patience if server.is_silent else 2 * network)
            return False
        server.in_flight += 1
        cost = self._costs.cold if self._chance.random() < stream.cold else self._cost_of(stream)
        is_stored = self._is_quorum()
        if self._shared is not None:
            yield from self._at_shared(self._shared, stream, cost, server, partition)
        else:
            level = cost.at(in_flight or self._level(stream, server))
            more = max(0, stream.messages - cost.messages)
            if network:
                yield self._env.timeout(network)
            yield server.interpreter.serve(self._scaled(level.server + more * cost.server_each))
            if is_stored:
                stored = self._store(partition, self._scaled(level.node + more * cost.node_each))
                yield self._env.timeout(stored - self._env.now + cost.pause + 3 * network)
        server.in_flight -= 1
        if server.is_silent:
            yield self._env.timeout(self._scenario.servers.patience)
            return False
        return is_stored

    def _at_shared(
        self,
        machine: SharedMachine,
        stream: TrafficStream,
        cost: OperationCost,
        server: _SimulatedServer,
        partition: int,
    ) -> Steps:
        """One request on the machine that all share."""
        more, parts = max(0, stream.messages - cost.messages), cost.parts
        parts = parts._replace(server=parts.server + more * cost.server_each, node=parts.node + more * cost.node_each)
        together = yield from machine.receive(server.number, parts)
        if self._is_quorum():
            yield from machine.store(self._copies(partition), parts, together)
            yield self._env.timeout(cost.pause)
        yield from machine.answer(server.number, parts)

    def _cost_of(self, stream: TrafficStream) -> OperationCost:
        return self._costs.append if stream.operation == "append" else self._costs.receive

    @staticmethod
    def _level(stream: TrafficStream, server: _SimulatedServer) -> float:
        """Requests in flight that share writes: those to one partition."""
        return max(1.0, server.in_flight / stream.queues)

    def _rate(self, stream: TrafficStream) -> float:
        """Of an open loop, requests a second; 0 of a closed one."""
        return stream.rate or stream.share * self._most()

    def _most(self) -> float:
        """Appends a second that the interpreters of all servers can do, each to another partition."""
        return len(self._servers) / self._scaled(self._costs.append.at(1).server)

    def _scaled(self, seconds: float) -> float:
        return seconds / self._speed

    def _is_quorum(self) -> bool:
        """Whether most copies of each partition are up: one of them is in each rack."""
        copies = self._scenario.nodes.replication
        lost = 1 if self._lost_rack is not None and self._lost_rack < copies else 0
        return copies - lost > copies // 2

    def _store(self, partition: int, seconds: float) -> float:
        """The moment at which most copies of a partition have answered."""
        ends = sorted(self._nodes[at].reserve(seconds) for at in self._copies(partition))
        return ends[self._scenario.nodes.replication // 2]

    def _copies(self, partition: int) -> list[int]:
        """The nodes that have a partition, and are there."""
        copies = self._scenario.nodes.replication
        place = partition % (len(self._nodes) // copies)
        return [place * copies + rack for rack in range(copies) if rack != self._lost_rack]

    # Faults

    def _lose_rack(self, at: float) -> Steps:
        yield self._env.timeout(at)
        self._lost_rack = 0
        for server in self._servers:
            if server.rack == 0:
                server.is_up, server.is_silent = False, True
        yield self._env.timeout(self._scenario.servers.noticed)
        self._known = [server for server in self._known if not server.is_silent]

    def _restart(self, at: float) -> Steps:
        fleet, faults = self._scenario.servers, self._scenario.faults
        yield self._env.timeout(at)
        for first in range(0, len(self._servers), faults.together):
            some = self._servers[first : first + faults.together]
            self._known = [server for server in self._known if server not in some]
            yield self._env.timeout(faults.drain)
            for server in some:
                server.is_up = False
            yield self._env.timeout(fleet.start)
            # A server whose rack is gone has nothing to start on.
            for server in some:
                server.is_up = not server.is_silent
            yield self._env.timeout(fleet.noticed)
            back = [server for server in some if server.is_up]
            self._known = [server for server in self._servers if server in self._known or server in back]

    # What came of it

    def _figures(self) -> SimulatedFigures:
        scenario, records = self._scenario, self._records
        seconds = scenario.seconds - scenario.warmup
        appends = sum(self._rate(one) for one in scenario.traffic.values() if one.operation == "append")
        appends += records.closed_appends / seconds
        p99 = records.response.percentile(99) / 1e9
        found = SimulatedFigures(
            {
                "requests/s": records.done / seconds,
                "response mean, ms": records.response.mean / 1e6,
                "response p50, ms": records.response.percentile(50) / 1e6,
                "response p99, ms": p99 * 1e3,
                "attempts without a good answer": float(records.again),
                "seconds over the bound": float(records.late_seconds(scenario.most_response)),
            },
            self._busy(),
            {"response p99, ms": [(at, one.percentile(99) / 1e6) for at, one in sorted(records.by_second.items())]},
        )
        if not self._shared:
            late = (
                "the requests wait: see which part above is busiest"
                if not (scenario.faults.rack or scenario.faults.rolling)
                else "a shorter time until the balancer notices, and clients that give up sooner and ask another server"
            )
            said = f"p99 {p99 * 1e3:.1f} ms of {scenario.most_response * 1e3:g}"
            found.limits.append(LimitUse("response time", p99 / scenario.most_response, said, late))
        if scenario.servers.notices:
            found.limits += notice_limits(scenario, self._costs, appends)
        return found

    def _busy(self) -> list[LimitUse]:
        until = self._scenario.seconds
        if self._shared is not None:
            processors = self._shared.processors
            use = processors.busy_share(until)
            said = f"{use:.0%} of the {processors.processors} processors that all share"
            return [LimitUse("processors", use, said, "machines of their own for servers and nodes")]
        up = [one for one in self._servers if one.is_up]
        servers = [one.interpreter.busy_share(until) for one in up or self._servers]
        nodes = [one.busy_share(until) for one in self._nodes]
        mean = sum(nodes) / len(nodes)
        busiest = max(nodes)
        is_hot = busiest > 1.5 * mean
        return [
            LimitUse(
                "interpreters of servers",
                max(servers),
                f"the busiest of {len(servers)} servers is busy {max(servers):.0%} of the time, the mean one "
                f"{sum(servers) / len(servers):.0%}",
                "more servers: each is one process of Python",
            ),
            LimitUse(
                "processors of nodes",
                busiest,
                f"the busiest of {len(nodes)} nodes is busy {busiest:.0%} of the time, the mean one {mean:.0%}",
                "more partitions for the busiest queue, so that it lies on more nodes" if is_hot else "more nodes",
            ),
        ]


def simulate_traffic(scenario: Scenario, costs: CostTable) -> SimulatedFigures:
    """The traffic of a scenario.

    It ends after the scenario's seconds. What is in flight then counts in the response times if it is over the bound.
    """
    return TrafficModel(scenario, costs).run()
