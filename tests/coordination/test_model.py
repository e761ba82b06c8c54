"""G15: members join, leave, die, stand still and come back, queues grow; each partition has one owner at most, and one in the end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from qdo.groups.assign import STRATEGIES, Assignment, Partition, assign_sticky
from qdo.groups.coordination import Claim, CommittedOffset
from qdo.groups.local import LocalCoordinator
from qdo.groups.member import GroupMember, GroupRules
from queuey.clock import ManualClock
from queuey.errors import SessionLost
from tests.support.members import SESSION_SECONDS, parts, place

HISTORIES = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
UNTIL_FOUND = settings(HISTORIES, max_examples=2000, phases=[Phase.generate])
MOST_MEMBERS = 5
MOST_PARTITIONS = 9
DRAIN_SECONDS = 3.0
BEAT_SECONDS = SESSION_SECONDS / 6
GROUPS = count(1)
who = st.integers(0, MOST_MEMBERS - 1)


class Ownership:
    """What must be true of claims and offsets, whoever says otherwise."""

    def __init__(self) -> None:
        self.generations: dict[Partition, int] = {}
        self.offsets: dict[Partition, CommittedOffset] = {}
        self.least: dict[Partition, int] = {}
        """The generation that the latest reset has left behind."""

    def claimed(self, claim: Claim, offset: CommittedOffset | None) -> None:
        assert claim.generation > self.generations.get(claim.partition, 0)
        assert claim.generation >= self.least.get(claim.partition, 0)
        assert offset == self.offsets.get(claim.partition)
        self.generations[claim.partition] = claim.generation

    def committed(self, claim: Claim, offset: CommittedOffset) -> None:
        assert claim.generation == self.generations[claim.partition], "a former owner moved an offset"
        assert claim.generation >= self.least.get(claim.partition, 0), (
            "a former owner moved an offset that was set by hand"
        )
        assert claim.partition not in self.offsets or self.offsets[claim.partition] <= offset
        self.offsets[claim.partition] = offset

    def reset(self, partition: Partition, offset: CommittedOffset) -> None:
        self.least[partition] = max(self.generations.get(partition, 0), self.least.get(partition, 0)) + 1
        self.offsets[partition] = offset


class Worker:
    """A member whose jobs begin and end when told; its coordinator and its group are real."""

    def __init__(self, group: str, folder: Path, model: Model) -> None:
        self.model = model
        self.clock = model.clock
        self.coordinator = LocalCoordinator(
            group, folder, session_seconds=SESSION_SECONDS, clock=self.clock, by_hand=True
        )
        self.group = GroupMember(
            self.coordinator,
            self,
            lambda: model.partitions,
            clock=self.clock,
            about={"name": "m"},
            rules=GroupRules(STRATEGIES[model.strategy], DRAIN_SECONDS),
        )
        self.open: dict[Claim, int] = {}
        """What it holds for its own, with the number of the last message that is finished."""
        self.closing: set[Claim] = set()
        self.running: set[Claim] = set()
        self.ever: dict[Claim, int] = {}
        """The same, of all claims that it ever had."""
        self.names: dict[Claim, str | None] = {}
        """Its name in the group when it got them."""
        self.stands_still = False
        self.leaving = False

    # As an owner

    def gained(self, claims: Mapping[Claim, CommittedOffset | None]) -> None:
        for claim, offset in claims.items():
            self.model.ownership.claimed(claim, offset)
            number = 0 if offset is None else offset.message_id.ticks - place(0).message_id.ticks
            self.open[claim] = self.ever[claim] = number
            self.names[claim] = self.group.name

    def losing(self, claims: Collection[Claim]) -> None:
        self.closing.update(claims)

    def drained(self, claims: Collection[Claim]) -> Collection[Claim]:
        done = set(claims) - self.running
        self._forget(done)
        return done

    def lost(self, claims: Collection[Claim]) -> None:
        self._forget(set(claims))

    def _forget(self, claims: set[Claim]) -> None:
        self.closing -= claims
        self.running -= claims
        for claim in claims:
            self.open.pop(claim, None)

    # As a process

    def live(self) -> set[Partition]:
        """In which of its partitions a job may begin, as far as it knows."""
        mine = {claim.partition for claim in self.open if self.names[claim] == self.group.name}
        return mine if self.coordinator.trusted() else set()

    def step(self) -> None:
        if not self.stands_still:
            if self.leaving:
                self.group.leave()
            else:
                self.group.step()

    def beat(self) -> None:
        if not self.stands_still:
            try:
                self.coordinator.beat()
            except SessionLost:
                return  # its next step says so

    def begin(self) -> None:
        if self.coordinator.trusted():
            self.running |= set(self.open) - self.closing

    def end(self) -> None:
        """Finish what is under way, and commit it."""
        for claim in sorted(self.running):
            self.running.discard(claim)
            self.open[claim] += 1
            self.ever[claim] = self.open[claim]
            self.commit(claim)

    def commit(self, claim: Claim) -> None:
        """As something that woke up late would, too: what was finished under this claim."""
        if not self.ever[claim]:
            return
        offset = place(self.ever[claim])
        refused = self.coordinator.commit({claim: offset})
        if refused:
            assert list(refused) == [claim]
            self.group.fenced(refused)
        else:
            self.model.ownership.committed(claim, offset)


class Model(RuleBasedStateMachine):
    """One history of a group."""

    def __init__(self, folder: Path, strategy: str) -> None:
        super().__init__()
        self.folder = folder
        self.strategy = strategy
        self.group = f"g{next(GROUPS)}"
        self.clock = ManualClock()
        self.ownership = Ownership()
        self.partitions: list[Partition] = parts(1, 2, 3)
        self.workers: list[Worker] = []
        self.dead: list[Worker] = []
        self.outside = LocalCoordinator(self.group, folder, clock=self.clock, by_hand=True)

    def teardown(self) -> None:
        for worker in self.workers + self.dead:
            worker.coordinator.close()
        self.outside.close()

    def one(self, number: int) -> Worker:
        return self.workers[number % len(self.workers)]

    # What happens

    @initialize()
    def begin(self) -> None:
        self.join()

    @rule()
    @precondition(lambda self: len(self.workers) < MOST_MEMBERS)
    def join(self) -> None:
        self.workers.append(Worker(self.group, self.folder, self))

    @rule(number=who)
    @precondition(lambda self: self.workers)
    def step(self, number: int) -> None:
        self.one(number).step()

    @rule(number=who)
    @precondition(lambda self: self.workers)
    def leave(self, number: int) -> None:
        self.one(number).leaving = True

    @rule(number=who)
    @precondition(lambda self: self.workers)
    def crash(self, number: int) -> None:
        """A process that is gone, or one that is cut off and goes on all the same: nobody can tell which."""
        worker = self.one(number)
        worker.stands_still = True
        self.workers.remove(worker)
        self.dead.append(worker)

    @rule(number=who)
    @precondition(lambda self: self.workers)
    def stop_or_go_on(self, number: int) -> None:
        worker = self.one(number)
        worker.stands_still = not worker.stands_still

    @rule(number=who)
    @precondition(lambda self: self.workers)
    def stand_still_too_long(self, number: int) -> None:
        """And go on as if nothing had happened."""
        worker = self.one(number)
        worker.stands_still = True
        for _ in range(3):
            self.time_passes(SESSION_SECONDS / 2)
            for other in self.workers:
                other.step()
        worker.stands_still = False

    @rule(more=st.integers(1, 3))
    @precondition(lambda self: len(self.partitions) < MOST_PARTITIONS)
    def grow(self, more: int) -> None:
        self.partitions = parts(*range(1, len(self.partitions) + more + 1))

    @rule(seconds=st.sampled_from([0.1, BEAT_SECONDS, SESSION_SECONDS / 2]))
    def time_passes(self, seconds: float) -> None:
        """Whoever does not stand still says in time that it is alive."""
        self.clock.advance(seconds)
        for worker in self.workers:
            worker.beat()

    @rule(number=who)
    @precondition(lambda self: self.workers)
    def jobs_begin(self, number: int) -> None:
        if not self.one(number).stands_still:
            self.one(number).begin()

    @rule(number=who)
    @precondition(lambda self: self.workers)
    def jobs_end(self, number: int) -> None:
        if not self.one(number).stands_still:
            self.one(number).end()

    @rule(data=st.data())
    @precondition(lambda self: any(worker.ever for worker in self.workers + self.dead))
    def somebody_commits_late(self, data: st.DataObject) -> None:
        workers = [worker for worker in self.workers + self.dead if worker.ever]
        worker = workers[data.draw(st.integers(0, len(workers) - 1))]
        worker.commit(data.draw(st.sampled_from(sorted(worker.ever))))

    @rule(data=st.data(), number=st.integers(1, 9))
    def somebody_sets_an_offset_by_hand(self, data: st.DataObject, number: int) -> None:
        """Its owner is the same, fenced; and gives it back when the plan says so."""
        partition = data.draw(st.sampled_from(self.partitions))
        self.outside.reset({partition: place(number)})
        self.ownership.reset(partition, place(number))

    @rule()
    def all_settles(self) -> None:
        """Given some time everybody goes on; then each partition has an owner, in equal shares."""
        for worker in self.workers:
            worker.stands_still = False
        for _ in range(100):
            self.time_passes(BEAT_SECONDS)
            for worker in self.workers:
                worker.begin()
                worker.step()
                self.nobody_shares()
                worker.end()
            self.workers = [worker for worker in self.workers if not self._has_left(worker)]
            if not self.workers or self._settled():
                break
        if not self.workers:
            return
        assert self._settled()
        held = [claim.partition for worker in self.workers for claim in worker.group.held]
        assert sorted(held) == sorted(self.partitions)
        counts = [len(worker.group.held) for worker in self.workers]
        assert max(counts) - min(counts) <= 1
        owners = {part: name for part, (name, _) in self.outside.owners().items()}
        assert owners == {claim.partition: one.group.name for one in self.workers for claim in one.group.held}

    def _settled(self) -> bool:
        """All own what the latest plan says, and it speaks of all of them and of nobody else."""
        plan, names = self.outside.plan(), {worker.group.name for worker in self.workers}
        return (plan.partitions(), set(plan.assignment)) == (set(self.partitions), names) and all(
            worker.group.settled and worker.group.plan == plan for worker in self.workers
        )

    def _has_left(self, worker: Worker) -> bool:
        if worker.leaving and worker.group.name is None:
            self.dead.append(worker)
            return True
        return False

    # What must hold

    @invariant()
    def nobody_shares(self) -> None:
        live = [partition for worker in self.workers + self.dead for partition in worker.live()]
        assert len(live) == len(set(live)), "two live claims"

    @invariant()
    def offsets_are_those_of_the_owners(self) -> None:
        assert self.outside.offsets() == self.ownership.offsets


def try_histories(folder: Path, strategy: str, how: settings = HISTORIES) -> None:
    make: Callable[[], RuleBasedStateMachine] = lambda: Model(folder, strategy)  # noqa: E731
    run_state_machine_as_test(make, settings=how)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_whatever_happens_each_partition_has_one_owner(tmp_path: Path, strategy: str) -> None:
    try_histories(tmp_path, strategy)


def test_a_claim_that_was_fenced_long_ago_does_not_give_back_a_later_one(tmp_path: Path) -> None:
    """A member that lost a partition and claimed it anew commits under its first claim: its job goes on undisturbed."""
    model = Model(tmp_path, "sticky")
    model.begin()
    model.join()
    for _ in range(2):
        model.stand_still_too_long(number=0)
        model.all_settles()
    former = [(one, claim) for one in model.workers for claim in one.ever if claim not in one.open]
    assert former
    for one, claim in former:
        one.commit(claim)
    model.stand_still_too_long(number=0)
    for one, claim in former:
        one.commit(claim)
    model.all_settles()
    model.teardown()


def test_a_member_that_joins_anew_claims_no_partition_before_its_job_there_has_ended(tmp_path: Path) -> None:
    """Or one worker would do a message twice at once: its session has ended, and its jobs have not."""
    model = Model(tmp_path, "sticky")
    model.begin()
    model.all_settles()
    (worker,) = model.workers
    former = worker.group.name
    worker.begin()

    model.clock.advance(2 * SESSION_SECONDS)
    for _ in range(4):  # less than its jobs have to drain, and more than a new group waits for another member
        worker.step()
        model.time_passes(BEAT_SECONDS)

    assert worker.group.name not in (former, None)
    assert worker.group.plan.of(worker.group.name or "")
    assert list(worker.group.held) == []
    worker.end()
    model.all_settles()
    model.teardown()


# The model finds what is planted.


def always_trusted(self: LocalCoordinator) -> bool:
    return self._file.name is not None


def commit_unchecked(self: LocalCoordinator, offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
    with self._file.changing(told=False):
        for claim, offset in offsets.items():
            self._file.ask("UPDATE claims SET offset = ? WHERE part = ?", str(offset), str(claim.partition))
    return []


def claim_by_force(self: LocalCoordinator, partitions: Collection[Partition]) -> Mapping[Claim, CommittedOffset | None]:
    for partition in partitions:
        self._file.ask("UPDATE claims SET member = NULL WHERE grp = ? AND part = ?", self._group, str(partition))
    return claim(self, partitions)


claim = LocalCoordinator.claim


@pytest.mark.parametrize(
    ("method", "fault", "said"),
    [
        ("trusted", always_trusted, "two live claims"),
        ("commit", commit_unchecked, "a former owner moved an offset"),
        ("claim", claim_by_force, "two live claims"),
    ],
)
def test_a_coordinator_with_a_fault_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, fault: Callable[..., object], said: str
) -> None:
    monkeypatch.setattr(LocalCoordinator, method, fault)

    with pytest.raises(AssertionError, match=said):
        try_histories(tmp_path, "sticky", UNTIL_FOUND)


def test_a_partition_that_is_forgotten_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget_one(members: Sequence[str], partitions: Collection[Partition], current: Assignment) -> Assignment:
        return assign_sticky(members, sorted(partitions)[1:], current)

    monkeypatch.setitem(STRATEGIES, "forgets", forget_one)

    with pytest.raises(AssertionError):
        try_histories(tmp_path, "forgets", UNTIL_FOUND)
