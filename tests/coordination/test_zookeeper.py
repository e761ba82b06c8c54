"""Members that share a ZooKeeper: one server, which takes breaks; and three, which lose their leader."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from qdo.groups.coordination import Claim, CommittedOffset, Coordinator, Plan
from qdo.groups.member import GroupMember
from qdo.groups.zookeeper import ZooKeeperCoordinator
from qdo.groups.zookeeper_tls import security
from queuey.clock import SystemClock
from queuey.errors import ConfigurationError, CoordinatorUnavailable
from tests.support.group_contract import CoordinatorContract
from tests.support.members import SESSION_SECONDS, Member, MemberGroup, end_session, parts, place
from tests.support.servers import eventually
from tests.support.services.fixtures import Reached
from tests.support.services.proxy import Way
from tests.support.services.zookeeper import ZooKeeper

(ONE,) = parts(1)


class Ahead(SystemClock):
    """The system's, and a little more."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def elapsed(self) -> float:
        return super().elapsed() + self.seconds


class ZooKeeperGroup(MemberGroup):
    """Sessions end as ZooKeeper ends them."""

    def __init__(self, hosts: str, **given: Any) -> None:
        super().__init__()
        self.hosts = hosts
        self.clock = Ahead()
        self._given = given

    def make(self) -> ZooKeeperCoordinator:
        return ZooKeeperCoordinator(
            self.hosts, "app", self.name, session_seconds=SESSION_SECONDS, clock=self.clock, **self._given
        )

    def everything(self) -> object:
        client = KazooClient(self.hosts.partition("/")[0])
        client.start(timeout=30)
        try:
            return _tree(client, f"/app/{self.name}")
        finally:
            client.stop()
            client.close()

    def end_session(self, member: Member) -> None:
        """Close it from a connection of its own, as a server does when time is up."""
        coordinator = member.coordinator
        assert isinstance(coordinator, ZooKeeperCoordinator)
        end_session(self.hosts, coordinator)

    def pass_unheard(self, coordinator: Coordinator, seconds: float) -> None:
        """All at once: between two of its questions, of which there are six in a session timeout."""
        self.clock.seconds += seconds

    def until(self, look: Callable[[], object]) -> None:
        eventually(look, seconds=90)


def _tree(client: KazooClient, path: str) -> list[str]:
    if not client.exists(path):
        return []
    return [path, *(node for child in client.get_children(path) for node in _tree(client, f"{path}/{child}"))]


@pytest.fixture
def group(zookeeper: Reached) -> Iterator[ZooKeeperGroup]:
    with ZooKeeperGroup(zookeeper.hosts) as made:
        yield made


@pytest.fixture
def other_group(zookeeper: Reached) -> Iterator[ZooKeeperGroup]:
    with ZooKeeperGroup(zookeeper.hosts) as made:
        yield made


class TestZooKeeper(CoordinatorContract):
    """One server, shared."""

    def test_a_chroot_is_made(self, zookeeper: Reached) -> None:
        with ZooKeeperGroup(f"{zookeeper.hosts}/deep/below") as group:
            name = group.member().name

            assert [member.name for member in group.coordinator().members()] == [name]

    @pytest.mark.parametrize("who", [None, "other:secret", "team:guess"])
    def test_nodes_may_be_closed_to_others(self, zookeeper: Reached, who: str | None) -> None:
        """G14 among strangers: a stranger without the password reads and changes nothing."""
        with ZooKeeperGroup(f"{zookeeper.hosts}/closed", **security("team:secret")) as group:
            member = group.member()
            claim = member.claim_one(ONE)
            assert member.commit(claim, place(1))
            stranger = ZooKeeperCoordinator(zookeeper.hosts, "strangers", group.name, **security(who))
            stranger.join({})
            (believed,) = stranger.claim([ONE])
            root = f"/closed/app/{group.name}"
            tries: list[Callable[[], object]] = [
                stranger.owners,
                stranger.known,
                stranger.offsets,
                lambda: stranger.reset({ONE: place(0)}),
                lambda: stranger.claim([ONE]),
                lambda: stranger.propose(Plan(1, {})),
                lambda: stranger.join({}),
                lambda: stranger._session.client.delete(f"{root}/owners/{ONE}"),
            ]

            stranger._nodes.root = root
            for one in tries:
                with pytest.raises((CoordinatorUnavailable, NoAuthError), match=r"NoAuth|^$"):
                    one()
            with pytest.raises(CoordinatorUnavailable):
                stranger.commit({believed: place(0)})

            assert member.coordinator.offsets() == {ONE: place(1)}
            assert member.commit(claim, place(2))
            stranger._nodes.root = f"/strangers/{group.name}"
            stranger.close()


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", "a b", "x" * 101, "ä"])
def test_a_name_that_cannot_be_in_a_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="group"):
        ZooKeeperCoordinator("127.0.0.1:1", "app", name)
    with pytest.raises(ConfigurationError, match="application"):
        ZooKeeperCoordinator("127.0.0.1:1", name, "g")


def test_a_server_that_is_not_there_is_said_so() -> None:
    with pytest.raises(CoordinatorUnavailable, match=r"127\.0\.0\.1:1 within 0\.5 s"):
        ZooKeeperCoordinator("127.0.0.1:1", "app", "g", connect_seconds=0.5)


@pytest.fixture
def brittle(tmp_path: Path) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        yield zookeeper


def test_a_pause_takes_the_trust_and_maybe_the_session(brittle: ZooKeeper) -> None:
    with ZooKeeperGroup(brittle.hosts) as group:
        member = group.member()
        claim = member.claim_one(ONE)
        (node,) = brittle.nodes

        node.pause()
        eventually(lambda: not member.coordinator.trusted(), seconds=90)
        with pytest.raises(CoordinatorUnavailable):
            member.commit(claim, place(1))
        node.resume()
        brittle.wait_until_up(0)

        eventually(lambda: member.coordinator.trusted() or member.is_lost(), seconds=90)


def test_without_a_server_each_question_has_an_end(brittle: ZooKeeper) -> None:
    """Or a worker could not be told to end before ZooKeeper is back."""
    with ZooKeeperGroup(brittle.hosts) as group:
        member = group.member()
        claim, coordinator = member.claim_one(ONE), member.coordinator
        (node,) = brittle.nodes
        node.kill()
        eventually(lambda: not coordinator.trusted(), seconds=90)
        questions: list[Callable[[], object]] = [
            lambda: coordinator.join({}),
            lambda: coordinator.tell({}),
            coordinator.members,
            coordinator.plan,
            lambda: coordinator.propose(Plan(1, {})),
            lambda: coordinator.claim([ONE]),
            lambda: coordinator.release([claim]),
            lambda: coordinator.commit({claim: place(1)}),
            coordinator.resets,
            coordinator.owners,
            coordinator.offsets,
            coordinator.known,
            lambda: coordinator.reset({ONE: place(1)}),
        ]

        with ThreadPoolExecutor(len(questions)) as threads:
            asked = [threads.submit(question) for question in questions]
            try:
                eventually(lambda: all(one.done() for one in asked), seconds=90)
            finally:
                node.start()
        assert [type(one.exception()) for one in asked] == [CoordinatorUnavailable] * len(asked)


def test_a_member_ends_though_there_is_no_server(brittle: ZooKeeper) -> None:
    with ZooKeeperGroup(brittle.hosts) as group:
        member = group.member()
        brittle.kill()
        eventually(lambda: not member.coordinator.trusted(), seconds=90)

        with ThreadPoolExecutor(1) as threads:
            closing = threads.submit(member.coordinator.close)
            try:
                eventually(closing.done, seconds=90)
            finally:
                brittle.start()


def test_who_joins_again_because_no_answer_came_is_one_member(tmp_path: Path) -> None:
    """The first join has made a member, and while the session lives it would be given its share of the partitions."""
    with ZooKeeper(tmp_path / "zookeeper", proxied=True) as zookeeper, ZooKeeperGroup(zookeeper.hosts) as group:
        (proxy,) = zookeeper.proxies
        outside, coordinator = group.coordinator(), group.make()
        coordinator.begin({})  # the group's nodes are there
        create, session = coordinator._session.client.create_async, coordinator._session.number()

        def unanswered(*given: Any, **named: Any) -> Any:
            proxy.lose(1.0, [Way.BACK])
            return create(*given, **named)

        coordinator._session.client.create_async = unanswered
        with pytest.raises(CoordinatorUnavailable):
            coordinator.join({"name": "m"})
        coordinator._session.client.create_async = create
        proxy.heal()
        assert len(group.again(outside.members)) == 1

        name = group.again(lambda: coordinator.join({"name": "m"}))

        assert coordinator._session.number() == session
        assert [member.name for member in group.again(outside.members)] == [name]
        coordinator.close()


class Idle:
    """Owns, and does nothing."""

    def gained(self, claims: Mapping[Claim, CommittedOffset | None]) -> None: ...

    def losing(self, claims: Collection[Claim]) -> None: ...

    def drained(self, claims: Collection[Claim]) -> Collection[Claim]:
        return claims

    def lost(self, claims: Collection[Claim]) -> None: ...


def test_a_claim_whose_answer_was_lost_is_given_back_when_the_plan_has_it_no_more(tmp_path: Path) -> None:
    """The member does not know that it has it; nobody else could own it while its session lives (G15)."""
    with ZooKeeper(tmp_path / "zookeeper", proxied=True) as zookeeper, ZooKeeperGroup(zookeeper.hosts) as group:
        (proxy,) = zookeeper.proxies
        outside, coordinator = group.coordinator(), group.coordinator()
        assert isinstance(coordinator, ZooKeeperCoordinator)
        subscribed = [ONE]
        joined = GroupMember(coordinator, Idle(), lambda: subscribed, clock=group.clock, about={})
        transaction, session = coordinator._session.client.transaction, coordinator._session.number()

        def unanswered() -> Any:
            proxy.lose(1.0, [Way.BACK])
            return transaction()

        coordinator._session.client.transaction = unanswered
        eventually(lambda: joined.step() and proxy.lost(Way.BACK), seconds=90)
        coordinator._session.client.transaction = transaction
        proxy.heal()
        assert list(group.again(outside.owners)) == [ONE]
        assert list(joined.held) == []
        subscribed.clear()

        eventually(lambda: joined.step() and joined.name and not joined.plan.partitions(), seconds=90)

        assert coordinator._session.number() == session
        eventually(lambda: joined.step() and not group.again(outside.owners), seconds=90)


def test_what_is_released_is_free_though_its_offset_is_set_by_hand_meanwhile(group: ZooKeeperGroup) -> None:
    member, other, outside = group.member(), group.member(), group.coordinator()
    assert isinstance(member.coordinator, ZooKeeperCoordinator)
    claim, client = member.claim_one(ONE), member.coordinator._session.client
    transaction = client.transaction

    def reset_first() -> Any:
        client.transaction = transaction
        outside.reset({ONE: place(1)})
        return transaction()

    client.transaction = reset_first
    member.coordinator.release([claim])

    assert list(other.coordinator.claim([ONE]).values()) == [place(1)]


def test_killed_and_started_again_it_has_claims_plan_and_offsets(brittle: ZooKeeper) -> None:
    with ZooKeeperGroup(brittle.hosts) as group:
        member = group.member()
        claim = member.claim_one(ONE)
        member.commit(claim, place(7))
        member.coordinator.propose(Plan(1, {member.name: [ONE]}))
        (node,) = brittle.nodes

        node.kill()
        with pytest.raises(CoordinatorUnavailable):
            member.commit(claim, place(8))
        node.start()
        brittle.wait_until_up(0)

        eventually(member.coordinator.trusted, seconds=90)
        assert member.coordinator.plan() == Plan(1, {member.name: [ONE]})
        assert member.coordinator.owners() == {ONE: (member.name, claim.generation)}
        assert member.commit(claim, place(8))


def test_three_go_on_without_their_leader(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper", nodes=3) as three, ZooKeeperGroup(three.hosts) as group:
        former, owner = group.member(), group.member()
        claims = former.claim(*parts(1, 2))
        former.commit(claims[ONE], place(7))
        former.coordinator.release([claims[ONE]])
        new = eventually(lambda: owner.claim(ONE).get(ONE))  # its server may hear of it later than others
        assert new is not None
        claim = new
        (leader,) = (node for node in three.nodes if node.mode == "leader")

        leader.kill()

        assert eventually(lambda: commits(owner, claim, place(8)), seconds=90)
        eventually(former.coordinator.trusted, seconds=90)
        assert not commits(former, claims[ONE], place(1))
        assert group.coordinator().offsets() == {ONE: place(8)}


def commits(member: Member, claim: Claim, offset: CommittedOffset) -> bool:
    try:
        return member.commit(claim, offset)
    except CoordinatorUnavailable:
        return False
