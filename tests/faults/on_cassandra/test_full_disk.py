"""G1: a node whose disk is full stops, and the rest serves; it comes back with what was acknowledged meanwhile."""

from __future__ import annotations

import random
import resource
from pathlib import Path

from queuey.errors import OutcomeUnknown, StorageUnavailable
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.fleet import LOOKS, Fleet, wait_until_readable
from tests.support.services.cassandra import Cassandra

APPENDS, BYTES = 120, 600_000
"""More than two files of a node's commit log: so it needs new ones."""


def test_a_node_with_a_full_disk_loses_nothing(
    tmp_path: Path, cassandra_cluster: Cassandra, chance: random.Random, figures: Figures
) -> None:
    """The node may write into no file any more: its kernel refuses as a full disk does."""
    acknowledged, unknown, refused = list[bytes](), 0, 0
    full = chance.choice(cassandra_cluster.nodes)
    with Fleet(tmp_path, cassandra_cluster, servers=2) as fleet:
        clients = fleet.clients()
        clients[0].create_queue("q")
        assert full.pid is not None
        resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        for number in range(APPENDS):
            body = b"%d " % number + chance.randbytes(BYTES)
            try:
                clients[number % 2].append("q", body)
            except OutcomeUnknown:
                unknown += 1
            except StorageUnavailable:  # the others are overloaded for a moment
                refused += 1
            else:
                acknowledged.append(body)
        full.kill()
        cassandra_cluster.mend()
        client = fleet.client(0, retries=LOOKS)
        wait_until_readable(client, "q", client.append("q", b"last").id)
        stored = {message.body for message in everything(client, "q")}

    lost = [body for body in acknowledged if body not in stored]
    figures("G1", acked=len(acknowledged), lost=len(lost), unknown=unknown, refused=refused)
    assert len(acknowledged) > APPENDS // 2
    assert lost == []
