"""Attempts at exact lease groups in Cassandra: the transaction of a step finds out whether its attempt is new."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from queuey.errors import KeyReused, StorageUnavailable
from queuey.model import AppendRequest, IdempotencyKey
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import QueueLog, draft
from queuey.storage.contract.lease_receiver import bodies, settle_of
from queuey.storage.leasing import ATTEMPT_SECONDS
from tests.support.counted import Counted
from tests.support.lease_servers import LeaseServer, LeaseServers, close


def test_new_attempts_are_not_looked_up(lease_servers: LeaseServers) -> None:
    """The transaction finds out whether they are new, and a repeat, also at another server, gets their answer."""
    counted = Counted("lease_attempt", "leases_advance")
    session = CassandraSession(lease_servers.session.options, counted)
    with closing(session):
        here, there = lease_servers.another(session=session), lease_servers.another()
        here.log.add(b"0", b"1", b"2", b"3")
        jobs = here.jobs()
        (first,) = jobs.receive()
        counted.statements.clear()
        wanted: dict[str, Any] = {"settles": {1: [settle_of(first)]}, "receive": ReceiveRequest()}

        handed = jobs.step(**wanted, attempt=IdempotencyKey("a", b"digest")).handed
        repeated = there.jobs(here).step(**wanted, attempt=IdempotencyKey("a", b"digest"))
        again = jobs.step(**wanted, attempt=IdempotencyKey("a", b"digest"))

        assert [*handed] == [*repeated.handed] == [*again.handed]
        assert repeated.repeated
        assert again.repeated
        found = jobs.step(receive=ReceiveRequest(), attempt=IdempotencyKey("b", b"digest")).handed
        assert bodies(found) == [b"2"]
        assert jobs.step(receive=ReceiveRequest(), attempt=IdempotencyKey("b", b"digest")).repeated
        with pytest.raises(KeyReused):
            jobs.step(receive=ReceiveRequest(2), attempt=IdempotencyKey("b", b"another"))
        assert counted.statements["lease_attempt"] == 3  # one for each repeat
        lease_servers.made.remove(here)
        close(here.stores)


def test_an_attempt_that_is_asked_for_twice_at_once_is_done_once(first: LeaseServer) -> None:
    """Both are calls of one transaction."""
    first.log.add(*[b"%d" % number for number in range(8)])
    jobs = first.jobs()
    step = LeaseStep(
        [GroupStep(first.log.queue, "workers", jobs.new, receive_from=[1])],
        receive=ReceiveRequest(),
        attempt=IdempotencyKey("a", b""),
    )
    outcomes = [one.wait() for one in [first.leases.step(step) for _ in range(4)]]
    assert len({handed.message.body for one in outcomes for handed in one.handed}) == 1
    assert [one.repeated for one in outcomes].count(False) == 1


def test_an_attempt_that_waited_while_its_server_stood_still_is_left_alone(
    first: LeaseServer, second: LeaseServer, lease_servers: LeaseServers
) -> None:
    """It was repeated at another server, and forgotten there by now: a pop would lose what it finds."""
    first.log.add(b"0", b"1", b"2")
    here, there = first.jobs(), second.jobs(first)
    assert bodies(there.receive()) == [b"0"]
    asked = dict[str, Any](receive=ReceiveRequest(pop=True), attempt=IdempotencyKey("a", b""))
    rows = first.leases._means.rows
    whole = rows.whole

    def stands_still(*how: Any, **more: Any) -> Any:
        rows.whole = whole  # type: ignore[method-assign]
        assert bodies([*there.step(**asked).handed]) == [b"1"]
        lease_servers.clock.advance(ATTEMPT_SECONDS + 1)
        return whole(*how, **more)

    rows.whole = stands_still  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailable, match="nothing was done"):
        here.step(**asked)
    assert bodies(there.receive()) == [b"2"]


def test_an_attempt_at_two_servers_at_once_is_done_once(first: LeaseServer, second: LeaseServer) -> None:
    first.log.append(*[draft(b"%d" % number) for number in range(40)])
    results = QueueLog(first.stores.messages, first.clock)
    receivers = [first.jobs(), second.jobs(first)]
    with ThreadPoolExecutor() as threads:
        for number in range(10):
            appends = [AppendRequest(results.queue, [draft(b"%d" % number)])]
            wanted: dict[str, Any] = {
                "attempt": IdempotencyKey(f"{number}", b""),
                "receive": ReceiveRequest(2),
                "appends": appends,
            }
            here, there = threads.map(lambda jobs, wanted=wanted: jobs.step(**wanted), receivers)
            assert here.repeated != there.repeated
            assert list(here.handed) == list(there.handed)
            assert [list(one.placed) for one in here.appended] == [list(one.placed) for one in there.appended]
    assert results.bodies() == [b"%d" % number for number in range(10)]
