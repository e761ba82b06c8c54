"""What the heartbeat says while nodes are down, with the driver's own nodes and ring."""

from __future__ import annotations

import pytest
from cassandra.cluster import Cluster
from cassandra.connection import DefaultEndPoint
from cassandra.metadata import KeyspaceMetadata, Murmur3Token
from cassandra.policies import SimpleConvictionPolicy
from cassandra.pool import Host

from queuey.storage.cassandra.copies import Copies

TOKENS = 4


def cluster_of(nodes: int, copies: int, *down: int) -> Cluster:
    """One that is connected to nothing, with the nodes numbered from 1."""
    cluster, ring = Cluster(["127.0.0.1"]), {}
    for number in range(1, nodes + 1):
        host = Host(DefaultEndPoint(f"127.0.0.{number}"), SimpleConvictionPolicy)
        host.set_down() if number in down else host.set_up()
        cluster.metadata.add_or_return_host(host)
        ring[host] = [str(turn * nodes + number) for turn in range(TOKENS)]
    how = {"replication_factor": str(copies)}
    keyspace = KeyspaceMetadata("queuey", durable_writes=True, strategy_class="SimpleStrategy", strategy_options=how)
    cluster.metadata.keyspaces["queuey"] = keyspace
    cluster.metadata.rebuild_token_map("org.apache.cassandra.dht.Murmur3Partitioner", ring)
    cluster.metadata.token_map.get_replicas("queuey", Murmur3Token(1))
    return cluster


@pytest.mark.parametrize(
    ("nodes", "copies", "down", "says"),
    [
        (3, 3, (), ""),
        (3, 3, (2,), ""),
        (3, 3, (2, 3), "problem: no queue has enough copies in Cassandra, since nodes are down (127.0.0.2, 127.0.0.3)"),
        (3, 1, (2,), "warning: 4 of 12 parts of keyspace queuey refuse, since nodes are down (127.0.0.2)"),
        (2, 2, (1,), "problem: no queue has enough copies in Cassandra, since nodes are down (127.0.0.1)"),
        (6, 3, (1, 2), "warning: 8 of 24 parts of keyspace queuey refuse, since nodes are down (127.0.0.1, 127.0.0.2)"),
        (6, 3, (1, 4), ""),
        (1, 1, (1,), "problem: no queue has enough copies in Cassandra, since nodes are down (127.0.0.1)"),
    ],
)
def test_a_server_has_a_problem_if_no_part_of_the_keyspace_has_enough_copies(
    nodes: int, copies: int, down: tuple[int, ...], says: str
) -> None:
    found = Copies(cluster_of(nodes, copies, *down), "queuey")

    said = [f"problem: {text}" for text in found.problems()] + [f"warning: {text}" for text in found.warnings()]
    assert [text.removesuffix(": start them") for text in said] == ([says] if says else [])


def test_a_server_that_does_not_know_the_ring_says_nothing() -> None:
    found = Copies(cluster_of(3, 3, 1, 2), "another")

    assert not [*found.problems(), *found.warnings()]
