"""Lease groups in Cassandra: the suite, several servers, answers that get lost, and what a dead server leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.errors import ClockUnsafe, InvalidReceipt, MessageTooLarge, OutcomeUnknown, StaleReceipt, StorageUnavailable
from queuey.future import Future, start
from queuey.ids import ZERO_ID, IdGenerator
from queuey.model import AppendRequest, IdempotencyKey, Location, Overwrite
from queuey.model.headers import encode_headers
from queuey.model.lease_groups import ORDER_BY_KEY, GroupSettings, LeaseGroup
from queuey.model.lease_requests import Action, ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseStep, RenewAll
from queuey.storage.cassandra import Timing, lease_lines, lease_parcels
from queuey.storage.cassandra.clock import ClockGuard
from queuey.storage.cassandra.lease_lines import LeaseLine
from queuey.storage.cassandra.session import CassandraSession, Change, Rows
from queuey.storage.contract import LeaseHistory, LeaseStoreContract
from queuey.storage.contract.common import SECOND, QueueLog, done, draft, drive_histories
from queuey.storage.contract.leases import TOKEN, Receiver, bodies, settle_of
from tests.support.cassandra_stores import CassandraStores
from tests.support.servers import eventually
from tests.support.services.proxy import Proxy, Way

HEADERS = encode_headers({"trace": b"t"})
AT_ONCE = Timing(read_delay_seconds=0.0)
"""For tests that append through one server: nobody else's messages arrive late."""


class TestCassandraLeases(LeaseStoreContract):
    @pytest.fixture
    def stores(self, session: CassandraSession, clock: ManualClock, ids: IdGenerator) -> Iterator[CassandraStores]:
        stores = CassandraStores(session, clock, ids, AT_ONCE)
        yield stores
        close(stores)

    def test_a_stepped_clock_makes_no_lease_shorter_or_longer(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        """On Cassandra a server whose clock was stepped refuses; see below."""


def close(stores: CassandraStores) -> None:
    stores.close()
    stores.leases.close()


class Server:
    """One server of several, with one clock for all."""

    def __init__(self, session: CassandraSession, clock: ManualClock, ids: IdGenerator, **how: Any) -> None:
        self.clock = clock
        self.stores = CassandraStores(session, clock, ids, **{"timing": AT_ONCE} | how)
        self.leases = self.stores.leases
        self.log = QueueLog(self.stores.messages, clock)

    def jobs(self, other: Server | None = None, **settings: Any) -> Receiver:
        """A group, or the group of another server."""
        if other is not None:
            self.log.queue = other.log.queue
        return Receiver(self.leases, self.log, **settings)


@dataclass
class Servers:
    """They are made as they are asked for, and closed in the end."""

    session: CassandraSession
    clock: ManualClock
    ids: IdGenerator

    def __post_init__(self) -> None:
        self.made: list[Server] = []

    def another(self, **how: Any) -> Server:
        given: dict[str, Any] = {"session": self.session, "clock": self.clock, "ids": self.ids} | how
        self.made.append(Server(**given))
        return self.made[-1]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def servers(session: CassandraSession, clock: ManualClock) -> Iterator[Servers]:
    servers = Servers(session, clock, IdGenerator(clock))
    yield servers
    for server in servers.made:
        close(server.stores)


@pytest.fixture
def first(servers: Servers) -> Server:
    return servers.another()


@pytest.fixture
def second(servers: Servers) -> Server:
    return servers.another()


def rows(session: CassandraSession, log: QueueLog, where: str = "") -> int:
    """Rows of the states of a queue's group."""
    text = f"select kind from {session.options.keyspace}.lease_states where queue = %s and name = 'workers' {where}"  # noqa: S608
    return sum(kind is not None for (kind,) in session.driver.execute(text, (log.queue.uuid,)))


# Histories


class _History(LeaseHistory):
    """A server whose clock is stepped refuses, so no clock is; a restart goes on at another server."""

    def step_clock(self, seconds: int = 0) -> None:
        """No rule here."""


def test_any_history_of_leases_is_as_the_model_says(first: Server, second: Server) -> None:
    used = [first, second]
    drive_histories(lambda: _History(lambda: used[0].stores, first.clock, used.reverse), 8)


# Several servers


def test_nobody_is_handed_what_another_has(servers: Servers) -> None:
    several = [servers.another() for _ in range(3)]
    several[0].log.append(*[draft(b"%d" % number) for number in range(120)])
    receivers = [server.jobs(several[0]) for server in several]

    def work(jobs: Receiver) -> list[bytes]:
        found: list[bytes] = []
        while handed := jobs.receive(3):
            found += bodies(handed)
            assert not jobs.step({1: [settle_of(one) for one in handed]}).stale
        return found

    with ThreadPoolExecutor() as threads:
        found = [body for each in threads.map(work, receivers) for body in each]

    assert sorted(map(int, found)) == list(range(120))
    assert receivers[1].count()[2:] == (0, 0, 0, 0)


def test_calls_at_one_server_are_one_transaction(first: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    first.log.append(*[draft(b"%d" % number) for number in range(200)])
    jobs = first.jobs()
    jobs.receive()
    told: list[int] = []
    commit = LeaseLine._commit

    def counted(line: LeaseLine, calls: Any, access: Any) -> bool:
        told.append(len(calls))
        return commit(line, calls, access)

    monkeypatch.setattr(LeaseLine, "_commit", counted)
    group = GroupStep(first.log.queue, jobs.name, jobs.new, receive_from=[1])
    begun = [first.leases.step(LeaseStep([group], receive=ReceiveRequest())) for _ in range(100)]
    found = [body for one in begun for body in bodies(done(one).handed)]

    assert sorted(map(int, found)) == list(range(1, 101))
    assert sum(told) == 100
    assert len(told) < 20


def test_what_one_server_settles_the_other_sees_at_once(first: Server, second: Server, clock: ManualClock) -> None:
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
    clock.advance(100)
    here.step(renewals=[RenewAll("", 50.0)])
    assert not there.receive(9)


def test_nothing_is_answered_by_what_another_server_has_changed(
    first: Server, second: Server, clock: ManualClock
) -> None:
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


def test_settings_and_ends_of_groups_are_seen_at_once(first: Server, second: Server) -> None:
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


def test_a_group_that_two_servers_make_at_once_is_one(servers: Servers) -> None:
    several = [servers.another() for _ in range(4)]
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


def test_an_attempt_is_answered_by_another_server(first: Server, second: Server) -> None:
    first.log.add(b"0", b"1", b"2")
    results = QueueLog(first.stores.messages, first.clock)
    wanted: dict[str, Any] = {
        "attempt": IdempotencyKey("a", b"digest"),
        "receive": ReceiveRequest(2),
        "appends": [AppendRequest(results.queue, [draft(b"result", headers=HEADERS, key="k")])],
    }
    here = first.jobs().step(**wanted)
    there = second.jobs(first).step(**wanted)
    assert there.repeated
    assert list(there.handed) == list(here.handed)
    assert [list(one.placed) for one in there.appended] == [list(one.placed) for one in here.appended]
    assert results.bodies() == [b"result"]
    assert there[:3] == here[:3]


def test_an_attempt_at_two_servers_at_once_is_done_once(first: Server, second: Server) -> None:
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


def test_several_groups_are_repeated_through_another_server(first: Server, second: Server) -> None:
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


def test_what_this_server_changes_is_never_handed_out_as_it_was(first: Server, second: Server) -> None:
    ids = first.log.add(*[b"%d" % number for number in range(6)])
    here = first.jobs()
    assert bodies(here.receive()) == [b"0"]
    queue = first.log.queue
    done(first.stores.messages.delete(queue, [Location(1, ids[1])]))
    done(first.stores.messages.put(queue, [Location(1, ids[2])], Overwrite(b"new", 3600)))
    assert bodies(here.receive()) == [b"new"]
    done(second.stores.messages.delete(queue, [Location(1, ids[3])]))
    assert eventually(lambda: bodies(here.receive(1, visibility_seconds=0.0)) != [b"3"], seconds=10)


# Time


def test_a_server_whose_clock_was_stepped_refuses_and_no_lease_changes(
    servers: Servers, session: CassandraSession
) -> None:
    clock = ManualClock()
    guard = ClockGuard(clock, AT_ONCE.clock_error_seconds)
    guard.learn("node", clock.now_ticks(), clock.elapsed(), clock.elapsed())
    server = servers.another(clock=clock, ids=IdGenerator(clock), guard=guard)
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


def test_a_lease_never_runs_while_another_server_hands_its_message_out(servers: Servers) -> None:
    """Servers' clocks are off by as much as they may."""
    true = ManualClock()
    error = AT_ONCE.clock_error_seconds
    clocks = [ManualClock(true.now_ticks() + round(sign * error * SECOND)) for sign in (-1, 1)]
    behind, ahead = [servers.another(clock=clock, ids=IdGenerator(clock)) for clock in clocks]
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


def test_a_renewal_by_a_server_that_is_behind_extends_what_one_that_is_ahead_gave(servers: Servers) -> None:
    clocks = [ManualClock(), ManualClock()]
    clocks[0].advance(0.4)
    ahead, behind = [servers.another(clock=clock, ids=IdGenerator(clock)) for clock in clocks]
    ahead.log.add(b"0")
    here, there = ahead.jobs(), behind.jobs(ahead)
    assert here.receive(visibility_seconds=5.0, receiver="r")
    there.step(renewals=[RenewAll("r", 60.0)])
    for clock in clocks:
        clock.advance(30)
    assert not here.receive()


# Answers that get lost


class Unsure(CassandraSession):
    """Transactions of steps whose answers are lost: ``follows`` happens before anybody looks."""

    follows: Callable[[], object] | None = None
    carries_out = True

    def compare_and_set_together(self, changes: Sequence[Change]) -> Future[Rows]:
        if self.follows is None or not changes[-1][0].startswith("leases_"):
            return super().compare_and_set_together(changes)
        follows, self.follows = self.follows, None
        return start(self._lose(changes, follows))

    async def _lose(self, changes: Sequence[Change], follows: Callable[[], object]) -> Rows:
        if self.carries_out:
            await super().compare_and_set_together(changes)
        followed = Future[None]()

        def follow() -> None:
            try:
                follows()
            finally:
                followed.set_result(None)

        threading.Thread(target=follow).start()  # the driver's own thread must not wait for itself
        await followed
        raise OutcomeUnknown


@pytest.fixture
def unsure(session: CassandraSession) -> Iterator[Unsure]:
    unsure = Unsure(session.options)
    yield unsure
    unsure.close()


@pytest.mark.parametrize("carries_out", [True, False])
@pytest.mark.parametrize("others", [0, 5])
def test_a_step_whose_answer_is_lost_finds_out_what_became_of_it(
    servers: Servers, unsure: Unsure, carries_out: bool, others: int
) -> None:
    lossy, other = servers.another(session=unsure), servers.another()
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
    servers: Servers, unsure: Unsure, monkeypatch: pytest.MonkeyPatch
) -> None:
    lossy, other = servers.another(session=unsure), servers.another()
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


def test_a_group_is_made_once_when_the_answer_is_lost(servers: Servers, unsure: Unsure) -> None:
    lossy, other = servers.another(session=unsure), servers.another()
    lossy.log.add(b"0", b"1")
    there = other.jobs(lossy)
    unsure.follows = there.receive
    assert bodies(lossy.jobs().receive()) == [b"0"]
    assert bodies([*there.outcome.handed]) == [b"1"]


def test_a_network_that_brings_no_answers_leaves_no_step_in_doubt(session: CassandraSession, servers: Servers) -> None:
    with Proxy(lambda: (session.options.hosts[0], session.options.port)) as proxy:
        host, port = proxy.address
        own = CassandraSession(replace(session.options, hosts=[host], port=port, timeout_seconds=1.0))
        server, other = servers.another(session=own), servers.another()
        server.log.append(*[draft(b"%d" % number) for number in range(20)])
        here, there = server.jobs(), other.jobs(server)
        assert bodies(here.receive()) == [b"0"]
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
        servers.made.remove(server)
        own.close()


# What a dead server leaves


def refuses(*_: object) -> Any:
    raise StorageUnavailable


def test_messages_of_a_step_whose_server_died_are_appended_by_another(
    servers: Servers, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies, other = servers.another(), servers.another()
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
    assert rows(session, dies.log, "and kind = 2") == 1
    dies.clock.advance(60)
    assert bodies(there.receive()) == [b"1"]
    assert eventually(lambda: rows(session, dies.log, "and kind = 2") == 0, seconds=20)
    (result,) = results.read().messages
    assert (result.body, result.headers, result.key, result.content_type) == (b"result", HEADERS, "k", "t")
    assert (results.bodies(2), results.bodies(3)) == ([b"more"], [b"third"])
    dies.clock.advance(60)
    servers.another().jobs(dies).receive()
    assert results.bodies() == [b"result"]


def test_messages_that_could_not_be_appended_are_appended_soon(
    first: Server, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.log.add(b"0")
    results = QueueLog(first.stores.messages, first.clock)
    (handed,) = first.jobs().receive()
    monkeypatch.setattr(first.leases._means.carrier, "append", refuses)
    with pytest.raises(OutcomeUnknown):
        first.jobs().step({1: [settle_of(handed)]}, appends=[AppendRequest(results.queue, [draft(b"result")])])
    assert eventually(lambda: results.bodies() == [b"result"], seconds=20)
    assert eventually(lambda: rows(session, first.log, "and kind = 2") == 0, seconds=20)


def test_a_repeat_appends_what_the_first_try_could_not(
    first: Server, second: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.log.add(b"0")
    results = QueueLog(first.stores.messages, first.clock)
    (handed,) = first.jobs().receive()
    monkeypatch.setattr(lease_lines, "_CARRIED_AGAIN_SECONDS", ())
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


def test_no_more_is_appended_than_a_transaction_may_hold(first: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    first.log.add(b"0")
    (handed,) = first.jobs().receive()
    large = [AppendRequest(first.log.queue, [draft(b"x" * (1 << 20))] * number) for number in (4, 5)]
    with pytest.raises(MessageTooLarge):
        first.jobs().step({1: [settle_of(handed)]}, appends=[large[1]])
    assert len(first.jobs().step({1: [settle_of(handed)]}, appends=[large[0]]).appended[0].placed) == 4
    assert lease_parcels.MOST_BYTES == 4 << 20


# What is stored


def test_a_server_that_knows_nothing_goes_on_where_others_were(
    servers: Servers, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through folds, and with keys."""
    monkeypatch.setattr(lease_lines, "FOLD_BYTES", 2000)
    log = servers.another().log
    log.append(*[draft(b"%d" % at, key=f"{at % 7}") for at in range(150)])
    kept, found = [], []
    while True:
        server = servers.another()
        server.log.queue = log.queue
        jobs = server.jobs(order=ORDER_BY_KEY)
        for _ in range(6):
            handed = jobs.receive(4, visibility_seconds=99999.0)
            found += bodies(handed)
            settled = [one for one in handed if one.message.key != "3"]
            kept += [one for one in handed if one.message.key == "3"]
            jobs.step({1: [settle_of(one) for one in settled]})
        if not handed:
            break
    assert sorted(map(int, found)) == [at for at in range(150) if at % 7 != 3 or at == 3]
    assert [key for key in {int(body) % 7: None for body in found} if key != 3]
    assert 1 <= rows(session, log, "and kind = 0") < 60
    assert servers.another().jobs(server).count()[2:] == (1, 1, 0, 1)
    assert servers.another().jobs(server).settle(kept[0])


def test_a_group_that_ends_and_a_dropped_queue_leave_nothing(
    session: CassandraSession, first: Server, second: Server
) -> None:
    first.log.add(b"0", b"1")
    here, there = first.jobs(), second.jobs(first)
    here.step(receive=ReceiveRequest(), attempt=IdempotencyKey("a", b""))
    assert rows(session, first.log) == 2
    done(second.leases.forget_group(first.log.queue.uuid, "workers"))
    assert rows(session, first.log) == 0
    here.new = LeaseGroup(TOKEN + 1)
    assert bodies(here.receive()) == [b"0"]
    done(first.stores.messages.drop(first.log.queue.uuid))
    assert rows(session, first.log) == 0
    assert done(second.leases.list_groups(first.log.queue.uuid)) == []
    assert there.new is not None


def test_a_damaged_change_is_refused_and_not_believed(session: CassandraSession, first: Server, second: Server) -> None:
    first.log.add(b"0", b"1")
    first.jobs().receive()
    text = f"update {session.options.keyspace}.lease_states set data = %s where queue = %s and name = 'workers' and kind = 0 and part = 1 and number = 0 and label = ''"  # noqa: S608
    session.driver.execute(text, (b"\x00", first.log.queue.uuid))
    with pytest.raises(StorageUnavailable, match="checksum"):
        second.jobs(first).receive()


def test_rows_that_come_back_from_a_former_life_or_from_before_a_fold_count_no_more(
    session: CassandraSession, first: Server, second: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was away may bring them back, since their deletions are forgotten soon."""
    monkeypatch.setattr(lease_lines, "FOLD_BYTES", 800)
    table = f"{session.options.keyspace}.lease_states"
    first.log.append(*[draft(b"%d" % number) for number in range(60)])
    queue, seen = first.log.queue.uuid, {}
    columns = "queue, name, kind, part, number, label, life, base, checksum, data"

    def note() -> None:
        text = f"select {columns} from {table} where queue = %s and name = 'workers' and kind = 0"  # noqa: S608
        seen.update({tuple(row[:7]): row for row in session.driver.execute(text, (queue,))})

    jobs = first.jobs()
    for life in (TOKEN, TOKEN + 1):
        jobs.new = LeaseGroup(life)
        for _ in range(20):
            (handed,) = jobs.receive()
            note()
            jobs.step({1: [settle_of(handed)]}, token=life)
            note()
        before = (jobs.count(), done(first.leases.holes(queue, "workers", 1, after=ZERO_ID, limit=99))[1])
        if life == TOKEN:
            done(first.leases.forget_group(queue, "workers"))
    assert len(seen) > 40
    places = ", ".join(["%s"] * 10)
    text = f"select {columns} from {table} where queue = %s and name = 'workers' and kind = 0"  # noqa: S608
    now = {tuple(row[:5]) for row in session.driver.execute(text, (queue,))}
    for row in seen.values():
        if tuple(row[:5]) not in now:
            session.driver.execute(f"insert into {table} ({columns}) values ({places})", tuple(row))  # noqa: S608
    there = second.jobs(first)
    assert (there.count(), done(second.leases.holes(queue, "workers", 1, after=ZERO_ID, limit=99))[1]) == before
    assert bodies(there.receive()) == [b"20"]


# These tests find faults


PLANTED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[..., None]]] = {
    "answers are not checked": (
        lambda patch: patch.setattr(LeaseLine, "_is_current", lambda self: True),
        test_nothing_is_answered_by_what_another_server_has_changed,
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_these_tests_find(
    fault: str, first: Server, second: Server, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, test = PLANTED[fault]
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        test(first, second, clock)
