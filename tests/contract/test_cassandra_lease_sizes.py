"""Lease groups in Cassandra: no transaction is larger than a node takes, whatever its calls store and the group holds."""

from __future__ import annotations

from uuid import uuid4

import pytest

from queuey.ids import ZERO_ID
from queuey.model import IdempotencyKey, Retention, holes
from queuey.model.lease_requests import Action, ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.storage.cassandra import lease_access, lease_memory
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import done, draft, drive_histories
from queuey.storage.contract.lease_receiver import settle_of
from queuey.storage.leasing import changes as leasing_changes
from tests.contract import test_cassandra_leases as usual
from tests.support.lease_servers import LeaseServer, LeaseServers, SharedHistory, rows_of

_TOO_MUCH = 17 << 20
"""Bytes that a node refuses."""


def test_pops_whose_answers_are_kept_with_their_messages_share_no_more_than_a_node_takes(first: LeaseServer) -> None:
    """A node refused all of them, and again whenever they were repeated."""
    body = b"x" * (900 << 10)
    number = _TOO_MUCH // len(body)
    for _ in range(number):
        first.log.add(body)
    first.log.queue = first.log.queue._replace(retention=Retention.ACKNOWLEDGED)
    jobs = first.jobs()
    group = GroupStep(jobs.queue, jobs.name, jobs.new, receive_from=jobs.numbers)
    pops = [
        LeaseStep([group], receive=ReceiveRequest(1, pop=True), attempt=IdempotencyKey(uuid4().hex, b""))
        for _ in range(number)
    ]
    assert [len(done(begun).handed) for begun in [first.leases.step(pop) for pop in pops]] == [1] * number


def test_rejects_with_long_reasons_share_no_more_than_a_node_takes(first: LeaseServer) -> None:
    """A reason may have a traceback below it."""
    reason, together = "ä" * 5000, 250
    number = _TOO_MUCH // (len(reason.encode()) * together) + 1
    first.log.append(*[draft(b"")] * (number * together))
    jobs = first.jobs()
    group = GroupStep(jobs.queue, jobs.name, jobs.new, jobs.token)
    handed = [jobs.receive(together, visibility_seconds=900.0) for _ in range(number)]
    settles = [{1: [settle_of(one, Action.REJECT, reason=reason) for one in some]} for some in handed]
    begun = [first.leases.step(LeaseStep([group._replace(settles=each)])) for each in settles]
    assert [len(done(one).given_up) for one in begun] == [together] * number


# Large states


@pytest.fixture
def in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state is large: it is folded all the time, a block in each transaction."""
    monkeypatch.setattr(holes, "_CHUNK", 2)
    monkeypatch.setattr(lease_memory, "FOLD_BYTES", 16)
    monkeypatch.setattr(lease_access, "_MOST_WHOLE", -1)
    monkeypatch.setattr(leasing_changes, "_BLOCKS_TOGETHER", 1)
    monkeypatch.setattr(leasing_changes, "_MOST_BLOCKS", 1)


@pytest.mark.usefixtures("in_portions")
def test_any_history_of_large_states_is_as_the_model_says(first: LeaseServer, second: LeaseServer) -> None:
    used = [first, second]
    drive_histories(lambda: SharedHistory(used, used.reverse), 12)


@pytest.mark.usefixtures("in_portions")
def test_servers_that_meet_learn_a_fold_while_it_is_under_way(
    lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual.test_servers_that_meet_read_only_what_is_new(lease_servers, monkeypatch)


@pytest.mark.usefixtures("in_portions")
def test_what_was_folded_over_several_transactions_goes(
    first: LeaseServer, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leasing_changes, "_FOLD_AT", 2)
    first.log.append(*[draft(b"")] * 40)
    jobs = first.jobs()
    for _ in range(20):
        held = jobs.receive(visibility_seconds=9999.0)
    for _ in range(300):
        assert jobs.settle(held[0], Action.EXTEND, seconds=9999.0)
    assert rows_of(session, first.log, "and kind = 0") < 60


def test_a_group_whose_state_is_larger_than_a_node_takes_goes_on(lease_servers: LeaseServers) -> None:
    """Once it was to be folded, each step was refused, and no dead letter could be moved any more."""
    server = lease_servers.another()
    reason, together = "r" * 4900, 500
    number = _TOO_MUCH // (len(reason) * together) + 4
    for _ in range(number):
        server.log.append(*[draft(b"")] * together)
    jobs = server.jobs()
    for _ in range(number):
        handed = jobs.receive(together, visibility_seconds=9999.0)
        assert not jobs.step({1: [settle_of(one, Action.REJECT, reason=reason) for one in handed]}).stale
    there = lease_servers.another().jobs(server)
    page = done(there.store.held(there.queue.uuid, there.name, 1, after=ZERO_ID, limit=number * together))
    assert [*page.reasons.values()] == [reason] * (number * together)
