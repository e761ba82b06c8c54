"""Lease groups in Cassandra: answers that get lost, and what a dead server leaves."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from queuey.clock import ManualClock, SystemClock
from queuey.errors import ClockUnsafe, MessageTooLarge, OutcomeUnknown, StorageUnavailable
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND, IdGenerator
from queuey.model import AppendRequest, IdempotencyKey, Queue, ReadRequest, Span
from queuey.model.headers import encode_headers
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import Action, ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.storage.cassandra import lease_carrying, lease_heads, lease_parcels, lease_rows
from queuey.storage.cassandra.clock import ClockGuard
from queuey.storage.cassandra.lease_lines import LeaseLine
from queuey.storage.cassandra.lease_memory import GroupMemory
from queuey.storage.cassandra.server import Timing
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import QueueLog, done, draft
from queuey.storage.contract.lease_receiver import TOKEN, bodies, settle_of
from tests.support.lease_servers import AT_ONCE, LeaseServer, LeaseServers, close, leave_a_parcel, refuses, rows_of
from tests.support.servers import eventually
from tests.support.services.proxy import Proxy, Way
from tests.support.unsure_sessions import Unsure

HEADERS = encode_headers({"trace": b"t"})


# Answers that get lost


@pytest.mark.parametrize("where", ["measure", "look"])
def test_a_mistake_in_the_memory_of_a_group_costs_the_calls_of_a_transaction_and_no_more(
    lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Where it was raised outside of the transaction, nobody served the group's calls any more."""
    server = lease_servers.another()
    server.log.append(*[draft(b"%d" % number) for number in range(4)])
    jobs = server.jobs()
    first = jobs.receive(1)
    works = getattr(GroupMemory, where)

    def breaks(memory: GroupMemory, *values: Any, **how: Any) -> Any:
        monkeypatch.setattr(GroupMemory, where, works)
        raise ReferenceError("weakly-referenced object no longer exists")

    monkeypatch.setattr(GroupMemory, where, breaks)
    with contextlib.suppress(ReferenceError):
        jobs.receive(1)

    assert len(first) == 1
    assert len(jobs.receive(4)) >= 2


def test_a_mistake_in_the_answer_to_stored_calls_is_told_to_them_where_others_wait(
    lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were forgotten when they were stored, and so their receivers waited for ever."""
    server = lease_servers.another()
    server.log.append(*[draft(b"%d" % number) for number in range(4)])
    jobs, following = server.jobs(exact=False), list[Future[LeaseOutcome]]()
    jobs.receive()
    stores_weakly, works = LeaseLine._store_weakly, lease_carrying.Carrying.carry_left
    group = GroupStep(jobs.queue, jobs.name, jobs.new, receive_from=jobs.numbers)

    def follow(line: LeaseLine, *values: Any) -> None:
        monkeypatch.setattr(LeaseLine, "_store_weakly", stores_weakly)
        stores_weakly(line, *values)
        following.append(server.leases.step(LeaseStep([group], receive=ReceiveRequest(1))))

    def breaks(*_: object) -> None:
        monkeypatch.setattr(lease_carrying.Carrying, "carry_left", works)
        raise ReferenceError("weakly-referenced object no longer exists")

    monkeypatch.setattr(LeaseLine, "_store_weakly", follow)
    monkeypatch.setattr(lease_carrying.Carrying, "carry_left", breaks)
    with pytest.raises(ReferenceError):
        jobs.receive()
    with contextlib.suppress(ReferenceError):
        done(following[0])
    assert jobs.receive(4)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_that_is_stepped_while_a_call_is_carried_out_ends_no_lease(
    lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch, exact: bool, seconds: float
) -> None:
    """The clock was looked at when the call began. Stepped ahead after that, it ended the leases of all servers."""
    clock = lease_servers.clock
    guard = ClockGuard(clock, Timing().clock_error_seconds)
    guard.learn("node", clock.now_ticks(), clock.elapsed(), clock.elapsed())
    server = lease_servers.another(guard=guard)
    server.log.append(*[draft(b"%d" % number) for number in range(3)])
    jobs = server.jobs(exact=exact)
    first = jobs.receive(visibility_seconds=30)
    looks = server.leases._server.watermark

    def steps() -> int:
        watermark = looks()
        clock.step(seconds)
        return watermark

    monkeypatch.setattr(server.leases._server, "watermark", steps)
    with pytest.raises(ClockUnsafe):
        jobs.step(receive=ReceiveRequest(1, visibility_seconds=30))
    monkeypatch.undo()
    clock.step(-seconds)
    second = jobs.receive(3, visibility_seconds=30)

    assert len(first) == 1
    assert sorted(bodies([*first, *second])) == [b"0", b"1", b"2"]
    assert all(one.hole.visible_at <= clock.now_ticks() + 31 * TICKS_PER_SECOND for one in second)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("gives", [-0.25, 0.0, 0.25])
@pytest.mark.parametrize("takes", [-0.25, 0.0, 0.25])
def test_a_lease_and_a_delay_are_shorter_by_twice_the_clocks_error_at_most(
    lease_servers: LeaseServers, exact: bool, gives: float, takes: float
) -> None:
    clocks = [ManualClock(), ManualClock()]
    for clock, off in zip(clocks, (gives, takes), strict=True):
        clock.step(off)
    here, there = (lease_servers.another(clock=clock, ids=IdGenerator(clock)) for clock in clocks)
    here.log.append(draft(b"leased"), draft(b"released"))
    one, other = here.jobs(exact=exact), there.jobs(here, exact=exact)

    def pass_(seconds: float) -> list[bytes]:
        for clock in clocks:
            clock.advance(seconds)
        return bodies(list(other.step(receive=ReceiveRequest(5, visibility_seconds=60)).handed))

    for clock in clocks:
        clock.advance(1)
    leased, released = one.receive(2, visibility_seconds=10)
    one.settle(released, Action.RELEASE, seconds=10, counts=False)

    assert leased.message.body == b"leased"
    assert pass_(10 - 2 * 0.25 - 0.1) == []
    found = [*pass_(4 * 0.25 + 0.2), *pass_(0.0)]  # one whose lease ran out is handed out alone
    assert sorted(found) == [b"leased", b"released"]


@pytest.mark.parametrize("carries_out", [True, False])
@pytest.mark.parametrize("others", [0, 5])
def test_a_step_whose_answer_is_lost_finds_out_what_became_of_it(
    lease_servers: LeaseServers, unsure: Unsure, carries_out: bool, others: int
) -> None:
    lossy, other = lease_servers.another(session=unsure), lease_servers.another()
    lossy.log.append(*[draft(b"%d" % number) for number in range(20)])
    here, there = lossy.jobs(), other.jobs(lossy)
    assert bodies(here.receive()) == [b"0"]
    taken: list[bytes] = []
    unsure.carries_out = carries_out
    unsure.follows = lambda: taken.extend(bodies([there.receive()[0] for _ in range(others)]))

    taken += bodies(here.receive())

    assert sorted(map(int, taken)) == list(range(1, others + 2))
    assert here.count().leased == others + 2


def test_a_step_that_nobody_knows_of_any_more_is_found_by_its_attempt(
    lease_servers: LeaseServers, unsure: Unsure, monkeypatch: pytest.MonkeyPatch
) -> None:
    lossy, other = lease_servers.another(session=unsure), lease_servers.another()
    lossy.log.append(*[draft(b"%d" % number) for number in range(60)])
    results = QueueLog(lossy.stores.messages, lossy.clock)
    here, there = lossy.jobs(), other.jobs(lossy)
    here.receive()
    unsure.follows = lambda: [there.receive() for _ in range(40)]
    wanted: dict[str, Any] = {
        "attempt": IdempotencyKey("a", b""),
        "receive": ReceiveRequest(),
        "appends": [AppendRequest(results.queue, [draft(b"result")])],
    }

    with pytest.raises(OutcomeUnknown):
        here.step(**wanted)

    again = here.step(**wanted)
    assert again.repeated
    assert bodies(again.handed) == [b"1"]
    assert results.bodies() == [b"result"]


def test_a_group_is_made_once_when_the_answer_is_lost(lease_servers: LeaseServers, unsure: Unsure) -> None:
    lossy, other = lease_servers.another(session=unsure), lease_servers.another()
    lossy.log.add(b"0", b"1")
    there = other.jobs(lossy)
    unsure.follows = there.receive
    assert bodies(lossy.jobs().receive()) == [b"0"]
    assert bodies([*there.outcome.handed]) == [b"1"]


def test_a_network_that_brings_no_answers_leaves_no_step_in_doubt(
    session: CassandraSession, lease_servers: LeaseServers
) -> None:
    with Proxy(lambda: (session.options.hosts[0], session.options.port)) as proxy:
        host, port = proxy.address
        own = CassandraSession(replace(session.options, hosts=[host], port=port))
        server, other = lease_servers.another(session=own), lease_servers.another()
        server.log.append(*[draft(b"%d" % number) for number in range(20)])
        here, there = server.jobs(), other.jobs(server)
        assert bodies(here.receive()) == [b"0"]
        own.options = replace(own.options, timeout_seconds=1.0)
        proxy.drop([Way.BACK])
        wanted: dict[str, Any] = {"attempt": IdempotencyKey("a", b""), "receive": ReceiveRequest()}
        with pytest.raises((OutcomeUnknown, StorageUnavailable)):
            here.step(**wanted)
        found = there.receive()
        proxy.heal()
        again = there.step(**wanted)
        assert sorted(bodies([*found, *again.handed])) == [b"1", b"2"]
        assert there.count().leased == 3
        close(server.stores)
        lease_servers.made.remove(server)
        own.close()


@pytest.mark.drawn
def test_a_network_that_loses_pieces_loses_no_message_and_doubles_none(
    session: CassandraSession, lease_servers: LeaseServers
) -> None:
    """Each message is worked on once: its result is there once, though many requests are repeated."""
    clock, number = SystemClock(), 100
    ids, timing = IdGenerator(clock), replace(AT_ONCE, request_seconds=1.0)
    with Proxy(lambda: (session.options.hosts[0], session.options.port)) as proxy:
        host, port = proxy.address
        own = CassandraSession(replace(session.options, hosts=[host], port=port, timeout_seconds=0.7))
        several = [
            lease_servers.another(session=each, clock=clock, ids=ids, timing=timing) for each in (own, own, session)
        ]
        first = several[0]
        first.log.append(*[draft(b"%d" % at) for at in range(number)])
        results = QueueLog(several[2].stores.messages, several[2].clock)
        group = GroupStep(first.log.queue, "workers", LeaseGroup(TOKEN), receive_from=[1])
        repeated: list[object] = []

        def insist(server: LeaseServer, step: LeaseStep) -> LeaseOutcome:
            step = step._replace(attempt=IdempotencyKey(uuid4().hex, b""))
            while True:
                try:
                    return done(server.leases.step(step))
                except (OutcomeUnknown, StorageUnavailable) as error:
                    repeated.append(error)
                    server = random.choice(several)

        def work(server: LeaseServer) -> None:
            receive = LeaseStep([group], receive=ReceiveRequest(1, 9999.0))
            while handed := insist(server, receive).handed:
                settled = group._replace(token=TOKEN, settles={1: [settle_of(handed[0])]}, receive_from=())
                insist(server, LeaseStep([settled], [AppendRequest(results.queue, [draft(handed[0].message.body)])]))

        proxy.lose(0.06, [Way.THERE, Way.BACK])
        with ThreadPoolExecutor() as threads:
            for _ in threads.map(work, several):
                pass
        proxy.heal()
        request = ReadRequest(results.queue.partition(1), Span(), 1000)
        page = done(several[2].stores.messages.read(request, now_ticks=clock.now_ticks()))
        assert sorted(int(message.body) for message in page.messages) == [*range(number)]
        assert repeated, "nothing was lost"
        lease_servers.close()
        lease_servers.made.clear()
        own.close()


# What a dead server leaves


def test_messages_of_a_step_whose_server_died_are_appended_by_another(
    lease_servers: LeaseServers, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies, other = lease_servers.another(), lease_servers.another()
    dies.log.add(b"0", b"1")
    results = QueueLog(other.stores.messages, dies.clock)
    here, there = dies.jobs(), other.jobs(dies)
    (handed,) = here.receive()
    monkeypatch.setattr(dies.leases._means.carrier, "append", refuses)
    monkeypatch.setattr(dies.leases._means.carrier, "carry", refuses)
    drafts = [draft(b"result", headers=HEADERS, key="k", content_type="t"), draft(b"more", 2)]
    appends = [AppendRequest(results.queue, drafts), AppendRequest(results.queue, [draft(b"third", 3)])]

    with pytest.raises(OutcomeUnknown):
        here.step({1: [settle_of(handed)]}, appends=appends)

    assert not there.settle(handed), "it is settled"
    assert results.bodies() == []
    assert rows_of(session, dies.log, "and kind = 2") == 1
    dies.clock.advance(60)
    assert bodies(there.receive()) == [b"1"]
    assert eventually(lambda: rows_of(session, dies.log, "and kind = 2") == 0)
    (result,) = results.read().messages
    assert (result.body, result.headers, result.key, result.content_type) == (b"result", HEADERS, "k", "t")
    assert (results.bodies(2), results.bodies(3)) == ([b"more"], [b"third"])
    dies.clock.advance(60)
    lease_servers.another().jobs(dies).receive()
    assert results.bodies() == [b"result"]


def _forget(server: LeaseServer, queue: Queue) -> None:
    done(server.leases.forget_group(queue.uuid, "workers"))


def _reset(server: LeaseServer, queue: Queue) -> None:
    before = done(server.leases.find_group(queue.uuid, "workers"))
    assert before is not None
    assert done(server.leases.keep_group(queue.uuid, "workers", before._replace(token=before.token + 1), before))


def _drop(server: LeaseServer, queue: Queue) -> None:
    done(server.stores.messages.drop(queue.uuid))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("end", [_forget, _reset, _drop])
def test_a_group_does_not_end_before_the_messages_of_its_steps_are_appended(
    lease_servers: LeaseServers,
    session: CassandraSession,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[LeaseServer, Queue], None],
    exact: bool,
) -> None:
    dies, other = lease_servers.another(), lease_servers.another()
    results = QueueLog(other.stores.messages, dies.clock)
    leave_a_parcel(dies, results, monkeypatch, exact=exact)
    with pytest.raises(StorageUnavailable, match="still appends messages"):
        end(other, dies.log.queue)
    assert rows_of(session, dies.log, "and kind = 2") == 1
    dies.clock.advance(60)
    end(other, dies.log.queue)
    assert results.bodies() == [b"result"]
    assert rows_of(session, dies.log, "and kind = 2") == 0


def test_a_group_that_was_reset_leaves_nothing_when_it_ends(first: LeaseServer, session: CassandraSession) -> None:
    text = f"select tag from {session.options.keyspace}.lease_groups where queue = %s"  # noqa: S608
    for end in (_forget, _drop):
        first.log.add(b"0")
        assert first.jobs().receive()
        _reset(first, first.log.queue)
        assert [*session.driver.execute(text, (first.log.queue.uuid,))] == [(TOKEN + 1,)]
        end(first, first.log.queue)
        assert rows_of(session, first.log) == 0
        assert not [*session.driver.execute(text, (first.log.queue.uuid,))]


def test_servers_that_learn_of_each_other_forget_no_message_that_is_to_be_appended(
    lease_servers: LeaseServers, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies, other, third = [lease_servers.another() for _ in range(3)]
    dies.log.append(*[draft(b"%d" % number) for number in range(20)])
    results = QueueLog(other.stores.messages, dies.clock)
    receivers = [other.jobs(dies), third.jobs(dies)]
    here = dies.jobs()
    for jobs in receivers:
        jobs.receive()
    (handed,) = here.receive()
    monkeypatch.setattr(dies.leases._means.carrier, "append", refuses)
    monkeypatch.setattr(dies.leases._means.carrier, "carry", refuses)
    with pytest.raises(OutcomeUnknown):
        here.step({1: [settle_of(handed)]}, appends=[AppendRequest(results.queue, [draft(b"result")])])
    for _ in range(3):
        for jobs in receivers:
            (one,) = jobs.receive()
            jobs.step({1: [settle_of(one)]}, appends=[AppendRequest(results.queue, [draft(one.message.body)])])
    dies.clock.advance(60)
    for jobs in receivers:
        jobs.receive()
    assert eventually(lambda: rows_of(session, dies.log, "and kind = 2") == 0)
    assert b"result" in results.bodies()
    assert len(results.bodies()) == 7


def test_messages_that_could_not_be_appended_are_appended_soon(
    first: LeaseServer, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.log.add(b"0")
    results = QueueLog(first.stores.messages, first.clock)
    (handed,) = first.jobs().receive()
    monkeypatch.setattr(first.leases._means.carrier, "append", refuses)
    with pytest.raises(OutcomeUnknown):
        first.jobs().step({1: [settle_of(handed)]}, appends=[AppendRequest(results.queue, [draft(b"result")])])
    assert eventually(lambda: results.bodies() == [b"result"])
    assert eventually(lambda: rows_of(session, first.log, "and kind = 2") == 0)


def test_a_repeat_appends_what_the_first_try_could_not(
    first: LeaseServer, second: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.log.add(b"0")
    results = QueueLog(first.stores.messages, first.clock)
    (handed,) = first.jobs().receive()
    monkeypatch.setattr(lease_carrying, "CARRIED_AGAIN_SECONDS", ())
    monkeypatch.setattr(first.leases._means.carrier, "append", refuses)
    wanted: dict[str, Any] = {
        "settles": {1: [settle_of(handed)]},
        "appends": [AppendRequest(results.queue, [draft(b"result")])],
        "attempt": IdempotencyKey("a", b""),
    }
    with pytest.raises(OutcomeUnknown):
        first.jobs().step(**wanted)
    for jobs in (second.jobs(first), second.jobs(first)):
        again = jobs.step(**wanted)
        assert (again.repeated, len(again.appended[0].placed)) == (True, 1)
    assert results.bodies() == [b"result"]


def test_no_more_is_appended_than_a_transaction_may_hold(first: LeaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    first.log.add(b"0")
    (handed,) = first.jobs().receive()
    large = [AppendRequest(first.log.queue, [draft(b"x" * (1 << 20))] * number) for number in (4, 5)]
    with pytest.raises(MessageTooLarge):
        first.jobs().step({1: [settle_of(handed)]}, appends=[large[1]])
    assert len(first.jobs().step({1: [settle_of(handed)]}, appends=[large[0]]).appended[0].placed) == 4
    assert lease_parcels.MOST_BYTES == 4 << 20


# These tests find faults


PLANTED: dict[str, tuple[object, str, object]] = {
    "a step whose answer is lost counts as not done": (lease_rows, "_is_in", lambda rows, head: False),
    "a step whose answer is lost counts as done": (lease_rows, "_is_in", lambda rows, head: True),
    "the versions of others hide a step": (lease_heads, "_STEPS", 1),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_these_tests_find(
    fault: str, lease_servers: LeaseServers, unsure: Unsure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*PLANTED[fault])
    carries_out = "as done" not in fault
    with pytest.raises((AssertionError, OutcomeUnknown)):
        test_a_step_whose_answer_is_lost_finds_out_what_became_of_it(lease_servers, unsure, carries_out, 5)
