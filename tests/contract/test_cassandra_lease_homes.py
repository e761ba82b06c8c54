"""Lease groups that are at home on one of several servers: it carries out the steps of all (G21)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from time import sleep
from typing import Any
from uuid import UUID, uuid4

import pytest

from queuey._version import __version__
from queuey.clock import ManualClock, SystemClock
from queuey.errors import OutcomeUnknown, StaleReceipt, StorageUnavailable
from queuey.future import Future
from queuey.ids import IdGenerator
from queuey.model import AppendRequest, IdempotencyKey
from queuey.model.lease_requests import ReceiveRequest, Settle
from queuey.storage import ServerBeat
from queuey.storage.cassandra.lease_homes import ALONE_SECONDS, AWAY_SECONDS, LISTED_SECONDS, AtHomeElsewhere
from queuey.storage.cassandra.lease_wire import Meeting, encode_meeting
from queuey.storage.cassandra.links import Links, NotTaken
from queuey.storage.cassandra.peers import CassandraPeers
from queuey.storage.cassandra.session import CassandraSession, Rows
from queuey.storage.contract import LeaseStoreContract
from queuey.storage.contract.common import draft
from queuey.storage.contract.lease_receiver import Receiver, bodies, settle_of
from queuey.storage.leasing import ATTEMPT_SECONDS
from queuey.storage.observing import Unobserved, UnobservedLeases
from tests.support.cassandra_stores import CassandraStores
from tests.support.lease_servers import LeaseServers, close


class Counted(Unobserved, UnobservedLeases):
    """What a server hands over, and its own transactions."""

    def __init__(self) -> None:
        self.leases = self
        self.handed: Counter[str] = Counter()
        self.transactions = 0

    def handed_over(self, result: str) -> None:
        self.handed[result] += 1

    def compared_and_set(self, *, is_lost: bool) -> None:
        self.transactions += 1


class Linked:
    """A server that others reach."""

    def __init__(self, servers: LeaseServers, version: str = __version__, **how: Any) -> None:
        self.links, self.counted = Links("127.0.0.1"), Counted()
        self.server = servers.another(links=self.links, observer=self.counted, **how)
        self.homes = self.server.leases.homes
        peers = CassandraPeers(servers.session, self.server.clock, 0.25, self.links.contact)
        peers.beat(ServerBeat("server", version, 0.0, 0.0)).wait()
        self.homes.start()

    def sends_to(self, other: Linked) -> None:
        """Let each group be at home there."""
        self.homes.home = lambda place: other.links.contact  # type: ignore[method-assign]
        for one in (self, other):  # neither chooses another home, nor tells the other one of its choice
            one.homes.meet = lambda place, names: None  # type: ignore[method-assign]


class TestLeasesAtHomeElsewhere(LeaseStoreContract):
    """Each step goes to another server, and comes back."""

    @pytest.fixture
    def stores(
        self, lease_servers: LeaseServers, session: CassandraSession, clock: ManualClock, ids: IdGenerator
    ) -> Iterator[CassandraStores]:
        here, there = (Linked(lease_servers, clock=clock, ids=ids) for _ in range(2))
        here.sends_to(there)
        yield here.server.stores
        assert not here.counted.transactions or here.counted.handed["done"]
        assert set(here.counted.handed) <= {"done"}

    def test_a_stepped_clock_makes_no_lease_shorter_or_longer(self, *_: object) -> None:
        """On Cassandra a server whose clock was stepped refuses."""


def test_servers_that_meet_choose_one_and_nobody_is_handed_what_another_has(lease_servers: LeaseServers) -> None:
    clock = SystemClock()
    lease_servers.session.driver.execute(f"truncate {lease_servers.session.options.keyspace}.servers")
    several = [Linked(lease_servers, clock=clock, ids=IdGenerator(clock)) for _ in range(3)]
    first = several[0].server
    first.log.append(*[draft(b"%d" % number) for number in range(600)])
    receivers = [one.server.jobs(first) for one in several for _ in range(4)]

    def work(jobs: Receiver) -> list[bytes]:
        found: list[bytes] = []
        settles: dict[int, list[Settle]] = {}
        while handed := [*jobs.step(settles, receive=ReceiveRequest(1, 600.0)).handed]:
            assert not jobs.outcome.stale
            found += bodies(handed)
            settles = {1: [settle_of(handed[0])]}
        return found

    with ThreadPoolExecutor(len(receivers)) as threads:
        found = [body for each in threads.map(work, receivers) for body in each]

    assert sorted(map(int, found)) == list(range(600))
    handed = [one.counted.handed for one in several]
    assert sum(bool(one) for one in handed) == 2, handed
    assert sum(one["done"] for one in handed) > 200
    assert {result for one in handed for result in one} == {"done"}


@pytest.fixture
def here(lease_servers: LeaseServers) -> Linked:
    return Linked(lease_servers)


@pytest.fixture
def there(lease_servers: LeaseServers, here: Linked) -> Linked:
    """The home of all groups that are used here."""
    there = Linked(lease_servers)
    here.sends_to(there)
    return there


def test_errors_of_the_home_are_raised_here(here: Linked, there: Linked) -> None:
    here.server.log.add(b"0")
    jobs = here.server.jobs()
    (handed,) = jobs.receive()
    assert jobs.settle(handed)
    with pytest.raises(StaleReceipt):
        jobs.step({1: [settle_of(handed)]}, appends=[AppendRequest(here.server.log.queue, [draft()])])
    assert here.counted.handed == {"done": 3}


def test_a_server_that_closes_takes_no_step_and_its_steps_are_carried_out_here(here: Linked, there: Linked) -> None:
    here.server.log.add(b"0", b"1")
    jobs = here.server.jobs()
    assert bodies(jobs.receive()) == [b"0"]
    close(there.server.stores)
    assert bodies(jobs.receive()) == [b"1"]
    assert here.counted.handed["done"] == 1
    assert here.counted.transactions == 1


def test_a_step_whose_home_died_is_unknown_and_a_repeat_finds_it(here: Linked, there: Linked) -> None:
    """The home has carried it out; its answer is lost."""
    here.server.log.add(b"0", b"1")
    jobs, attempt = here.server.jobs(), IdempotencyKey("attempt", b"digest")
    take = there.links.take

    def dies(server: UUID, payload: bytes) -> Future[bytes]:
        take(server, payload).add_done_callback(lambda _: there.links.stop(0.0))
        return Future()

    there.links.take = dies
    with pytest.raises(OutcomeUnknown):
        jobs.step(receive=ReceiveRequest(), attempt=attempt)
    again = jobs.step(receive=ReceiveRequest(), attempt=attempt)
    assert again.repeated
    assert bodies([*again.handed]) == [b"0"]
    assert bodies(jobs.receive()) == [b"1"]


def test_a_step_that_comes_late_is_left_alone(here: Linked, there: Linked, lease_servers: LeaseServers) -> None:
    """The home stood still. Meanwhile the step was repeated at another server, and its attempt is forgotten by now."""
    here.server.log.add(b"0", b"1")
    asked = dict[str, Any](receive=ReceiveRequest(pop=True), attempt=IdempotencyKey("attempt", b"digest"))
    take, held = there.links.take, list[tuple[UUID, bytes]]()

    def stands_still(server: UUID, payload: bytes) -> Future[bytes]:
        held.append((server, payload))
        there.links.stop(0.0)
        return Future()

    there.links.take = stands_still
    jobs, others = here.server.jobs(), lease_servers.another().jobs(here.server)
    with pytest.raises(OutcomeUnknown):
        jobs.step(**asked)
    assert bodies([*others.step(**asked).handed]) == [b"0"]
    lease_servers.clock.advance(ATTEMPT_SECONDS + 1)

    with pytest.raises(NotTaken):
        take(*held[0]).wait()

    assert bodies(others.receive()) == [b"1"]


@pytest.mark.parametrize("error", [AtHomeElsewhere(), StorageUnavailable()])
def test_a_step_that_is_refused_at_once_is_not_taken(here: Linked, there: Linked, error: Exception) -> None:
    """It ended the link, and all that was under way there was unknown."""
    here.server.log.add(b"0")
    there.homes._carry_out = lambda _: Future.failed(error)
    assert bodies(here.server.jobs().receive()) == [b"0"]
    assert here.counted.handed == {"refused": 1}
    (link,) = here.homes._open.values()
    assert not link.has_ended


def test_a_home_that_loses_all_its_transactions_tells_the_server_that_wins_them(lease_servers: LeaseServers) -> None:
    """The one that won them saw nothing of the other, and went on; the other refused all its calls."""
    lease_servers.session.driver.execute(f"truncate {lease_servers.session.options.keyspace}.servers")
    two = [Linked(lease_servers) for _ in range(2)]
    first = two[0].server
    first.log.append(*[draft(b"%d" % number) for number in range(200)])
    place = (first.log.queue.uuid, "workers")
    two[0].homes.meet(place, ())
    loses, wins = two if two[0].homes.home(place) is None else two[::-1]
    wins.homes._forget(place)
    here, there = loses.server.jobs(first), wins.server.jobs(first)
    there.receive()
    assert wins.counted.handed == {}
    loses.server.leases.use_loop(None)  # it waits for the other one in the middle of a step
    rows, tried = loses.server.leases._means.rows, 0
    advance = rows.advance

    def is_late(*change: Any) -> Any:
        """Let the other server make a step before, until it knows its home: then its step comes here, and waits for this one."""
        nonlocal tried
        tried += 1
        step = threads.submit(there.receive)
        while wins.homes.home(place) is None and not step.done():
            sleep(0.001)
        return advance(*change)

    rows.advance = is_late  # type: ignore[method-assign, assignment]
    with ThreadPoolExecutor(20) as threads:
        assert here.receive()
        assert 2 < tried < 20
    assert {*wins.counted.handed} == {"done"}
    assert loses.counted.handed == {}


def test_a_server_that_is_told_of_a_meeting_waits_for_no_node(
    here: Linked, there: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hears it says that the server is there. When it waited for a node, others gave the server up."""
    held, meeting = Future[Rows](), encode_meeting(Meeting(uuid4(), "workers"))
    monkeypatch.setattr(here.server.stores.messages._server.session, "ask", lambda *_: held)
    with ThreadPoolExecutor(1) as thread:
        hears = thread.submit(here.homes._take, there.links.contact.server, meeting)
        try:
            told = hears.result(10)
        finally:
            held.set_result(())
    assert told.wait(10)


def test_a_weak_group_has_no_home(lease_servers: LeaseServers) -> None:
    """Its servers fold its rows in turns, which looks as if they met."""
    several = [Linked(lease_servers) for _ in range(2)]
    first, place = several[0].server, None
    first.log.add(b"0")
    for number in range(8):
        server = several[number % 2].server
        server.jobs(first, exact=False).receive()
        place = (first.log.queue.uuid, "workers")
        line = server.leases._lines[place]
        assert line.memory.weak is not None
        line._fold(line.memory.weak)
        line.memory.forget()
    assert place is not None
    assert [one.homes.home(place) for one in several] == [None, None]
    assert [one.counted.handed for one in several] == [{}, {}]


def test_servers_that_have_gone_are_forgotten(lease_servers: LeaseServers) -> None:
    here, place = Linked(lease_servers), (uuid4(), "workers")
    for _ in range(5):
        here.homes._note_use(place, uuid4())
        lease_servers.clock.advance(ALONE_SECONDS + 1)
    assert here.homes._note_use(place, uuid4())
    assert len(here.homes._users[place]) == 1


def test_a_server_that_uses_a_group_alone_carries_its_steps_out_again(lease_servers: LeaseServers) -> None:
    here, there = Linked(lease_servers), Linked(lease_servers)
    here.server.log.append(*[draft(b"%d" % number) for number in range(9)])
    jobs, place = here.server.jobs(), (here.server.log.queue.uuid, "workers")
    here.homes._homes[place] = there.links.contact
    jobs.receive()
    assert here.homes.home(place) == there.links.contact, "the home may have used it just now"
    lease_servers.clock.advance(ALONE_SECONDS / 2)
    there.server.jobs(here.server).receive()
    lease_servers.clock.advance(ALONE_SECONDS / 2 + 1)
    jobs.receive()
    assert here.homes.home(place) == there.links.contact
    lease_servers.clock.advance(ALONE_SECONDS)
    jobs.receive()
    assert here.homes.home(place) is None
    assert here.counted.handed == {"done": 3}
    jobs.receive()
    assert here.counted.transactions == 1


def test_all_servers_choose_the_same_home_and_one_that_goes_leaves_the_other_groups(
    lease_servers: LeaseServers,
) -> None:
    lease_servers.session.driver.execute(f"truncate {lease_servers.session.options.keyspace}.servers")
    several = [Linked(lease_servers) for _ in range(3)]
    places = [(uuid4(), "workers") for _ in range(60)]

    def homes(one: Linked) -> list[UUID]:
        for place in places:
            one.homes.meet(place, ())
        return [(one.homes.home(place) or one.links.contact).server for place in places]

    before = homes(several[0])
    assert [homes(one) for one in several] == [before] * 3
    assert {*before} == {one.links.contact.server for one in several}
    gone = several.pop().links.contact
    for one in several:
        one.homes._has_left(gone)
    after = homes(several[0])
    assert homes(several[1]) == after
    assert gone.server not in after
    assert [now for now, then in zip(after, before, strict=True) if then != gone.server] == [
        then for then in before if then != gone.server
    ]
    lease_servers.clock.advance(AWAY_SECONDS + LISTED_SECONDS)
    assert homes(several[0]) == before, "it is asked again"


def test_servers_that_take_each_other_for_away_hand_nothing_out_twice(lease_servers: LeaseServers) -> None:
    """Each one is the home for itself, and the third one asks now this one and now that one."""
    clock = SystemClock()
    lease_servers.session.driver.execute(f"truncate {lease_servers.session.options.keyspace}.servers")
    several = [Linked(lease_servers, clock=clock, ids=IdGenerator(clock)) for _ in range(3)]
    first, place = several[0].server, (several[0].server.log.queue.uuid, "workers")
    first.log.append(*[draft(b"%d" % number) for number in range(200)])
    for one, other in (several[:2], several[1::-1]):
        one.homes._has_left(other.links.contact)
    homes = cycle([one.links.contact for one in several[:2]])
    several[2].homes.home = lambda place: next(homes)  # type: ignore[method-assign]
    receivers = [one.server.jobs(first) for one in several for _ in range(2)]
    asked = receivers[-1].step(receive=ReceiveRequest(1, pop=True)).handed
    assert several[2].counted.handed["done"] == 1

    def work(jobs: Receiver) -> list[bytes]:
        found: list[bytes] = []
        while handed := jobs.step(receive=ReceiveRequest(1, pop=True)).handed:
            found += bodies([*handed])
        return found

    with ThreadPoolExecutor(len(receivers)) as threads:
        found = [body for each in threads.map(work, receivers) for body in each]

    assert sorted(map(int, [*bodies([*asked]), *found])) == list(range(200))
    assert {one.homes.home(place) for one in several[:2]} <= {None, several[2].links.contact}


def test_servers_of_another_version_are_no_homes(lease_servers: LeaseServers) -> None:
    lease_servers.session.driver.execute(f"truncate {lease_servers.session.options.keyspace}.servers")
    here = Linked(lease_servers)
    Linked(lease_servers, version="0.0.older")
    places = [(uuid4(), "workers") for _ in range(20)]
    for place in places:
        here.homes.meet(place, ())
    assert not any(here.homes.home(place) for place in places)
