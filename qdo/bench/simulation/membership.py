"""The members of one worker group, and what each change costs ZooKeeper (docs/decisions/011).

Members are spread over the servers of the ensemble. Each asks the leader for a sign of life, six times in the timeout of its
session. Each watches the list of members and the plan: when one member comes or goes, all others read both anew.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import simpy

from qdo.bench.simulation.costs import CostTable
from qdo.bench.simulation.outcome import LimitUse, SimulatedFigures
from qdo.bench.simulation.scenario import Scenario, WorkerCrowd
from qdo.bench.simulation.stations import Station

__all__ = ["simulate_members"]

Steps = Generator[simpy.Event, Any, None]
BEATS = 6
"""In the timeout of a session, as in qdo/groups/zookeeper.py."""
MOST_BYTES = 1_048_575
"""Of a request, as ZooKeeper has it by default (jute.maxbuffer); the plan is one."""
BEAT_SECONDS = 1.0
"""For which signs of life are simulated before a change."""
HEARD_SECONDS = 2.0
"""Within which all members should know of a change."""
LEASES = "workers on a lease group (qdo work --lease): they need no ZooKeeper, and none knows of another"
WATCHES = "members that watch the plan alone: the leader needs the list of members, and each other one its predecessor"


class _Ensemble:
    """One group at some servers of ZooKeeper; the first of them is the leader."""

    def __init__(self, scenario: Scenario, crowd: WorkerCrowd, costs: CostTable) -> None:
        self._crowd = crowd
        self._costs = costs.zookeeper
        self._machines = scenario.machines
        self._chance = random.Random(f"{scenario.seed}/members")  # noqa: S311 -- repeatable, not secret
        self._env = env = simpy.Environment()
        # All requests of a server pass through one thread; what it sends is made by as many as there are processors.
        self._threads = [Station(env, 1) for _ in range(crowd.ensemble)]
        self._makers = [Station(env, crowd.processors) for _ in range(crowd.ensemble)]
        self._wires = [Station(env, 1) for _ in range(crowd.ensemble)]
        self._beat_waits: list[float] = []

    def run(self) -> SimulatedFigures:
        env, crowd = self._env, self._crowd
        env.process(self._beats())
        env.run(until=BEAT_SECONDS)
        # At another moment all members learn of one that has come, and then of the plan that it leads to.
        beats = self._threads[0].busy_share(BEAT_SECONDS)
        late = sorted(self._beat_waits)
        list_bytes, plan_bytes = crowd.members * self._costs.name_bytes, crowd.members * self._costs.plan_bytes
        began = env.now
        listed = self._all_read(list_bytes, self._costs.children_mb)
        env.run(until=env.timeout(max(0.0, listed - env.now)))
        planned = self._all_read(plan_bytes, self._costs.read_mb)
        return self._figures(beats, late, planned - began, list_bytes, plan_bytes)

    def _beats(self) -> Steps:
        """Signs of life of all members, as one stream: there are very many, each by itself."""
        crowd, costs = self._crowd, self._costs
        rate = crowd.members * BEATS / crowd.session
        while self._env.now < BEAT_SECONDS:
            yield self._env.timeout(self._chance.expovariate(rate))
            at = self._chance.randrange(crowd.ensemble)
            if at:
                self._threads[at].reserve(self._scaled(costs.sync))
            self._beat_waits.append(self._threads[0].reserve(self._scaled(costs.sync)) - self._env.now)

    def _all_read(self, size: float, seconds_mb: float) -> float:
        """The moment at which all members have heard of a change, and have read this number of bytes."""
        crowd, costs = self._crowd, self._costs
        last = self._threads[0].reserve(self._scaled(costs.write))
        each = -(-crowd.members // crowd.ensemble)
        for at in range(crowd.ensemble):
            heard = self._threads[at].reserve(self._scaled(each * (costs.event + costs.read)))
            made = self._makers[at].reserve(0.0)
            # The members of one server: its threads make their answers, and its wire carries them.
            making = self._scaled(each * size / 1e6 * seconds_mb) / crowd.processors
            made = max(made, heard) + making
            sent = max(heard, self._wires[at].reserve(each * size / self._machines.bandwidth))
            last = max(last, made, sent)
        return last

    def _scaled(self, seconds: float) -> float:
        return seconds / self._machines.speed

    def _figures(
        self, beats: float, late: list[float], took: float, list_bytes: float, plan_bytes: float
    ) -> SimulatedFigures:
        crowd = self._crowd
        p99 = late[int(0.99 * (len(late) - 1))] if late else 0.0
        trusted = 2 / 3 * crowd.session
        return SimulatedFigures(
            {
                "signs of life/s": crowd.members * BEATS / crowd.session,
                "sign of life p99, ms": p99 * 1e3,
                "until all know of a change, s": took,
                "bytes sent for a change, MB": crowd.members * (list_bytes + plan_bytes) / 1e6,
                "plan, KB": plan_bytes / 1e3,
            },
            [
                LimitUse(
                    "signs of life",
                    max(beats, p99 / trusted),
                    f"the leader is busy with them {beats:.0%} of the time; p99 {p99 * 1e3:.1f} ms of the {trusted:.1f} s for "
                    "which a member is trusted",
                    LEASES,
                ),
                LimitUse(
                    "size of the plan",
                    plan_bytes / MOST_BYTES,
                    f"{plan_bytes / 1e3:,.0f} KB in one node, of the {MOST_BYTES / 1e3:,.0f} KB of a request",
                    "a node for the share of each member, or slots: their number is constant",
                ),
                LimitUse(
                    "time of a change",
                    took / HEARD_SECONDS,
                    f"{took:,.2f} s until all have read the list of members and the plan, of {HEARD_SECONDS:g} s",
                    WATCHES,
                ),
                LimitUse(
                    "changes",
                    took * crowd.changes,
                    f"{crowd.changes:g} members come or go in a second, and each change keeps the ensemble busy for "
                    f"{took:,.2f} s",
                    WATCHES,
                ),
            ],
        )


def simulate_members(scenario: Scenario, crowd: WorkerCrowd, costs: CostTable) -> SimulatedFigures:
    """Signs of life for some seconds, then one change of the members."""
    return _Ensemble(scenario, crowd, costs).run()
