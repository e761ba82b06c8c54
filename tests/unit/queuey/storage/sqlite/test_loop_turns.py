"""Which commits the event loop carries: none that was slow a moment ago, and none that is large."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.future import Future
from queuey.storage.sqlite import loop_turns
from queuey.storage.sqlite.loop_turns import CommitTimes, TurnCommits, processor_waits
from queuey.storage.sqlite.writes import Group, Write

LIMIT = 0.001
QUICK, SLOW, FAR_TOO_LONG = LIMIT / 2, 1.5 * LIMIT, 30 * LIMIT


class Times:
    """Commit times, and what they said."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.clock = ManualClock()
        self.switches: list[str] = []
        self.times = CommitTimes(limit, self.clock.elapsed, self.switches.append)

    def on_loop(self, seconds: float, number: int = 1) -> None:
        for _ in range(number):
            if self.times.is_quick:
                self.times.on_loop(seconds, seconds)

    def rests(self) -> float:
        """How long the thread carries commits until the loop does again; they are quick."""
        rested = 0.0
        while not self.times.is_quick:
            self.clock.advance(0.5)
            rested += 0.5
            self.times.in_thread(QUICK)
        return rested


def test_one_slow_commit_of_a_hundred_is_let_pass() -> None:
    found = Times()
    found.on_loop(QUICK, 1000)
    for _ in range(200):
        found.on_loop(SLOW)
        found.on_loop(QUICK, 100)
    assert found.times.is_quick
    assert found.switches == []


@pytest.mark.parametrize(("quick", "slow"), [(0, 5), (99, 6), (1000, 10)])
def test_more_of_them_leave_commits_to_the_thread(quick: int, slow: int) -> None:
    found = Times()
    found.on_loop(QUICK, quick)
    found.on_loop(SLOW, slow - 1)
    assert found.switches == []
    found.on_loop(SLOW)
    assert found.switches == ["thread"]


def test_a_slow_commit_in_fifty_is_too_many() -> None:
    found = Times()
    for _ in range(20):
        found.on_loop(QUICK, 49)
        found.on_loop(SLOW)
    assert not found.times.is_quick


def test_commits_that_wrote_nothing_excuse_no_slow_one() -> None:
    """A thousand empty receives between two appends let each of these take as long as it liked."""
    found = Times()
    found.on_loop(QUICK, 1000)
    for _ in range(9):
        found.on_loop(SLOW)
        for _ in range(1000):
            found.times.on_loop(None, QUICK)
    assert found.switches == []
    found.on_loop(SLOW)
    assert found.switches == ["thread"]


def test_one_that_takes_far_too_long_is_enough() -> None:
    found = Times()
    found.on_loop(QUICK, 10_000)
    found.on_loop(FAR_TOO_LONG)
    assert found.switches == ["thread"]


@pytest.mark.parametrize("commit_seconds", [QUICK, None], ids=["with a quick commit", "that wrote nothing"])
def test_jobs_that_take_far_too_long_are_enough(commit_seconds: float | None) -> None:
    found = Times()
    found.times.on_loop(commit_seconds, FAR_TOO_LONG)
    assert found.switches == ["thread"]


def test_a_wait_for_the_processor_is_not_the_disks() -> None:
    """Where the machine is busy, commits take long on any thread."""
    waits, switches = [0.0], list[str]()
    times = CommitTimes(LIMIT, lambda: 0.0, switches.append, lambda: waits[0])
    for _ in range(50):
        waits[0] += FAR_TOO_LONG
        times.on_loop(FAR_TOO_LONG + QUICK, FAR_TOO_LONG + QUICK)
    for _ in range(1000):
        waits[0] += FAR_TOO_LONG
        times.on_loop(QUICK, QUICK)
    assert switches == []
    waits[0] += SLOW
    times.on_loop(FAR_TOO_LONG, FAR_TOO_LONG)
    assert switches == ["thread"], "the waits of quick commits excuse no slow one"


def test_the_kernel_says_how_long_a_thread_has_waited_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < processor_waits() < 3600
    monkeypatch.setattr(loop_turns, "_SCHEDULER", Path("/proc/none"))
    assert processor_waits() == 0


def test_the_loop_tries_again_after_ever_longer_rests() -> None:
    found, rests = Times(), []
    for _ in range(9):
        found.on_loop(FAR_TOO_LONG)
        rests.append(found.rests())
    assert rests == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    found.clock.advance(61.0)
    found.on_loop(FAR_TOO_LONG)
    assert found.rests() == 5, "it went well for a minute"


def test_it_tries_nothing_while_the_fastest_commits_of_the_thread_are_slow() -> None:
    found = Times()
    found.on_loop(FAR_TOO_LONG)
    for _ in range(100):
        found.clock.advance(1.0)
        found.times.in_thread(SLOW)
    assert not found.times.is_quick

    found.times.in_thread(QUICK)
    found.clock.advance(5.0)
    found.times.in_thread(SLOW)  # it waited for the interpreter, perhaps
    assert found.switches == ["thread", "loop"]


def test_without_a_limit_the_thread_carries_all() -> None:
    found = Times(0.0)
    found.clock.advance(1000.0)
    found.times.in_thread(QUICK)
    assert not found.times.is_quick


def test_the_log_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    found = Times()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            found.on_loop(FAR_TOO_LONG)
            found.rests()
    (record,) = caplog.records
    assert record.getMessage().startswith("the event loop leaves commits to a thread for 5 s, since they take longer")
    assert found.switches == ["thread", "loop"] * 3


class Turns:
    """A loop whose turns end when the test says so."""

    def __init__(self) -> None:
        self.times = CommitTimes(LIMIT, lambda: 0.0)
        self.committed: list[Group] = []
        self.to_thread: list[Write] = []
        self.can_commit = True
        self.turns = TurnCommits(self._commit, self.to_thread.append, self.times)
        self.arrived: list[Callable[[], Any]] = []
        self.turns.begin(self)

    def arrives(self, go_on: Callable[[], object]) -> None:
        self.arrived.append(go_on)

    def _commit(self, group: Group) -> bool:
        if self.can_commit:
            self.committed.append(group)
        return self.can_commit

    def end_turn(self) -> None:
        arrived, self.arrived = self.arrived, []
        for go_on in arrived:
            go_on()

    def end_turns(self) -> None:
        """Turns that bring nothing, until nothing waits."""
        while self.arrived:
            self.end_turn()

    def turn(self, writes: int, size: int = 100) -> list[int]:
        """A turn in which some writes come; how many each commit so far had."""
        assert all(self.turns.takes(write(size)) for _ in range(writes))
        self.end_turn()
        return [*map(len, self.committed)]


def write(size: int = 100) -> Write:
    return Write(lambda _: None, False, Future(), size)


def test_what_came_in_one_turn_is_one_group() -> None:
    loop, first, second = Turns(), [write(), write()], [write()]
    for group in (first, second):
        assert all(loop.turns.takes(one) for one in group)
        assert len(loop.arrived) == 1
        loop.end_turns()
    assert loop.committed == [first, second]
    assert loop.to_thread == []


def test_a_batch_is_left_to_the_thread() -> None:
    loop = Turns()
    assert loop.turns.takes(write(loop_turns.MOST_JOB_BYTES))
    assert not loop.turns.takes(write(loop_turns.MOST_JOB_BYTES + 1))


@pytest.mark.parametrize("group", [[write()] * (loop_turns.MOST_JOBS + 1), [write(loop_turns.MOST_JOB_BYTES)] * 9])
def test_a_large_group_is_left_to_the_thread(group: Group) -> None:
    loop = Turns()
    assert all(map(loop.turns.takes, group))
    loop.end_turn()
    assert (loop.committed, loop.to_thread) == ([], group)


def test_what_the_loop_cannot_commit_is_left_to_the_thread() -> None:
    loop, one = Turns(), write()
    loop.can_commit = False
    loop.turns.takes(one)
    loop.end_turns()
    assert loop.to_thread == [one]


def test_nothing_is_taken_while_the_log_is_copied_or_commits_are_slow() -> None:
    loop, one = Turns(), write()
    loop.turns.takes(one)
    with loop.turns.held_off():
        assert not loop.turns.takes(write())
        loop.end_turn()
        assert (loop.committed, loop.to_thread) == ([], [one]), "the thread also has the writes from before"
    assert loop.turns.takes(write())
    loop.times.leave("the test says so")
    loop.end_turn()
    assert len(loop.to_thread) == 2
    assert not loop.turns.takes(write())


def test_an_end_leaves_nothing_behind() -> None:
    loop, one = Turns(), write()
    loop.turns.takes(one)
    loop.turns.end()
    assert loop.to_thread == [one]
    assert not loop.turns.takes(write())
    loop.end_turn()
    assert (loop.committed, loop.to_thread) == ([], [one])


def test_a_forked_process_takes_nothing() -> None:
    loop = Turns()
    loop.turns.forsake()
    assert not loop.turns.takes(write())


def test_writes_of_turns_that_follow_each_other_share_a_commit() -> None:
    loop = Turns()
    for writes in (1, 2, 1):
        assert loop.turn(writes) == []
    assert loop.turn(0) == [4]


def test_writes_wait_for_four_turns_at_most() -> None:
    loop = Turns()
    for _ in range(4):
        assert loop.turn(1) == []
    assert loop.turn(1) == [5]
    assert loop.turn(1) == [5], "the next ones wait anew"


@pytest.mark.parametrize(("writes", "size"), [(64, 100), (4, loop_turns.MOST_JOB_BYTES)])
def test_a_commit_that_is_half_full_waits_no_longer(writes: int, size: int) -> None:
    loop = Turns()
    assert loop.turn(writes, size) == [writes]
    assert not loop.to_thread


def test_where_nothing_more_comes_few_commits_wait() -> None:
    loop, turns = Turns(), 0
    while len(loop.committed) < 1000:
        loop.turn(0 if loop.arrived else 1)
        turns += 1
    assert turns - 1000 <= 8 + 1000 // 64 + 1


def test_a_loop_that_becomes_busy_waits_again() -> None:
    loop = Turns()
    while len(loop.committed) < 200:
        loop.turn(0 if loop.arrived else 1)
    loop.committed.clear()
    for _ in range(400):
        groups = loop.turn(1)
    assert max(groups) == 5
    assert sum(groups) > 3 * len(groups)
