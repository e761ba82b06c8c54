"""What grows with the number of queues. Nothing waits here, so it is arithmetic and no simulation."""

from __future__ import annotations

from qdo.bench.simulation.outcome import LimitUse, SimulatedFigures
from qdo.bench.simulation.scenario import QueueCrowd, Scenario

__all__ = ["sizes_of"]

SHARDS = 16
"""Cassandra partitions over which the names of an application's queues are spread, as in decision 009."""
MOST_PARTITION_BYTES = 100e6
"""Of a Cassandra partition. Beyond it compactions and repairs begin to hurt; it is no hard limit."""
FULL_SHARE = 0.5
"""Of a disk: compaction needs the rest."""


def sizes_of(scenario: Scenario, crowd: QueueCrowd) -> SimulatedFigures:
    """How large it all is."""
    shard = crowd.queues / crowd.applications / SHARDS * crowd.name_bytes
    nodes = scenario.nodes
    disk = crowd.queues * (crowd.name_bytes + crowd.settings_bytes) * nodes.replication / nodes.count
    return SimulatedFigures(
        {"a shard of names, MB": shard / 1e6, "settings on a node, GB": disk / 1e9},
        [
            LimitUse(
                "lists of names",
                shard / MOST_PARTITION_BYTES,
                f"the names of one application in {SHARDS} Cassandra partitions of {shard / 1e6:,.0f} MB, of "
                f"{MOST_PARTITION_BYTES / 1e6:,.0f} MB",
                "more shards for an application that has very many queues, or several applications",
            ),
            LimitUse(
                "disks of nodes",
                disk / (FULL_SHARE * crowd.disk),
                f"{disk / 1e9:,.1f} GB of settings on each node, without any message, of {FULL_SHARE * crowd.disk / 1e9:,.0f} GB",
                "more nodes",
            ),
        ],
    )
