"""The workload ``peers`` of the load harness, over all systems of others that can be started here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from qdo.bench.document import Document
from qdo.bench.running import Experiment
from qdo.bench.workload import changed, find, load, scaled
from tests.bench.plan import Plan
from tests.bench.servers import APPLICATION, KEY, queuey
from tests.support.peers_of_bench import StartedPeers

SYSTEMS: Mapping[str, tuple[str, ...]] = {
    "redis": ("redis-streams",),
    "rabbitmq": ("rabbitmq-classic", "rabbitmq-quorum"),
    "nats": ("nats",),
    "kafka": ("kafka",),
    "elasticmq": ("sqs",),
}
"""And the drivers that speak to them."""
_ON_DISK = {"kafka": {"flush": "1"}}
"""Options by which a system has on disk what it acknowledges, where that is not how it was started."""


def run(plan: Plan, systems: Sequence[str]) -> Sequence[Document]:
    """A document for Queuey and each driver of these systems, whose runs take turns. All of them run meanwhile.

    :param plan: its seconds replace those of the workload, if they are not 0, and so do its rounds.
    """
    workload = changed(load(find("peers")), repeats=plan.rounds or None)
    if plan.seconds:
        workload = scaled(workload, plan.seconds)
    with queuey(plan.fresh("queuey")) as server, ExitStack() as running:
        options = {"queuey.url": server.url, "queuey.application": APPLICATION, "queuey.key": KEY}
        peers, drivers = StartedPeers(plan.fresh("peers"), running), ["queuey"]
        for system in systems:
            plan.tell(f"starting {system}")
            reached = {**peers.options(system), **_ON_DISK.get(system, {})}
            drivers += SYSTEMS[system]
            options |= {f"{driver}.{name}": text for driver in SYSTEMS[system] for name, text in reached.items()}
        found = Experiment(workload, drivers, options, tell=plan.tell).run()
    return [document for document, _ in found]
