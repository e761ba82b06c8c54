"""G10: while nodes are down, the heartbeat says that nothing works, or warns that some queues refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuey.errors import QueueyError
from tests.support.fleet import Fleet
from tests.support.servers import eventually
from tests.support.services.cassandra import Cassandra

QUEUES = 12
SECONDS = 60


def served(fleet: Fleet) -> int:
    """How many queues take a message."""
    count, client = 0, fleet.client(0)
    for number in range(QUEUES):
        try:
            client.append(f"q{number}", b"x")
        except QueueyError:
            continue
        count += 1
    return count


@pytest.mark.parametrize(
    ("copies", "killed", "status"), [(3, 2, 503), (1, 1, 200)], ids=["two of three", "the only copy of some"]
)
def test_a_server_is_taken_away_if_it_can_do_nothing_for_anybody(
    tmp_path: Path, cassandra_cluster: Cassandra, copies: int, killed: int, status: int
) -> None:
    with Fleet(tmp_path, cassandra_cluster, servers=1, replication=copies) as fleet:
        server = fleet.nodes[0]
        for number in range(QUEUES):
            fleet.client(0).create_queue(f"q{number}")
        before = server.get("/__heartbeat__")
        for node in cassandra_cluster.nodes[-killed:]:
            node.kill()

        def says() -> str:
            answer = server.get("/__heartbeat__")
            return answer.text if answer.status_code == 503 else answer.headers.get("Queuey-Warnings", "")

        assert eventually(lambda: "nodes are down" in says(), seconds=SECONDS)
        assert server.get("/__heartbeat__").status_code == status
        assert (served(fleet) > 0) == (status == 200)

        cassandra_cluster.start()
        assert eventually(lambda: "nodes are down" not in says(), seconds=SECONDS)
        assert (before.status_code, server.get("/__heartbeat__").status_code) == (200, 200)
        assert eventually(lambda: served(fleet) == QUEUES, seconds=SECONDS)
