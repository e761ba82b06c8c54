"""Messages of a lease group on Cassandra that are read before they are handed out."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import pytest

from queuey.ids import MessageId
from queuey.model import ReadRequest
from queuey.storage.cassandra import lease_ahead
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.contract.common import QueueLog, draft
from queuey.storage.contract.lease_receiver import Receiver, bodies
from tests.support.counted import Noted
from tests.support.lease_servers import LeaseServer, LeaseServers

FIRST, SECOND = 300, 100
"""Messages of each partition; those of the second one come later."""


@pytest.fixture
def server(lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch) -> LeaseServer:
    """One that reads nothing again because time has passed."""
    monkeypatch.setattr(lease_ahead, "AHEAD_SECONDS", 1000.0)
    monkeypatch.setattr(lease_ahead, "_RENEWED_SECONDS", 1000.0)
    return lease_servers.another()


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Pages that were read, by partition."""
    found = Counter[int]()
    page = CassandraMessages.page

    def counted(messages: CassandraMessages, request: ReadRequest, **how: Any) -> Any:
        found[request.partition.number] += 1
        return page(messages, request, **how)

    monkeypatch.setattr(CassandraMessages, "page", counted)
    return found


@pytest.fixture
def jobs(server: LeaseServer) -> Receiver:
    log = server.log = QueueLog(server.stores.messages, server.clock, partitions=2)
    log.append(*[draft(b"%d" % number, 1) for number in range(FIRST)])
    server.clock.advance(1)
    log.append(*[draft(b"%d" % number, 2) for number in range(FIRST, FIRST + SECOND)])
    return server.jobs()


def test_all_are_handed_out_once_and_in_order(jobs: Receiver) -> None:
    found = [body for most in (1, 70, 3, 100, 90, 100, 30, 9) for body in bodies(jobs.receive(most))]
    found += [body for _ in range(3) for body in bodies(jobs.receive(100))]
    assert [*map(int, found)] == [*range(FIRST + SECOND)]


def test_no_more_is_read_of_a_partition_whose_messages_come_later(jobs: Receiver, pages: Counter[int]) -> None:
    jobs.receive(1)
    before = pages[2]
    for _ in range(3):
        assert len(jobs.receive(90)) == 90
    assert pages[2] == before
    assert pages[1] > before


def test_the_next_messages_are_read_while_a_transaction_is_stored(
    server: LeaseServer, jobs: Receiver, pages: Counter[int]
) -> None:
    ahead = server.leases._line(server.log.queue.uuid, jobs.name).memory.ahead
    for _ in range(2):
        jobs.receive(60)
    assert ahead._reading, "they are on their way"
    before = pages[1]
    ahead.look_on = lambda *_: None  # type: ignore[method-assign]
    assert len(jobs.receive(60)) == 60
    assert pages[1] == before


def test_messages_of_some_partitions_alone_are_read_for_those(jobs: Receiver, pages: Counter[int]) -> None:
    assert bodies(jobs.receive(1, partitions=[2])) == [b"%d" % FIRST]
    assert len(jobs.receive(80, partitions=[2])) == 80
    assert len(jobs.receive(80, partitions=[2])) == SECOND - 81
    assert not pages[1]


def test_messages_of_a_busy_group_are_not_read_twice(
    lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, noted = 100.0, Noted()
    monkeypatch.setattr(lease_ahead, "perf_counter", lambda: now)
    server = lease_servers.another(observer=noted)
    for block in range(8):
        server.log.append(*[draft(b"%d" % (500 * block + at)) for at in range(500)])
    jobs, found = server.jobs(), list[bytes]()
    for _ in range(20):
        found += bodies(jobs.receive(200))
        now += lease_ahead._RENEWED_SECONDS / 8
    assert [*map(int, found)] == [*range(4000)]
    assert noted.wasted == 0


def test_messages_that_wait_long_are_read_again(lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch) -> None:
    now, noted = 100.0, Noted()
    monkeypatch.setattr(lease_ahead, "perf_counter", lambda: now)
    server = lease_servers.another(observer=noted)
    server.log.append(*[draft(b"%d" % at, 1) for at in range(9)])
    jobs, found = server.jobs(), list[bytes]()
    for _ in range(9):
        found += bodies(jobs.receive())
        now += lease_ahead.AHEAD_SECONDS + 0.1
    assert [*map(int, found)] == [*range(9)]
    assert noted.wasted >= 8


def test_messages_whose_transaction_is_undone_are_as_old_as_before() -> None:
    stretches, ids = lease_ahead._Stretches(), [MessageId(at, 0) for at in range(100)]
    for at in range(1, 4):
        stretches.add(ids[10 * at], float(at))
    assert stretches.oldest(ids[10]) == 2.0
    assert stretches.oldest(ids[5]) == 1.0
    assert stretches.oldest(ids[30]) is None
    for at in range(31, 31 + lease_ahead._STRETCHES):
        stretches.add(ids[at], float(at))
    assert stretches.oldest(ids[5]) == 1.0, "what is forgotten makes nothing younger"
    assert stretches.oldest(ids[45]) == 46.0


def test_a_group_that_is_forgotten_leaves_memory_at_once(server: LeaseServer, jobs: Receiver) -> None:
    jobs.receive()
    line = server.leases._line(server.log.queue.uuid, jobs.name)
    state = weakref.ref(line.memory.books[1].state)
    gc.disable()
    try:
        line.memory.forget()
        assert state() is None
    finally:
        gc.enable()
