"""What stores tell of their work for lease groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.contract.common import QueueLog
from queuey.storage.contract.lease_receiver import Receiver, bodies
from queuey.storage.sqlite import SqliteStores
from tests.support.counted import Noted
from tests.support.lease_servers import LeaseServers


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def embedded(tmp_path: Path, noted: Noted) -> Iterator[Receiver]:
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock), observer=noted)
    yield Receiver(stores.leases, QueueLog(stores.messages, clock, partitions=1))
    stores.close()


@pytest.fixture
def distributed(lease_servers: LeaseServers, noted: Noted) -> Receiver:
    server = lease_servers.another(observer=noted)
    server.log.queue = server.log.queue._replace(partitions=1)
    return server.jobs()


@pytest.fixture(params=["embedded", "distributed"])
def jobs(request: pytest.FixtureRequest) -> Receiver:
    found: Receiver = request.getfixturevalue(request.param)
    return found


def test_a_store_tells_the_bytes_that_it_writes_of_a_state(jobs: Receiver, noted: Noted) -> None:
    jobs.log.add(b"one", b"two")
    assert not noted.written
    (one,) = jobs.receive()
    first = sum(noted.written)
    assert 16 <= first < 200  # an id, and when the lease ends
    assert jobs.settle(one)
    assert 2 <= sum(noted.written) - first < 200


def test_messages_that_are_handed_out_are_not_wasted(jobs: Receiver, noted: Noted) -> None:
    jobs.log.add(b"0", b"1", b"2")
    assert bodies(jobs.receive()) == [b"0"]
    assert bodies(jobs.receive(2)) == [b"1", b"2"]
    assert noted.wasted == 0


def test_messages_that_are_read_again_since_one_changed_are_wasted(jobs: Receiver, noted: Noted) -> None:
    ids = jobs.log.add(b"0", b"1", b"2")
    assert bodies(jobs.receive()) == [b"0"]
    jobs.log.delete((1, ids[1]))
    assert bodies(jobs.receive()) == [b"2"]
    assert noted.wasted == 2
