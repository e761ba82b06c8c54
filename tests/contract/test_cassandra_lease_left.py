"""Lease groups in Cassandra: what dead servers leave behind is found, and appended as it was meant."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.future import Future, start
from queuey.model import AppendRequest, IdempotencyKey
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.storage.cassandra import lease_carrying, lease_left, lease_parcels, lease_rows
from queuey.storage.cassandra.lease_access import GroupCall
from queuey.storage.cassandra.session import ALL_CENTRES, CassandraSession, Rows
from queuey.storage.contract.common import QueueLog, done, draft
from queuey.storage.contract.lease_receiver import settle_of
from tests.support.lease_servers import LeaseServer, LeaseServers, leave_a_parcel, refuses, rows_of
from tests.support.servers import eventually


@pytest.fixture
def no_entries(session: CassandraSession) -> None:
    """No group of an earlier test is looked at."""
    session.driver.execute(f"delete from {session.options.keyspace}.lease_appenders where shard = 0")  # noqa: S608


def _look_for_what_is_left(server: LeaseServer) -> None:
    done(start(server.leases.left.look()))


def _entries(session: CassandraSession, log: QueueLog) -> int:
    """How often the groups of a queue are listed as groups whose steps append."""
    text = f"select queue from {session.options.keyspace}.lease_appenders where shard = 0"  # noqa: S608
    return sum(queue == log.queue.uuid for (queue,) in session.driver.execute(text))


@pytest.mark.usefixtures("no_entries")
@pytest.mark.parametrize("exact", [True, False])
def test_what_a_dead_server_left_behind_is_appended_though_nobody_uses_the_group(
    lease_servers: LeaseServers, session: CassandraSession, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    dies, other = lease_servers.another(), lease_servers.another()
    results = QueueLog(other.stores.messages, dies.clock)
    leave_a_parcel(dies, results, monkeypatch, draft(b"result", ttl_seconds=100_000), exact=exact)
    _look_for_what_is_left(other)
    assert results.bodies() == [], "its server may append it still"
    dies.clock.advance(60)
    _look_for_what_is_left(other)
    assert results.bodies() == [b"result"]
    assert rows_of(session, dies.log, "and kind = 2") == 0
    assert _entries(session, dies.log) == 1
    dies.clock.advance(3 * lease_parcels.LISTED_SECONDS)
    _look_for_what_is_left(other)
    assert results.bodies() == [b"result"]
    assert _entries(session, dies.log) == 0


@pytest.mark.usefixtures("no_entries")
def test_a_server_looks_by_itself_and_goes_on_after_a_failure(
    lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_left, "_LOOK_SECONDS", 0.01)
    dies, other = lease_servers.another(), lease_servers.another()
    results, left = QueueLog(other.stores.messages, dies.clock), other.leases.left
    leave_a_parcel(dies, results, monkeypatch)
    dies.clock.advance(60)
    look, failures = left.look, [RuntimeError("a fault"), StorageUnavailable()]

    async def look_later() -> None:
        if failures:
            raise failures.pop()
        await look()

    monkeypatch.setattr(left, "look", look_later)
    left.start()
    assert eventually(lambda: results.bodies() == [b"result"])


def test_a_group_is_listed_as_long_as_its_steps_append(first: LeaseServer, session: CassandraSession) -> None:
    jobs, results = first.jobs(), QueueLog(first.stores.messages, first.clock)

    def append() -> None:
        first.log.add(b"0")
        (handed,) = jobs.receive()
        jobs.step({1: [settle_of(handed)]}, appends=[AppendRequest(results.queue, [draft(b"result")])])

    jobs.receive()
    assert _entries(session, first.log) == 0
    append()
    append()
    assert _entries(session, first.log) == 1
    first.clock.advance(lease_parcels.LISTED_SECONDS + 1)
    append()
    assert _entries(session, first.log) == 2


@pytest.mark.usefixtures("no_entries")
def test_a_group_stays_listed_as_long_as_messages_wait(
    lease_servers: LeaseServers, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies, other = lease_servers.another(), lease_servers.another()
    results = QueueLog(other.stores.messages, dies.clock)
    leave_a_parcel(dies, results, monkeypatch, draft(b"result", ttl_seconds=1_000_000))
    dies.clock.advance(10 * lease_parcels.LISTED_SECONDS)
    with monkeypatch.context() as away:
        away.setattr(other.leases._means.carrier, "carry_old", refuses)
        _look_for_what_is_left(other)
    assert _entries(session, dies.log) == 1
    assert results.bodies() == []
    _look_for_what_is_left(other)
    assert results.bodies() == [b"result"]


@pytest.mark.usefixtures("no_entries")
def test_no_look_steps_over_groups_that_were_removed_from_the_list(
    first: LeaseServer, session: CassandraSession
) -> None:
    """A node refuses a read that steps over 100,000 removed rows, and warns from 1,000 on."""
    queue, groups = first.log.queue.uuid, 1200
    for hour in range(3):
        rows = [(lease_parcels.APPENDERS, hour + 1, queue, f"{number}") for number in range(groups)]
        session.tell_together("lease_appender_keep", rows, ALL_CENTRES).wait(60)
        _look_for_what_is_left(first)
    assert _entries(session, first.log) == 0
    asked = f"select hour from {session.options.keyspace}.lease_appenders where shard = 0 limit 1"  # noqa: S608
    answer = session.driver.execute_async(asked)
    answer.result()
    assert not answer.warnings


def test_a_step_whose_group_may_not_be_listed_is_not_stored(
    first: LeaseServer, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.log.add(b"0")
    results = QueueLog(first.stores.messages, first.clock)
    appends = [AppendRequest(results.queue, [draft(b"result")])]
    (handed,) = first.jobs().receive()
    tell = session.tell

    def unsure(name: str, values: Sequence[Any], level: int) -> Future[Rows]:
        return Future.failed(OutcomeUnknown()) if name == "lease_appender_keep" else tell(name, values, level)

    with monkeypatch.context() as away:
        away.setattr(session, "tell", unsure)
        with pytest.raises(StorageUnavailable):
            first.jobs().step({1: [settle_of(handed)]}, appends=appends)
    first.jobs().step({1: [settle_of(handed)]}, appends=appends)
    assert results.bodies() == [b"result"]


@pytest.mark.usefixtures("no_entries")
def test_messages_that_wait_keep_their_idempotency_keys(
    lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies, other = lease_servers.another(), lease_servers.another()
    results = QueueLog(other.stores.messages, dies.clock)
    before, after = [draft(body, idempotency=IdempotencyKey(body.decode(), b"digest")) for body in (b"a", b"b")]
    leave_a_parcel(dies, results, monkeypatch, before, after)
    results.append(before)
    dies.clock.advance(60)
    _look_for_what_is_left(other)
    assert results.append(after).repeated
    assert results.bodies() == [b"a", b"b"]


@pytest.mark.usefixtures("no_entries")
def test_a_key_that_another_message_has_got_meanwhile_keeps_none_back(
    lease_servers: LeaseServers, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies, other = lease_servers.another(), lease_servers.another()
    results = QueueLog(other.stores.messages, dies.clock)
    keyed = [draft(body, idempotency=IdempotencyKey(body.decode(), body)) for body in (b"a", b"b")]
    leave_a_parcel(dies, results, monkeypatch, *keyed)
    results.append(draft(b"another", idempotency=IdempotencyKey("a", b"another")), keyed[1])
    dies.clock.advance(60)
    _look_for_what_is_left(other)
    assert sorted(results.bodies()) == [b"a", b"another", b"b"]
    assert rows_of(session, dies.log, "and kind = 2") == 0


def test_all_that_waits_is_found_and_appended_some_at_a_time(
    lease_servers: LeaseServers, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_rows, "_PARCELS", 2)
    monkeypatch.setattr(lease_carrying, "MOST_LEFT", 2)
    dies, other = lease_servers.another(), lease_servers.another()
    results = QueueLog(other.stores.messages, dies.clock)
    for number in range(5):
        leave_a_parcel(dies, results, monkeypatch, draft(b"%d" % number))
    dies.clock.advance(60)
    there = other.jobs(dies)

    def all_are_carried() -> bool:
        there.count()
        return rows_of(session, dies.log, "and kind = 2") == 0

    assert eventually(all_are_carried)
    assert sorted(results.bodies()) == [b"%d" % number for number in range(5)]


def test_a_store_that_closes_forgets_no_call_that_a_weak_group_is_storing(
    first: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.log.add(b"0")
    jobs = first.jobs(exact=False)
    jobs.receive()
    group = GroupStep(jobs.queue, jobs.name, jobs.new, receive_from=jobs.numbers)
    call = GroupCall(lambda *_: None, LeaseStep([group], receive=ReceiveRequest()))
    line = first.leases._line(first.log.queue.uuid, jobs.name)
    line._storing = cast(Any, SimpleNamespace(calls=[call]))

    def has_ended() -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(line._task, "begin", has_ended)
    line._begin()
    with pytest.raises(OutcomeUnknown):
        call.future.wait(1)
    assert line._storing is None


@pytest.mark.usefixtures("no_entries")
@pytest.mark.parametrize("ends", ["forgotten", "reset", "dropped"])
def test_what_is_damaged_keeps_no_group_from_ending_and_nothing_else_back(
    lease_servers: LeaseServers,
    session: CassandraSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ends: str,
) -> None:
    dies, other = lease_servers.another(), lease_servers.another()
    results = QueueLog(other.stores.messages, dies.clock)
    queue = dies.log.queue.uuid
    leave_a_parcel(dies, results, monkeypatch, draft(b"damaged"))
    _damage_parcels(session, queue)
    dies.log.add(b"1")
    (handed,) = dies.jobs().receive()
    with pytest.raises(OutcomeUnknown):
        dies.jobs().step({1: [settle_of(handed)]}, appends=[AppendRequest(results.queue, [draft(b"whole")])])
    dies.clock.advance(60)
    _look_for_what_is_left(other)
    assert results.bodies() == [b"whole"]
    assert rows_of(session, dies.log, "and kind = 2") == 1

    if ends == "forgotten":
        done(other.leases.forget_group(queue, "workers"))
    elif ends == "reset":
        before = done(other.leases.find_group(queue, "workers"))
        assert before is not None
        assert done(other.leases.keep_group(queue, "workers", before._replace(token=before.token + 1), before))
    else:
        done(other.stores.messages.drop(queue))
    assert "are damaged, in part" in caplog.text
    caplog.clear()
    _look_for_what_is_left(other)
    assert caplog.text == ""
    assert results.bodies() == [b"whole"]


def _damage_parcels(session: CassandraSession, queue: UUID) -> None:
    table = f"{session.options.keyspace}.lease_states"
    found = session.driver.execute(
        f"select part, number, label from {table} where queue = %s and name = 'workers' and kind = 2",  # noqa: S608
        (queue,),
    )
    for row in [*found]:
        where = "queue = %s and name = 'workers' and kind = 2 and part = %s and number = %s and label = %s"
        session.driver.execute(f"update {table} set data = %s where {where}", (b"\x00", queue, *row))  # noqa: S608
