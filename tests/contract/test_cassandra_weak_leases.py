"""Weak lease groups in Cassandra: servers that do not agree hand messages out twice, and lose none."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from queuey.clock import ManualClock
from queuey.errors import OutcomeUnknown, QueueyError, StorageUnavailable
from queuey.future import Future, run, start
from queuey.ids import IdGenerator
from queuey.model import AppendRequest, Consistency, IdempotencyKey
from queuey.model.lease_groups import AUTO, NO_ORDER, LeaseGroup
from queuey.model.lease_requests import Action, ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.settings import load_settings
from queuey.storage.cassandra import CassandraLeases, lease_memory, lease_weak
from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.session import ALL_CENTRES, CassandraSession, Change, Rows
from queuey.storage.contract.common import QueueLog, done, draft, drive_histories
from queuey.storage.contract.lease_attempts import Attempts
from queuey.storage.contract.lease_passing import PassingOver
from queuey.storage.contract.lease_receiver import TOKEN, Receiver, bodies, settle_of
from queuey.storage.contract.leases import Fair, HandingOut, Settling, Together
from queuey.storage.leasing import changes as leasing_changes
from queuey.storage.observing import Unobserved, UnobservedLeases
from tests.support.cassandra_stores import CassandraStores
from tests.support.lease_servers import AT_ONCE, LeaseServer, LeaseServers, SharedHistory, close, rows_of


def _weak(group: LeaseGroup) -> LeaseGroup:
    by_key = group.settings.order != NO_ORDER
    return group._replace(settings=group.settings._replace(exact=by_key))


class _WeakLeases(CassandraLeases):
    """Makes each group weak that may be."""

    def step(self, step: LeaseStep) -> Future[LeaseOutcome]:
        groups = [one._replace(new=None if one.new is None else _weak(one.new)) for one in step.groups]
        return super().step(step._replace(groups=groups))

    def keep_group(self, queue: UUID, name: str, group: LeaseGroup, before: LeaseGroup | None) -> Future[bool]:
        return super().keep_group(queue, name, _weak(group), None if before is None else _weak(before))


class TestWeakLeasesOfOneServer(HandingOut, Settling, Together, Attempts, Fair, PassingOver):
    """They are as those of exact groups."""

    @pytest.fixture
    def stores(self, session: CassandraSession, clock: ManualClock, ids: IdGenerator) -> Iterator[CassandraStores]:
        stores = CassandraStores(session, clock, ids, AT_ONCE, leases=_WeakLeases)
        yield stores
        close(stores)

    def test_a_stepped_clock_makes_no_lease_shorter_or_longer(
        self, jobs: Receiver, log: QueueLog, clock: ManualClock
    ) -> None:
        """On Cassandra a server whose clock was stepped refuses."""


class _Counted(Unobserved, UnobservedLeases):
    """Counts what servers hand out twice."""

    def __init__(self) -> None:
        self.leases = self
        self.twice = 0
        self.ks: set[int] = set()

    def handed_twice(self, messages: int) -> None:
        self.twice += messages

    def picked_among(self, k: int) -> None:
        self.ks.add(k)


@pytest.fixture
def observer() -> _Counted:
    return _Counted()


@pytest.fixture
def several(lease_servers: LeaseServers, observer: _Counted) -> list[LeaseServer]:
    return [lease_servers.another(leases=_WeakLeases, observer=observer) for _ in range(3)]


def test_servers_that_take_turns_know_all_of_each_other(several: list[LeaseServer]) -> None:
    used = several[:2]
    drive_histories(lambda: SharedHistory(used, used.reverse), 10)


def test_messages_are_handed_out_twice_and_none_is_lost(several: list[LeaseServer], observer: _Counted) -> None:
    several[0].log.append(*[draft(b"%d" % number) for number in range(240)])
    several[0].clock.advance(10)
    receivers = [server.jobs(several[0], k=AUTO) for server in several]

    def work(jobs: Receiver) -> list[bytes]:
        found: list[bytes] = []
        while (handed := jobs.receive(3)) or jobs.outcome.more:
            found += bodies(handed)
            jobs.step({1: [settle_of(one) for one in handed]})
        return found

    with ThreadPoolExecutor() as threads:
        found = [body for each in threads.map(work, receivers) for body in each]

    for jobs in receivers:
        assert not jobs.receive(100)
    assert {*found} == {b"%d" % number for number in range(240)}
    assert observer.twice == len(found) - 240
    assert max(observer.ks) > 1
    assert [jobs.count()[2:4] for jobs in receivers] == [(0, 0)] * 3


def test_servers_share_the_messages_and_take_what_is_left(several: list[LeaseServer]) -> None:
    here, there = several[:2]
    here.log.append(*[draft(b"%d" % number) for number in range(60)])
    here.clock.advance(10)
    jobs, others = here.jobs(k=AUTO), there.jobs(here, k=AUTO)
    first = jobs.receive(1)
    assert bodies(first) == [b"0"]
    assert bodies(others.receive(1)) != [b"0"]
    found = [jobs.receive(100)]
    assert 0 < len(found[0]) < 58
    while found[-1] or jobs.outcome.more:
        found.append(jobs.receive(100))
    assert not found[1]
    assert sum(map(len, found)) == 58
    assert not others.receive(1)
    assert not others.outcome.more


def test_rows_are_folded_and_another_server_reads_the_base(
    several: list[LeaseServer], session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_memory, "FOLD_BYTES", 200)
    monkeypatch.setattr(leasing_changes, "_FOLD_AT", 2)
    here, there = several[0], several[1]
    here.log.append(*[draft(b"%d" % number) for number in range(100)])
    jobs, others = here.jobs(), there.jobs(here)
    found: list[bytes] = []
    for _ in range(12):
        for one in (jobs, others):
            handed = one.receive(4, visibility_seconds=1000.0)
            found += bodies(handed)
            one.step({1: [settle_of(each) for each in handed[:3]]})
            here.clock.advance(1)
    assert sorted(map(int, found)) == list(range(96))
    assert 0 < rows_of(session, here.log, "and kind = 3") < 40
    assert rows_of(session, here.log, "and kind = 0") > 0
    late = several[2].jobs(here)
    assert late.count()[2:4] == jobs.count()[2:4] == (24, 24)
    assert bodies(late.receive(9)) == [b"96", b"97", b"98", b"99"]


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_was_settled_in_another_life_of_the_group_is_handed_out_again(
    several: list[LeaseServer], is_forgotten: bool
) -> None:
    """Also by a server that has settled it, and learns that another one's receiver has had it in this life."""
    here, there = several[:2]
    here.log.append(draft(b"0"), draft(b"1"))
    jobs, others = here.jobs(exact=False, k=1), there.jobs(here, exact=False, k=1)
    jobs.step({1: [settle_of(one) for one in jobs.receive(2)]})
    assert not others.receive(2)

    queue = here.log.queue.uuid
    before = done(there.leases.find_group(queue, jobs.name))
    assert before is not None
    again = before._replace(token=TOKEN + 1)
    if is_forgotten:
        done(there.leases.forget_group(queue, jobs.name))
    assert done(there.leases.keep_group(queue, jobs.name, again, None if is_forgotten else before))
    assert bodies(others.receive(2, visibility_seconds=5)) == [b"0", b"1"]
    assert not jobs.receive(2)
    here.clock.advance(60)
    assert [*bodies(jobs.receive()), *bodies(jobs.receive())] == [b"0", b"1"]


def test_rows_of_servers_that_come_and_go_are_folded(
    lease_servers: LeaseServers, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_weak, "_MOST_LEFT", 5)
    first = lease_servers.another()
    for number in range(20):
        first.log.append(draft(b"%d" % number))
        server = first if number == 0 else lease_servers.another()
        jobs = server.jobs(first, exact=False, k=1)
        (handed,) = jobs.receive()
        assert bodies([handed]) == [b"%d" % number]
        jobs.settle(handed)
        first.clock.advance(600)

    assert rows_of(session, first.log, "and kind = 3") < 10
    assert rows_of(session, first.log, "and kind = 4") < 12
    assert lease_servers.another().jobs(first, exact=False).count()[2:4] == (0, 0)


def test_an_attempt_and_what_it_appends_are_found_by_another_server(several: list[LeaseServer]) -> None:
    here, there = several[:2]
    here.log.add(b"0", b"1", b"2")
    results = QueueLog(here.stores.messages, here.clock)
    jobs = here.jobs()
    handed = jobs.receive(1)
    wanted: dict[str, Any] = {
        "attempt": IdempotencyKey("a", b"digest"),
        "receive": ReceiveRequest(2),
        "appends": [AppendRequest(results.queue, [draft(b"result")])],
    }
    first = jobs.step({1: [settle_of(one) for one in handed]}, **wanted)
    again = there.jobs(here).step({1: [settle_of(one) for one in handed]}, **wanted)
    assert again.repeated
    assert list(again.handed) == list(first.handed)
    assert results.bodies() == [b"result"]


def test_a_repeat_of_what_appends_does_not_depend_on_one_replica(
    several: list[LeaseServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, levels, ask = several[0], set[int](), CassandraSession.ask

    def note(session: CassandraSession, name: str, values: Sequence[Any], level: int, **how: Any) -> Future[Rows]:
        if name == "lease_attempt":
            levels.add(level)
        return ask(session, name, values, level, **how)

    monkeypatch.setattr(CassandraSession, "ask", note)
    here.log.add(b"0")
    results = QueueLog(here.stores.messages, here.clock)
    jobs = here.jobs()
    assert jobs.receive()
    appends = [AppendRequest(results.queue, [draft(b"result")])]
    jobs.step(attempt=IdempotencyKey("a", b"digest"), appends=appends)
    assert levels == {ALL_CENTRES}


@pytest.mark.parametrize("exact", [True, False])
def test_no_single_replica_of_a_weak_queue_says_that_a_message_is_gone(
    lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    here, levels, ask = lease_servers.another(), set[int](), CassandraSession.ask

    def note(session: CassandraSession, name: str, values: Sequence[Any], level: int, **how: Any) -> Future[Rows]:
        if name == "message_find":
            levels.add(level)
        return ask(session, name, values, level, **how)

    here.log.queue = here.log.queue._replace(consistency=Consistency.WEAK)
    here.log.add(b"0")
    jobs = here.jobs(exact=exact)
    (handed,) = jobs.receive()
    jobs.settle(handed, Action.RELEASE, seconds=0.0)
    monkeypatch.setattr(CassandraSession, "ask", note)
    assert bodies(jobs.receive()) == [b"0"]
    assert levels == {here.stores.messages._session.to_read(Consistency.STRONG)}


def test_servers_prefer_partitions_of_their_own_and_take_any_when_those_are_empty(
    several: list[LeaseServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = iter((1, 2))
    monkeypatch.setattr(secrets, "randbits", lambda bits: next(lanes) if bits == 31 else 0)
    here, there = several[:2]
    here.log = QueueLog(here.stores.messages, here.clock, partitions=8)
    here.log.append(*[draft(b"", partition=number) for number in range(1, 9) for _ in range(3)])
    here.clock.advance(10)
    jobs, others = here.jobs(), there.jobs(here)
    jobs.receive(1)
    others.receive(1)
    found = [{one.partition for _ in range(5) for one in each.receive(1)} for each in (jobs, others)]
    assert not found[0] & found[1]
    assert len([*others.receive(100)]) > 6
    assert not jobs.receive(1)


def test_a_change_of_settings_is_seen(several: list[LeaseServer]) -> None:
    here, there = several[:2]
    here.log.add(b"0", b"1", b"2")
    jobs, others = here.jobs(), there.jobs(here)
    assert jobs.receive()
    assert others.receive()
    queue, group = here.log.queue.uuid, LeaseGroup(TOKEN)
    paused = group._replace(settings=group.settings._replace(paused_until=4e9))
    assert done(there.leases.keep_group(queue, "workers", paused, group))
    assert not jobs.receive()
    done(here.leases.forget_group(queue, "workers"))
    others.new = jobs.new = LeaseGroup(TOKEN + 1)
    assert bodies(others.receive()) == [b"0"]
    assert bodies(jobs.receive()) == [b"1"]


class _Held(CassandraSession):
    """Stores the next change of a weak group only when it may."""

    holds, is_lost = False, False
    error: QueueyError | None = None
    """The answer to that change, and whether it is lost itself."""

    def tell_several(self, changes: Sequence[Change], level: int) -> Future[Rows]:
        if not self.holds:
            return super().tell_several(changes, level)
        self.holds = False
        held = start(self._held(changes, level))
        self.has_begun.set()
        return held

    async def _held(self, changes: Sequence[Change], level: int) -> Rows:
        await self.may
        if not self.is_lost:
            await super().tell_several(changes, level)
        if self.error is not None:
            raise self.error
        return ()

    def hold(self) -> None:
        self.holds, self.has_begun, self.may = True, threading.Event(), Future[None]()


@pytest.fixture
def held(session: CassandraSession) -> Iterator[_Held]:
    held = _Held(session.options)
    yield held
    held.close()


@pytest.mark.parametrize(
    ("error", "is_lost", "second"),
    [
        (None, False, b"2"),
        (OutcomeUnknown(), False, b"2"),
        (OutcomeUnknown(), True, b"1"),
        (StorageUnavailable(), True, b"1"),
    ],
)
def test_calls_that_come_while_others_are_stored_do_not_share_their_fate(
    lease_servers: LeaseServers, held: _Held, error: QueueyError | None, is_lost: bool, second: bytes
) -> None:
    here = lease_servers.another(session=held, leases=_WeakLeases)
    here.log.append(*[draft(b"%d" % number) for number in range(10)])
    jobs = here.jobs()
    assert bodies(jobs.receive()) == [b"0"]
    held.error, held.is_lost = error, is_lost
    receive = LeaseStep(
        [GroupStep(here.log.queue, jobs.name, jobs.new, receive_from=[1])],
        receive=ReceiveRequest(visibility_seconds=60.0),
    )

    held.hold()
    earlier = here.leases.step(receive)
    assert held.has_begun.wait(60)
    later = here.leases.step(receive)
    assert not earlier.done
    held.may.set_result(None)

    assert bodies(done(later).handed) == [second]
    if error is None:
        assert bodies(done(earlier).handed) == [b"1"]
    else:
        with pytest.raises(type(error)):
            done(earlier)
    assert jobs.count().leased == int(second) + 1


class _Busy(CassandraSession):
    """More calls come while those before are stored."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.coming: list[Callable[[], object]] = []
        self.asked = Counter[str]()

    def ask(self, name: str, values: Sequence[Any], level: int, **how: Any) -> Future[Rows]:
        self.asked[name] += 1
        return super().ask(name, values, level, **how)

    def tell_several(self, changes: Sequence[Change], level: int) -> Future[Rows]:
        if self.coming:
            self.coming.pop(0)()
        return super().tell_several(changes, level)


@pytest.fixture
def busy(session: CassandraSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Busy]:
    monkeypatch.setattr(lease_weak, "_ALONE_SECONDS", 1000.0)
    monkeypatch.setattr(lease_weak, "ACTIVE_SECONDS", 100.0)
    busy = _Busy(session.options)
    yield busy
    busy.close()


@pytest.mark.parametrize(("others", "doubts", "looks"), [(False, False, 1), (False, True, 6), (True, False, 6)])
def test_a_server_that_is_alone_looks_once_for_calls_that_follow_upon_each_other(
    lease_servers: LeaseServers, several: list[LeaseServer], busy: _Busy, others: bool, doubts: bool, looks: int
) -> None:
    here = lease_servers.another(session=busy, leases=_WeakLeases)
    here.log.append(*[draft(b"%d" % number) for number in range(100)])
    jobs = here.jobs()
    jobs.receive()
    if others:
        several[0].jobs(here).receive()
        jobs.receive()
    receive = LeaseStep([GroupStep(here.log.queue, jobs.name, jobs.new, receive_from=[1])], receive=ReceiveRequest())
    steps: list[Future[LeaseOutcome]] = []

    def come() -> None:
        if doubts:
            here.leases._line(here.log.queue.uuid, jobs.name).doubt()
        steps.append(here.leases.step(receive))

    busy.coming = [come] * 5
    busy.asked.clear()
    jobs.receive()
    while len(steps) < 5:
        done(steps[-1])
    found = [bodies(done(step).handed) for step in steps]

    assert len({body for each in found for body in each}) == 5
    assert busy.asked["lease_lanes"] == looks


def test_a_server_that_was_away_reads_a_group_anew_only_if_rows_were_folded(
    lease_servers: LeaseServers, several: list[LeaseServer], busy: _Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_weak, "_KNOWN_SECONDS", -1.0)
    monkeypatch.setattr(leasing_changes, "_FOLD_AT", 2)
    here, there = lease_servers.another(session=busy, leases=_WeakLeases), several[0]
    here.log.append(*[draft(b"%d" % number) for number in range(100)])
    jobs, others = here.jobs(), there.jobs(here)
    jobs.receive()
    busy.asked.clear()
    found = [*others.receive(5), *jobs.receive(5)]
    assert not busy.asked["lease_changes"]

    monkeypatch.setattr(lease_memory, "FOLD_BYTES", 200)
    there.leases._line(here.log.queue.uuid, jobs.name).memory.forget()
    for _ in range(12):
        found += others.receive(4)
        here.clock.advance(1)
    assert rows_of(busy, here.log, "and kind = 0"), "they are folded"
    assert len({body for one in (*found, *jobs.receive(9)) for body in bodies([one])}) == 67
    assert busy.asked["lease_changes"]


def test_two_servers_that_give_a_message_up_at_once_store_one_dead_letter(
    lease_servers: LeaseServers, held: _Held
) -> None:
    servers = [lease_servers.another(session=session) for session in (held, lease_servers.session)]
    here, there = servers
    services = [
        Service(load_settings(None, {}, {}), server.stores, clock=here.clock, waiters_by_hand=True)
        for server in servers
    ]
    queue, dead = [run(services[0].queues.create("demo", uuid4().hex, QueueSettings())) for _ in range(2)]
    here.log.queue = queue
    here.log.add(b"0")
    receivers = [server.jobs(here, exact=False, max_failures=1, dead_letter_queue=dead.name) for server in servers]
    assert receivers[0].receive(visibility_seconds=1.0)
    moves = []
    for service, jobs in zip(services, receivers, strict=True):
        here.clock.advance(30)  # what is not moved is reported again
        assert not jobs.receive()
        (given_up,) = jobs.outcome.given_up
        step = GroupStep(queue, jobs.name, None)
        moves.append(partial(service.leases._dead_letters.bury, step, given_up))

    held.hold()
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(lambda: run(moves[0]()))
        assert held.has_begun.wait(60)
        run(moves[1]())
        held.may.set_result(None)
        first.result(60)

    letters = QueueLog(there.stores.messages, there.clock)
    letters.queue = dead
    assert letters.bodies() == [b"0"]
