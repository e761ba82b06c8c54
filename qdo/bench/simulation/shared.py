"""One machine that generator, servers and nodes share, as the one on which the costs are measured.

Its system gives processors to threads fairly, so a request waits where the busiest thread is. A server takes in each turn of
its event loop all that has come. That decides how much the requests share: with one server, the server is the busiest; it
takes many in a turn, and a processor is idle while the nodes wait for it. With several servers, the nodes are the busiest;
each server takes what comes at once, one request in a turn, and pays for each turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy

from qdo.bench.simulation.costs import CostTable, RequestParts
from qdo.bench.simulation.scenario import Scenario
from qdo.bench.simulation.stations import EventLoop, SharedProcessors, SharedThread, Steps

__all__ = ["SharedMachine"]


class SharedMachine:
    """Its processors, and all that runs on them."""

    def __init__(
        self, env: simpy.Environment, scenario: Scenario, costs: CostTable, scaled: Callable[[float], float]
    ) -> None:
        """:param scaled: measured seconds as those of this machine."""
        machines = scenario.machines
        self._env = env
        self._scaled = scaled
        self._replication = scenario.nodes.replication
        self.processors = SharedProcessors(env, machines.shared, since=scenario.warmup)
        turn = scaled(costs.append.parts.turn)
        self._servers = [EventLoop(env, self.processors, turn) for _ in range(scenario.servers.count)]
        # A node has many threads. Those that work are no more than there are processors: it hands work to as few as keep up.
        self._nodes = [simpy.Store(env) for _ in range(scenario.nodes.count)]
        for node in self._nodes:
            for _ in range(machines.shared):
                node.put(SharedThread())
        self._generator = simpy.Resource(env)
        """Its interpreter."""

    def generate(self, connection: SharedThread, seconds: float) -> Steps:
        """Prepare a request, in the thread of its connection."""
        with self._generator.request() as turn:
            yield turn
            yield from self.processors.work(connection, self._scaled(seconds))

    def receive(self, server: int, parts: RequestParts) -> Generator[simpy.Event, Any, int]:
        """Take a request in.

        :returns: how many the server took in the same turn.
        """
        together: int = yield self._servers[server].take(self._scaled(parts.server) / 2, asks=True)
        return together

    def answer(self, server: int, parts: RequestParts) -> Steps:
        """Give its answer out."""
        yield self._servers[server].take(self._scaled(parts.server) / 2, asks=False)

    def store(self, nodes: list[int], parts: RequestParts, together: int) -> Steps:
        """Write the copies at these nodes, until most of them are there.

        :param together: requests of the same turn of a server, which come to the nodes at once.
        """
        seconds = self._scaled(parts.node + parts.burst / together)
        copies = [self._env.process(self._copy(self._nodes[at], seconds)) for at in nodes]
        most = self._replication // 2 + 1
        yield simpy.events.Condition(self._env, lambda _, done: done >= most, copies)

    def _copy(self, node: simpy.Store, seconds: float) -> Steps:
        thread = yield node.get()
        yield from self.processors.work(thread, seconds)
        node.put(thread)
