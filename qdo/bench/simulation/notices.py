"""What it costs servers to learn of each other's messages (docs/decisions/010).

Each server writes a row of the partitions it appended to, and each server with waiting readers reads the rows of all. The
rows of ten seconds lie in one Cassandra partition.
"""

from __future__ import annotations

from qdo.bench.simulation.costs import CostTable
from qdo.bench.simulation.outcome import LimitUse
from qdo.bench.simulation.scenario import Scenario

__all__ = ["notice_limits"]

# As queuey/service/waiting/peers.py and queuey/storage/cassandra/peers.py have them.
PUBLISH_SECONDS, POLL_SECONDS, BACK_SECONDS = 0.25, 0.5, 1.5
MOST_PARTITIONS = 4096
ROW_BYTES, PARTITION_BYTES = 100, 17
CHANGE = (
    "rows by a hash of the partition, so that a server reads those of its own readers alone; or readers of a queue at "
    "one server, and servers that tell it directly"
)


def notice_limits(scenario: Scenario, costs: CostTable, appends: float) -> list[LimitUse]:
    """What of nodes and servers the notices use.

    :param appends: that all servers take in a second, each to a partition of its own.
    """
    servers = scenario.servers.count
    if servers < 2:
        return []
    of_one = appends / servers
    named = min(of_one * PUBLISH_SECONDS, MOST_PARTITIONS)
    row = ROW_BYTES + PARTITION_BYTES * named
    rows = servers / PUBLISH_SECONDS * (POLL_SECONDS + BACK_SECONDS)
    read = servers / POLL_SECONDS * rows * row
    sent = scenario.nodes.replication * scenario.machines.bandwidth
    heard = (servers - 1) * named / PUBLISH_SECONDS * costs.notice / scenario.machines.speed
    return [
        LimitUse(
            "notices, nodes",
            read / sent,
            f"{servers:,} servers read {read / 1e6:,.0f} MB/s of one Cassandra partition, whose nodes send {sent / 1e6:,.0f}",
            CHANGE,
        ),
        LimitUse(
            "notices, servers",
            heard,
            f"each hears of {(servers - 1) * named / PUBLISH_SECONDS:,.0f} partitions a second, and is busy with it {heard:.0%} "
            "of the time",
            CHANGE,
        ),
    ]
