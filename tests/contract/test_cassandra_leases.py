"""Lease groups in Cassandra: the suite, any history, several servers, and their clocks."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, TypeVar

import pytest

from queuey.clock import ManualClock
from queuey.errors import ClockUnsafe, InvalidReceipt, StaleReceipt, StorageUnavailable
from queuey.ids import IdGenerator
from queuey.model import Appended, AppendRequest, IdempotencyKey, Location, Overwrite
from queuey.model.lease_groups import ORDER_BY_KEY, GroupSettings, LeaseGroup
from queuey.model.lease_requests import Action, ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseStep, RenewAll
from queuey.storage.cassandra import lease_rows, lease_work
from queuey.storage.cassandra.clock import ClockGuard
from queuey.storage.cassandra.lease_access import GroupCall
from queuey.storage.cassandra.lease_ahead import GroupAhead
from queuey.storage.cassandra.lease_heads import GroupHead, GroupPlace, StepName
from queuey.storage.cassandra.lease_lines import LeaseLine
from queuey.storage.cassandra.lease_memory import GroupMemory
from queuey.storage.cassandra.lease_parcels import Carrier
from queuey.storage.cassandra.lease_rows import LeaseRows
from queuey.storage.cassandra.lease_turns import LeaseTurns
from queuey.storage.cassandra.session import CassandraSession, Change
from queuey.storage.contract import LeaseStoreContract
from queuey.storage.contract.common import SECOND, QueueLog, done, draft, drive_histories
from queuey.storage.contract.lease_passing import append_for
from queuey.storage.contract.lease_receiver import TOKEN, Receiver, bodies, settle_of
from queuey.storage.leasing import passing
from tests.support.cassandra_stores import CassandraStores
from tests.support.lease_servers import AT_ONCE, LeaseServer, LeaseServers, SharedHistory, close
from tests.support.servers import eventually
from tests.support.turning_loop import NAME, used_by_a_loop

T = TypeVar("T")


class TestCassandraLeases(LeaseStoreContract):
    @pytest.fixture(params=[used_by_a_loop, nullcontext])
    def stores(
        self,
        request: pytest.FixtureRequest,
        session: CassandraSession,
        clock: ManualClock,
        ids: IdGenerator,
    ) -> Iterator[CassandraStores]:
        """Of a server, and of commands, which have no event loop."""
        stores = CassandraStores(session, clock, ids, AT_ONCE)
        with request.param(stores):
            yield stores
        close(stores)

    def test_a_stepped_clock_makes_no_lease_shorter_or_longer(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        """On Cassandra a server whose clock was stepped refuses; see below."""


# Histories


def test_any_history_of_leases_is_as_the_model_says(first: LeaseServer, second: LeaseServer) -> None:
    used = [first, second]
    drive_histories(lambda: SharedHistory(used, used.reverse), 12)


# Several servers


def test_nobody_is_handed_what_another_has(lease_servers: LeaseServers) -> None:
    several = [lease_servers.another() for _ in range(3)]
    several[0].log.append(*[draft(b"%d" % number) for number in range(120)])
    receivers = [server.jobs(several[0]) for server in several]

    def again(ask: Callable[[], T]) -> T:
        """A server that meets others too often says that nothing was done."""
        while True:
            try:
                return ask()
            except StorageUnavailable:
                continue

    def work(jobs: Receiver) -> list[bytes]:
        found: list[bytes] = []
        while handed := again(lambda: jobs.receive(3)):
            found += bodies(handed)
            settles = [settle_of(one) for one in handed]
            assert not again(lambda settles=settles: jobs.step({1: settles})).stale  # type: ignore[misc]
        return found

    with ThreadPoolExecutor() as threads:
        found = [body for each in threads.map(work, receivers) for body in each]

    assert sorted(map(int, found)) == list(range(120))
    assert receivers[1].count()[2:6] == (0, 0, 0, 0)


def test_calls_at_one_server_are_one_transaction(first: LeaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    first.log.append(*[draft(b"%d" % number) for number in range(200)])
    jobs = first.jobs()
    jobs.receive()
    told: list[int] = []
    commit, all_asked = LeaseLine._commit, threading.Event()

    def counted(line: LeaseLine, calls: Any, access: Any) -> bool:
        assert all_asked.wait(60)
        told.append(len(calls))
        return commit(line, calls, access)

    monkeypatch.setattr(LeaseLine, "_commit", counted)
    group = GroupStep(first.log.queue, jobs.name, jobs.new, receive_from=[1])
    begun = [first.leases.step(LeaseStep([group], receive=ReceiveRequest())) for _ in range(100)]
    all_asked.set()
    found = [body for one in begun for body in bodies(done(one).handed)]

    assert sorted(map(int, found)) == list(range(1, 101))
    assert sum(told) == 100
    assert len(told) <= 3


def test_a_thread_carries_out_some_steps_of_a_group_whose_steps_keep_the_loop_long(
    first: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_work, "_LONG_SECONDS", -1.0)
    monkeypatch.setattr(lease_work, "IN_THREAD", 2)
    places: list[str] = []
    carry_out = LeaseLine._carry_out

    def noted(line: LeaseLine, calls: list[GroupCall]) -> None:
        places.append(threading.current_thread().name.partition("_")[0])
        carry_out(line, calls)

    monkeypatch.setattr(LeaseLine, "_carry_out", noted)
    first.log.append(*[draft(b"%d" % number) for number in range(20)])
    jobs = first.jobs()
    assert [bodies(jobs.receive()) for _ in range(20)] == [[b"%d" % number] for number in range(20)]
    several = [NAME] * 3 + ["leases"] * 2
    assert places == several * 4


def test_what_one_server_settles_the_other_sees_at_once(first: LeaseServer, second: LeaseServer) -> None:
    first.log.add(b"0", b"1", b"2")
    here, there = first.jobs(), second.jobs(first)
    (zero,) = here.receive()
    assert bodies(there.receive()) == [b"1"]
    assert here.settle(zero)
    assert not there.settle(zero)
    (two,) = there.receive()
    assert not here.receive()
    assert here.settle(two, Action.RELEASE, seconds=0.0, counts=False), "its receipt is of the other server"
    with pytest.raises(StaleReceipt):
        there.step({1: [settle_of(two)]}, appends=[AppendRequest(first.log.queue, [draft()])])
    (again,) = there.receive()
    assert (again.message.body, again.hole.deliveries) == (b"2", 2)
    first.clock.advance(100)
    here.step(renewals=[RenewAll("", 50.0)])
    assert not there.receive(9)


def test_nothing_is_answered_by_what_another_server_has_changed(first: LeaseServer, second: LeaseServer) -> None:
    """Also where a step finds nothing to do."""
    first.log.add(b"0", b"1")
    here, there = first.jobs(), second.jobs(first)
    zero, one = there.receive(2)
    assert not here.receive()
    assert there.settle(zero, Action.RELEASE, seconds=0.0)
    assert bodies(here.receive()) == [b"0"]
    assert not here.receive()
    assert there.settle(one)
    assert here.count().holes == 1


def test_what_one_server_passes_over_the_other_does_not_look_at(
    first: LeaseServer, second: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing, "MOST_PASSED_OVER", 100)
    append_for(first.log, "others", 600)
    first.log.add(b"mine")
    both, steps = [first.jobs(), second.jobs(first)], 0
    while not (handed := both[0].receive()):
        assert both[0].outcome.more
        both.reverse()
        steps += 1
    assert bodies(handed) == [b"mine"]
    assert 3 <= steps <= 6


def test_a_row_that_a_read_does_not_show_is_missed(
    first: LeaseServer, second: LeaseServer, session: CassandraSession
) -> None:
    """A quorum may have of the last step what one replica has."""
    first.log.add(b"0", b"1", b"2", b"3")
    here, there = first.jobs(), second.jobs(first)
    for jobs in (here, there, here):
        assert jobs.receive()
    table = f"{session.options.keyspace}.lease_states"
    where = "queue = %s and name = 'workers' and kind = 0 and part = 1"
    rows = session.driver.execute(f"select number from {table} where {where}", (first.log.queue.uuid,))  # noqa: S608
    number = max(number for (number,) in rows)
    text = f"delete from {table} where {where} and number = %s and label = ''"  # noqa: S608
    session.driver.execute(text, (first.log.queue.uuid, number))
    with pytest.raises(StorageUnavailable):
        there.receive()


def test_settings_and_ends_of_groups_are_seen_at_once(first: LeaseServer, second: LeaseServer) -> None:
    first.log.add(b"0", b"1", b"2")
    here, there = first.jobs(), second.jobs(first)
    assert there.receive()
    assert here.receive()
    queue, group = first.log.queue.uuid, LeaseGroup(TOKEN)
    paused = group._replace(settings=GroupSettings(paused_until=4e9))
    assert done(second.leases.keep_group(queue, "workers", paused, group))
    assert not here.receive()
    assert done(first.leases.keep_group(queue, "workers", group, paused))
    (handed,) = there.receive()
    done(first.leases.forget_group(queue, "workers"))
    with pytest.raises(InvalidReceipt):
        there.settle(handed)
    here.new = there.new = LeaseGroup(TOKEN + 1)
    assert bodies(here.receive()) == [b"0"]
    assert bodies(there.receive()) == [b"1"]
    assert done(second.leases.list_groups(queue)) == ["workers"]


def test_a_group_that_two_servers_make_at_once_is_one(lease_servers: LeaseServers) -> None:
    several = [lease_servers.another() for _ in range(4)]
    several[0].log.append(*[draft(b"%d" % number) for number in range(4)])
    receivers = [server.jobs(several[0]) for server in several]
    for number, jobs in enumerate(receivers):
        jobs.new = LeaseGroup(number)
    with ThreadPoolExecutor() as threads:
        found = [body for handed in threads.map(Receiver.receive, receivers) for body in bodies(handed)]
    assert sorted(found) == [b"0", b"1", b"2", b"3"]
    assert len({jobs.outcome.tokens[0] for jobs in receivers}) == 1
    listed = several[0].stores.messages._session.ask("lease_list", (several[0].log.queue.uuid, "", 9), 1)
    assert [token for _, token in done(listed)] == list(receivers[0].outcome.tokens)


def test_an_attempt_is_answered_by_another_server(first: LeaseServer, second: LeaseServer) -> None:
    first.log.add(b"0", b"1", b"2")
    results = QueueLog(first.stores.messages, first.clock)
    wanted: dict[str, Any] = {
        "attempt": IdempotencyKey("a", b"digest"),
        "receive": ReceiveRequest(2),
        "appends": [AppendRequest(results.queue, [draft(b"result", key="k")])],
    }
    here = first.jobs().step(**wanted)
    there = second.jobs(first).step(**wanted)
    assert there.repeated
    assert list(there.handed) == list(here.handed)
    assert [list(one.placed) for one in there.appended] == [list(one.placed) for one in here.appended]
    assert results.bodies() == [b"result"]
    assert there[:3] == here[:3]


def test_several_groups_are_repeated_through_another_server(first: LeaseServer, second: LeaseServer) -> None:
    logs = [QueueLog(first.stores.messages, first.clock) for _ in range(3)]
    for number, log in enumerate(logs):
        log.add(b"%d" % number, b"%d" % (number + 3))
        first.clock.advance(1)
    groups = [GroupStep(log.queue, "g", LeaseGroup(token), receive_from=[1]) for token, log in enumerate(logs)]
    step = LeaseStep(groups, receive=ReceiveRequest(3), attempt=IdempotencyKey("a", b""))
    here, there = done(first.leases.step(step)), done(second.leases.step(step))
    assert [(one.group, one.message.body) for one in here.handed] == [(0, b"0"), (0, b"3"), (1, b"1")]
    assert list(there.handed) == list(here.handed)
    assert there.repeated
    settles = [
        group._replace(
            token=token, settles={1: [settle_of(one) for one in here.handed if one.group == token]}, receive_from=()
        )
        for token, group in enumerate(groups[:2])
    ]
    appends = [AppendRequest(logs[2].queue, [draft(b"result")])]
    assert len(done(second.leases.step(LeaseStep(settles, appends))).appended) == 1
    with pytest.raises(StaleReceipt):
        done(first.leases.step(LeaseStep(settles, appends)))
    with pytest.raises(InvalidReceipt):
        done(first.leases.step(LeaseStep([settles[0], settles[1]._replace(token=77)])))
    assert logs[2].bodies() == [b"2", b"5", b"result"]


def test_what_this_server_changes_is_never_handed_out_as_it_was(first: LeaseServer, second: LeaseServer) -> None:
    ids = first.log.add(*[b"%d" % number for number in range(6)])
    here = first.jobs()
    assert bodies(here.receive()) == [b"0"]
    queue = first.log.queue
    done(first.stores.messages.delete(queue, [Location(1, ids[1])]))
    done(first.stores.messages.put(queue, [Location(1, ids[2])], Overwrite(b"new", 3600)))
    assert bodies(here.receive()) == [b"new"]
    done(second.stores.messages.delete(queue, [Location(1, ids[3])]))
    assert eventually(lambda: bodies(here.receive(1, visibility_seconds=0.0)) != [b"3"], seconds=30)


def test_what_is_overwritten_behind_a_key_is_handed_out_by_another_server(
    first: LeaseServer, second: LeaseServer
) -> None:
    placed = first.log.append(*[draft(b"%d" % at, key="a") for at in range(3)]).placed
    here = first.jobs(order=ORDER_BY_KEY, per_key=9)
    (held,) = here.receive()
    assert not here.receive()
    first.log.put(placed[1], body=b"new")
    there = second.jobs(first)
    assert there.settle(held)
    assert [(one.message.body, one.message.key) for one in there.receive(9)] == [(b"new", "a"), (b"2", "a")]


# Time


def test_a_server_whose_clock_was_stepped_refuses_and_no_lease_changes(
    lease_servers: LeaseServers, session: CassandraSession
) -> None:
    clock = ManualClock()
    guard = ClockGuard(clock, AT_ONCE.clock_error_seconds)
    guard.learn("node", clock.now_ticks(), clock.elapsed(), clock.elapsed())
    server = lease_servers.another(clock=clock, ids=IdGenerator(clock), guard=guard)
    server.log.add(b"0")
    jobs = server.jobs()
    assert jobs.receive(visibility_seconds=20.0)
    for seconds in (500, -1000):
        clock.step(seconds)
        with pytest.raises(ClockUnsafe):
            jobs.step(receive=ReceiveRequest())
        clock.step(-seconds)
    assert not jobs.receive()
    clock.advance(21)
    assert jobs.receive()


def test_a_lease_never_runs_while_another_server_hands_its_message_out(lease_servers: LeaseServers) -> None:
    """LeaseServers' clocks are off by as much as they may."""
    true = ManualClock()
    error = AT_ONCE.clock_error_seconds
    clocks = [ManualClock(true.now_ticks() + round(sign * error * SECOND)) for sign in (-1, 1)]
    behind, ahead = [lease_servers.another(clock=clock, ids=IdGenerator(clock)) for clock in clocks]
    behind.log.add(b"0")
    for here, there in ((behind, ahead), (ahead, behind)):
        queue = behind.log.queue
        here.log.queue = there.log.queue = queue
        for clock in (true, *clocks):
            clock.advance(10)
        (handed,) = here.jobs().receive(visibility_seconds=5.0)
        began = true.elapsed()
        while not there.jobs().receive(visibility_seconds=0.0):
            for clock in (true, *clocks):
                clock.advance(0.1)
        assert true.now_ticks() >= handed.hole.visible_at
        assert 5.0 - 2 * error <= true.elapsed() - began <= 5.1 + 2 * error


def test_a_renewal_by_a_server_that_is_behind_extends_what_one_that_is_ahead_gave(lease_servers: LeaseServers) -> None:
    clocks = [ManualClock(), ManualClock()]
    clocks[0].advance(0.4)
    ahead, behind = [lease_servers.another(clock=clock, ids=IdGenerator(clock)) for clock in clocks]
    ahead.log.add(b"0")
    here, there = ahead.jobs(), behind.jobs(ahead)
    assert here.receive(visibility_seconds=5.0, receiver="r")
    there.step(renewals=[RenewAll("r", 60.0)])
    for clock in clocks:
        clock.advance(30)
    assert not here.receive()


# These tests find faults


def _of_own_clock(line: LeaseLine) -> int:
    """As if no server had done a step before."""
    line._moment = max(line._means.server.clock.now_ticks() - line._error_ticks, line._moment + 1)
    return line._moment


def _of_wall_clock(line: LeaseLine) -> int:
    return line._means.server.clock.now_ticks()


async def _advance_anyhow(rows: LeaseRows, place: GroupPlace, head: GroupHead, changes: Sequence[Change]) -> bool:
    found = await rows.head(place)
    assert found is not None
    values = (*found.next(StepName(1, 1))[1:], *place, head.group.token, found.version)
    await rows.session.compare_and_set_together([*changes, ("leases_advance", values)])
    return True


async def _append_anew(carrier: Carrier, requests: Sequence[AppendRequest]) -> list[Appended]:
    return [Appended(await carrier._appender.store(queue, drafts)) for queue, drafts, _, _ in requests]


PLANTED: dict[str, tuple[type, str, object, Callable[..., None]]] = {
    "answers are not checked": (
        GroupMemory,
        "is_current",
        lambda memory: True,
        test_nothing_is_answered_by_what_another_server_has_changed,
    ),
    "rows are not counted": (
        lease_rows._Changes,
        "are_whole",
        lambda changes, known: True,
        test_a_row_that_a_read_does_not_show_is_missed,
    ),
    "a step requires no version": (
        LeaseRows,
        "advance",
        _advance_anyhow,
        test_what_one_server_settles_the_other_sees_at_once,
    ),
    "leases run by the wall clock alone": (
        LeaseLine,
        "_now",
        _of_wall_clock,
        test_a_lease_never_runs_while_another_server_hands_its_message_out,
    ),
    "time does not rise from server to server": (
        LeaseLine,
        "_now",
        _of_own_clock,
        test_a_renewal_by_a_server_that_is_behind_extends_what_one_that_is_ahead_gave,
    ),
    "what is read ahead is kept": (
        GroupAhead,
        "prepare",
        lambda ahead, *_: None,
        test_what_this_server_changes_is_never_handed_out_as_it_was,
    ),
    "each call of an attempt appends for itself": (
        Carrier,
        "append",
        lambda carrier, step, requests: _append_anew(carrier, requests),
        test_an_attempt_is_answered_by_another_server,
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_these_tests_find(fault: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, planted, test = PLANTED[fault]
    monkeypatch.setattr(where, name, planted)
    # A server that lets others go first looks at the group meanwhile, and may find what it would not find otherwise.
    monkeypatch.setattr(LeaseTurns, "left", lambda turns, now: 0.0)
    given = {name: request.getfixturevalue(name) for name in inspect.signature(test).parameters}
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        test(**given)
