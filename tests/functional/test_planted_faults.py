"""Faults that tests plant can still be planted, and the program still runs: its judges are tried against them seldom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import planted_faults, skewed
from tests.support.fleet import Fleet, wait_until_readable
from tests.support.planting import plant
from tests.support.services.fixtures import Reached


class Owner:
    held = 1


def test_a_fault_of_what_is_gone_is_refused() -> None:
    plant(Owner, "held", 2)
    assert Owner.held == 2
    with pytest.raises(AttributeError, match="kept"):
        plant(Owner, "kept", 2)


@pytest.mark.parametrize("module", [planted_faults.__name__, skewed.__name__])
def test_each_fault_is_planted(module: str) -> None:
    program = f"from {module} import FAULTS\nfor plant in FAULTS.values(): plant()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_server_that_measures_nothing_stores_messages(tmp_path: Path, cassandra_node: Reached) -> None:
    with Fleet(tmp_path, cassandra_node, servers=1, replication=1, fault="unmeasured") as fleet:
        client = fleet.client(0)
        client.create_queue("q")
        wait_until_readable(client, "q", client.append("q", b"one").id)
        assert [message.body for message in client.stream_ndjson("q")] == [b"one"]
