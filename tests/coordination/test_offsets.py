"""Offsets kept in Queuey, on a real server: the contract of those kept with the group, and one more accident."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from qdo.client import Client, GroupOffset
from qdo.groups.coordination import Claim, Coordinator
from qdo.groups.local import LocalCoordinator
from qdo.groups.offsets_in_queuey import OffsetsInQueuey
from queuey.errors import InvalidApplicationKey, SessionLost
from tests.support.group_contract import CoordinatorContract
from tests.support.local_members import LocalGroup
from tests.support.members import Member, MemberGroup, parts
from tests.support.servers import APPLICATIONS, RunningServer, shipped

MOST_PARTITIONS = 200
(ONE,) = parts(1)
NUMBERS = count()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with shipped(tmp_path_factory.mktemp("offsets")) as running:
        yield running


class QueueyGroup(MemberGroup):
    """A file says which member owns what; queues of the application say how far each is."""

    def __init__(self, served: RunningServer, application: str, folder: Path) -> None:
        super().__init__()
        self.owners = LocalGroup(folder)
        self.name = self.owners.name
        self._reached = served.url, application, APPLICATIONS[application][0]
        self._client = self.connect()
        for queue in ("q", "r", "history"):
            self._make(queue)

    def connect(self) -> Client:
        return Client(*self._reached)

    def make(self) -> OffsetsInQueuey:
        return OffsetsInQueuey(self.owners.make(), self.connect(), self.name)

    def everything(self) -> object:
        return self.owners.everything()

    def make_anew(self, queue: str) -> None:
        self._client.delete_queue(queue)
        self._make(queue)

    def _make(self, queue: str) -> None:
        self._client.create_queue(queue, partitions=MOST_PARTITIONS)
        self._incarnations[queue] = self._client.queue_info(queue).uuid

    def end_session(self, member: Member) -> None:
        assert isinstance(member.coordinator, OffsetsInQueuey)
        self.owners.fall_silent(member.coordinator._inner)

    def pass_unheard(self, coordinator: Coordinator, seconds: float) -> None:
        self.owners.pass_unheard(coordinator, seconds)

    def until(self, look: Callable[[], object]) -> None:
        self.owners.until(look)

    def __exit__(self, *about: object) -> None:
        super().__exit__(*about)
        self._client.close()


@pytest.fixture
def application() -> str:
    """One that nobody has used, for both groups of a test."""
    return f"fresh-{next(NUMBERS):03d}"


@pytest.fixture
def group(served: RunningServer, application: str, tmp_path: Path) -> Iterator[QueueyGroup]:
    with QueueyGroup(served, application, tmp_path) as made:
        yield made


@pytest.fixture
def other_group(served: RunningServer, application: str, tmp_path: Path) -> Iterator[QueueyGroup]:
    with QueueyGroup(served, application, tmp_path) as made:
        yield made


class TestOffsetsInQueuey(CoordinatorContract):
    """Owners in a file, offsets beside the messages."""

    def test_who_slept_before_taking_over_is_told_of_no_claim(
        self, group: QueueyGroup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both would have the same generation, for neither saw the other's: the coordinator has the last word (G14)."""
        sleeper, owner = group.member(), group.member()
        got: dict[str, Claim] = {}
        take_over = Client.take_over

        def sleeps(
            self: Client, queue: str, name: str, partitions: Sequence[int], generation: int
        ) -> list[GroupOffset]:
            monkeypatch.undo()
            group.end_session(sleeper)
            got["owner"] = owner.claim_one(ONE)
            got["sleeper"] = Claim(ONE, generation)
            return take_over(self, queue, name, partitions, generation)

        with group.connect() as client:
            client.take_over("q", group.name, [1], 5)
        monkeypatch.setattr(Client, "take_over", sleeps)

        with pytest.raises(SessionLost):
            sleeper.claim(ONE)

        assert got["sleeper"] == got["owner"] == Claim(ONE, 6)
        assert not sleeper.commit(got["sleeper"], group.place(1))
        assert owner.commit(got["owner"], group.place(2))

    def test_offsets_outlive_what_the_owners_shared(self, group: QueueyGroup, tmp_path: Path) -> None:
        """A group that goes on elsewhere, where generations begin at 1 again, is not fenced off by its own past."""
        member = group.member()
        member.coordinator.reset({ONE: group.place(1)})
        before = member.claim_one(ONE)
        assert member.commit(before, group.place(7))
        elsewhere = OffsetsInQueuey(LocalCoordinator(group.name, tmp_path / "elsewhere"), group.connect(), group.name)
        elsewhere.join({})

        ((claim, offset),) = elsewhere.claim([ONE]).items()

        assert offset == group.place(7)
        assert claim.generation > before.generation
        assert elsewhere.commit({claim: group.place(8)}) == []
        assert not member.commit(before, group.place(9))
        elsewhere.close()

    def test_a_commit_by_hand_of_the_same_generation_holds_up_its_own_partition_alone(self, group: QueueyGroup) -> None:
        """Then the owner's own commit would move back: it is refused, and the owner goes on from there."""
        member = group.member()
        (first,), second = parts(1), parts(2)[0]
        claims = member.claim(first, second)
        with group.connect() as client:
            client.commit_offsets("q", group.name, {1: group.place(9).message_id}, claims[first].generation)

        refused = member.coordinator.commit({claims[first]: group.place(5), claims[second]: group.place(5)})

        assert refused == [claims[first]]
        assert member.coordinator.offsets() == {first: group.place(9), second: group.place(5)}
        assert group.place(9) in member.coordinator.claim([first]).values()

    def test_what_can_never_be_recorded_is_not_taken_for_an_outage(self, group: QueueyGroup) -> None:
        """A worker would try again for ever."""
        url, application, _ = group._reached
        wrong = Client(url, application, "f" * 32)
        outside = OffsetsInQueuey(group.owners.make(), wrong, group.name)
        outside.join({})
        try:
            with pytest.raises(InvalidApplicationKey):
                outside.claim([ONE])
        finally:
            outside.close()

    def test_a_queue_that_is_gone_or_has_fewer_partitions_gives_no_claim(self, group: QueueyGroup) -> None:
        member = group.member()

        found = member.claim(*parts(1, MOST_PARTITIONS + 1), *parts(1, queue="gone"))

        assert list(found) == [ONE]
