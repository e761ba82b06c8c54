"""The readers that wait, and what wakes them: on a clock that the test moves."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.errors import TooManyWaiters
from queuey.future import Future, run, start
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import AppendRequest, Draft
from queuey.monitor.metrics import WAITERS
from queuey.security.principals import STRANGERS
from queuey.service.queues import QueueSettings
from queuey.service.waiting import due
from queuey.service.waiting.registry import Waiters
from queuey.service.waiting.watch import Watch
from queuey.settings import load_settings
from tests.support.waiting_house import USER, House

APPLICATION = "app:demo"


def kept(*waits: Future[None]) -> list[bool]:
    """Which of these waits have ended."""
    return [wait.done for wait in waits]


@pytest.fixture
def house() -> House:
    return House()


def test_an_append_wakes_those_who_watch_its_partition(house: House) -> None:
    queue = house.queue()
    first, second = house.watch(queue, 1), house.watch(queue, 1, 2)
    waits = [house.wait(first), house.wait(second)]

    house.append(queue, 2)
    assert [wait.done for wait in waits] == [False, True]
    assert second.take_events() == ({queue.partition(2)}, False)

    house.append(queue, 1)
    assert waits[0].done
    assert (first.take_events()[0], second.take_events()[0]) == ({queue.partition(1)}, {queue.partition(1)})


def test_what_lies_behind_a_message_that_falls_due_while_it_is_looked_for_is_not_missed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, look = house.queue(), house.waiters._look
    for seconds in (1, 2):  # not heard of: they were there before the server
        due = house.clock.now_ticks() + seconds * TICKS_PER_SECOND
        house.store.append(AppendRequest(queue, [Draft(1, b"x", 1000, due_ticks=due)])).wait()
    watch = house.watch(queue, 1)

    async def late(*asked: Any) -> None:
        await look(*asked)
        house.pass_time(1.1)

    monkeypatch.setattr(house.waiters, "_look", late)
    assert house.wait(watch).done
    monkeypatch.undo()
    watch.take_events()

    wait = house.wait(watch)
    assert kept(wait) == [False]
    house.pass_time(1)
    assert kept(wait) == [True]


def test_what_came_between_a_read_and_its_wait_ends_the_wait_at_once(house: House) -> None:
    queue = house.queue()
    watch = house.watch(queue, 1)
    watch.take_events()

    house.append(queue)

    assert house.wait(watch).done


def test_a_wait_ends_when_its_time_is_over(house: House) -> None:
    watch = house.watch(house.queue(), 1)
    wait = house.wait(watch, 5)

    house.pass_time(4.9)
    assert kept(wait) == [False]
    house.pass_time(0.1)
    assert kept(wait) == [True]
    assert watch.take_events() == (set(), False)


def test_a_wait_may_begin_anew_with_an_earlier_or_a_later_end(house: House) -> None:
    queue = house.queue()
    watch = house.watch(queue, 1)
    for seconds in (50, 5, 20):
        wait = house.wait(watch, seconds)
        house.append(queue)
        assert kept(wait) == [True]
        watch.take_events()

    wait = house.wait(watch, 20)
    house.pass_time(19)
    assert kept(wait) == [False]
    house.pass_time(1)
    assert kept(wait) == [True]


@pytest.mark.parametrize("stored", ["before the watch", "before the wait", "during the wait"])
def test_a_message_that_falls_due_wakes(house: House, stored: str) -> None:
    queue = house.queue()
    steps = ["before the watch", "before the wait", "during the wait"]
    done: list[Any] = []
    for step in steps:
        if step == stored:
            house.append(queue, delay_seconds=10)
        if step == steps[0]:
            done.append(house.watch(queue, 1))
        if step == steps[1]:
            done.append(house.wait(done[0]))

    house.pass_time(9)
    assert not done[1].done
    house.pass_time(1)
    assert done[1].done


def test_each_of_several_due_messages_wakes(house: House) -> None:
    queue = house.queue()
    watch = house.watch(queue, 1)
    for seconds in (30, 10, 20):
        house.append(queue, delay_seconds=seconds)

    for _ in range(3):
        wait = house.wait(watch)
        assert kept(wait) == [False]
        house.pass_time(10)
        assert kept(wait) == [True]
        watch.take_events()


def test_a_message_stored_while_another_fires_is_not_forgotten(house: House) -> None:
    queue = house.queue()
    watch = house.watch(queue, 1)
    house.append(queue, delay_seconds=5)
    wait = house.wait(watch)
    house.append(queue, delay_seconds=50)

    house.pass_time(5)
    assert kept(wait) == [True]
    watch.take_events()
    wait = house.wait(watch)
    house.pass_time(45)

    assert kept(wait) == [True]


def test_a_message_that_becomes_readable_between_a_read_and_its_wait_ends_the_wait(house: House) -> None:
    """It was there before the watch, so nobody heard of it."""
    queue = house.queue()
    for seconds in (1, 2):
        house.append(queue, delay_seconds=seconds)
    watch = house.watch(queue, 1)
    watch.take_events()  # and now it reads, and finds nothing
    for _ in range(2):
        house.clock.advance(1)
        wait = house.wait(watch)
        house.pass_time(0)
        assert kept(wait) == [True]
        watch.take_events()
    wait = house.wait(watch)
    house.pass_time(9)
    assert kept(wait) == [False]


def test_what_became_readable_unheard_of_wakes_once(house: House) -> None:
    queue = house.queue()
    for seconds in range(1, 9):
        house.append(queue, delay_seconds=seconds)
    watch = house.watch(queue, 1)
    house.clock.advance(10)

    waits = [house.wait(watch) for _ in range(2)]
    watch.take_events()

    assert kept(*waits) == [True, True]
    assert kept(house.wait(watch)) == [False]


def test_a_change_of_a_queue_touches_its_readers_and_no_others(house: House) -> None:
    queue, other = house.queue(), house.queue("other")
    watch, beside = house.watch(queue, 1), house.watch(other, 1)
    waits = [house.wait(watch), house.wait(beside)]

    run(house.queues.update(queue, QueueSettings(partitions=5)))

    assert [wait.done for wait in waits] == [True, False]
    assert watch.take_events() == (set(), True)
    run(house.queues.delete(run(house.queues.find("demo", "other")) or other))
    assert beside.take_events() == (set(), True)


def test_a_stop_ends_all_waits_now_and_later(house: House) -> None:
    queue = house.queue()
    waits = [house.wait(house.watch(queue, 1)) for _ in range(3)]

    house.waiters.stop()

    assert all(wait.done for wait in waits)
    assert house.wait(house.watch(queue, 1)).done


def test_a_closed_watch_leaves_nothing_behind(house: House) -> None:
    queue = house.queue()
    for _ in range(100):
        watch = house.watch(queue, 1, 2)
        wait = house.wait(watch, 5)
        watch.close()
        watch.close()
        house.append(queue)
        assert kept(wait) == [False]
    house.pass_time(5)

    waiters = house.waiters
    left = [waiters._table.partitions, waiters._due.waits, waiters._due.partitions, waiters._limits.by_reader]
    assert ([len(kept) for kept in left], house.monitor.value(WAITERS)) == ([0, 0, 0, 0], 0)


def test_each_reader_has_a_limit_and_the_server_has_one() -> None:
    house = House(limits={"max_waiters": 5, "max_waiters_per_user": 2, "max_waiters_per_application": 4})
    queue = house.queue()
    mine = [house.watch(queue, 1), house.watch(queue, 1)]

    with pytest.raises(TooManyWaiters, match=r"bid:joe@example.org has 2 waiting readers") as caught:
        house.watch(queue, 1)
    assert caught.value.whose == "user"
    theirs = [house.watch(queue, 1, readers=[APPLICATION]) for _ in range(3)]
    with pytest.raises(TooManyWaiters, match="5 readers wait on this server") as caught:
        house.watch(queue, 1, readers=["bid:ann@example.org"])
    assert caught.value.whose == "server"
    mine[0].close()
    theirs.append(house.watch(queue, 1, readers=[APPLICATION]))
    theirs[0].close()
    house.watch(queue, 1, readers=["bid:ann@example.org"])
    assert house.monitor.value(WAITERS) == 5


def test_readers_without_a_credential_take_a_quarter_together() -> None:
    house = House(limits={"max_waiters": 9})
    queue, other = house.queue(), house.queue("other")
    watches = [house.watch(queue, 1, readers=[STRANGERS]), house.watch(other, 1, readers=[STRANGERS])]

    with pytest.raises(TooManyWaiters, match="readers without a credential have 2 waiting readers") as caught:
        house.watch(other, 1, readers=[STRANGERS])

    assert caught.value.whose == STRANGERS
    for reader in (USER, APPLICATION):
        house.watch(queue, 1, readers=[reader])
    watches[0].close()
    house.watch(other, 1, readers=[STRANGERS])


def test_threads_that_wait_leave_one_for_others() -> None:
    house = House(server={"threads": 3})
    places = [(house.queue(), 1)]
    for _ in range(2):
        house.waiters.watch(places, [USER], in_thread=True)

    with pytest.raises(TooManyWaiters) as caught:
        house.waiters.watch(places, [USER], in_thread=True)

    assert caught.value.whose == "threads"
    house.waiters.watch(places, [USER], in_thread=False)
    assert house.monitor.value(WAITERS) == 3


@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "schedule", "pass", "reader", "slow reader"]), st.integers(1, 9)),
        max_size=60,
    )
)
@settings(max_examples=150)
def test_whoever_reads_when_woken_has_read_all_there_is_to_read(history: list[tuple[str, int]]) -> None:
    """The promise of a wake-up: a reader that waits has nothing left to read, whatever came in whatever order."""
    house = House()
    queue = house.queue(partitions=1)
    watches: list[Watch] = []
    waits: dict[Watch, Future[None]] = {}
    read: dict[Watch, int] = {}

    def readable() -> int:
        watermark = house.log.watermark(queue)
        return sum(id_.ticks <= watermark for id_ in stored)

    def go_on(watch: Watch, seconds: float = 0) -> None:
        """:param seconds: of its read."""
        while True:
            watch.take_events()
            read[watch] = readable()
            house.clock.advance(seconds)
            seconds = 0
            waits[watch] = house.wait(watch, 10_000)
            if not waits[watch].done:
                return

    stored: list[MessageId] = []
    for what, amount in history:
        if what == "append":
            stored.append(house.append(queue))
        elif what == "schedule":
            stored.append(house.append(queue, delay_seconds=amount))
        elif what == "pass":
            house.pass_time(amount / 2)
        else:
            watches.append(house.watch(queue, 1))
            go_on(watches[-1], amount / 2 if what == "slow reader" else 0)
            house.pass_time(0)
        for watch in watches:
            if waits[watch].done:
                go_on(watch)
            assert read[watch] == readable()


# What other servers publish


@pytest.mark.parametrize("partitions", [None, "its own"])
def test_what_another_server_tells_wakes_when_it_can_be_read(partitions: str | None) -> None:
    house = House()
    queue = house.queue()
    watch = house.watch(queue, 1)
    wait = house.wait(watch)
    soon = house.clock.now_ticks() + 2 * TICKS_PER_SECOND

    house.waiters.heard(None if partitions is None else [queue.partition(1)], soon)
    assert kept(wait) == [False]
    house.pass_time(2)

    assert kept(wait) == [True]


# How often the thread looks


LATE_SECONDS = 0.0051
"""The most that anything may be late, the rounding of ticks included."""
LOOKS_A_SECOND = 201


def test_a_message_that_falls_due_during_a_commit_wakes_once_it_can_be_read() -> None:
    """Until then a reader finds nothing, and would have waited for the next message."""
    house = House()
    queue = house.queue()
    house.append(queue, delay_seconds=5)
    watch = house.watch(queue, 1)
    waiting = house.wait(watch)
    house.pass_time(4)
    house.ids.open_group()
    house.pass_time(3)
    assert kept(waiting) == [False]
    house.ids.close_group()
    house.pass_time(0)
    assert kept(waiting) == [True]


class Turns:
    """The thread, in the test's hand: it rests as long as it would."""

    def __init__(self, house: House) -> None:
        self.house, self.looks = house, 0

    def until(self, seconds: float) -> None:
        clock, sooner = self.house.clock, self.house.waiters._thread._sooner
        end = clock.elapsed() + seconds
        sooner.clear()
        while clock.elapsed() < end:
            rest = self.house.waiters.tick()
            self.looks += 1
            if not sooner.is_set():
                clock.advance(min(rest, end - clock.elapsed()))
            sooner.clear()


def test_thousands_of_waits_end_one_by_one_in_few_looks() -> None:
    """Long polls of 5,000 clients end all the time: none may be late, nor may many end at once."""
    house, turns, late = House(limits={"max_waiters": 10_000}), None, list[float]()
    queue, turns = house.queue(partitions=1), Turns(house)
    for at in range(1, 501):
        ends = house.clock.elapsed() + at / 250
        wait = start(house.watch(queue, 1, readers=[APPLICATION]).wait(ends))
        wait.add_done_callback(lambda _, ends=ends: late.append(house.clock.elapsed() - ends))  # type: ignore[misc]

    turns.until(2.01)

    assert len(late) == 500
    assert max(late) <= LATE_SECONDS
    assert turns.looks <= 2.01 * LOOKS_A_SECOND


def test_messages_wake_a_reader_when_they_fall_due_however_many_are_near(house: House) -> None:
    queue, turns, late, begin = house.queue(partitions=1), Turns(house), list[float](), house.clock.elapsed()
    for at in range(1, 301):
        house.append(queue, delay_seconds=at / 300)
    watch, seen = house.watch(queue, 1), 0

    def go_on(_: Future[None]) -> None:
        nonlocal seen
        passed = house.clock.elapsed() - begin
        there = int(passed * 300 + 1e-6)
        late.extend(passed - (at + 1) / 300 for at in range(seen, there))
        seen = there
        watch.take_events()
        if seen < 300:
            house.wait(watch).add_done_callback(go_on)

    watch.take_events()
    house.wait(watch).add_done_callback(go_on)
    turns.until(1.01)

    assert len(late) == 300
    assert max(late) <= LATE_SECONDS
    assert turns.looks <= 2 * 1.01 * LOOKS_A_SECOND, "once more for what is found to be next"


def test_the_thread_rests_while_nothing_is_due(house: House) -> None:
    queue = house.queue()
    house.wait(house.watch(queue, 1), 20)
    turns = Turns(house)
    turns.until(19)
    assert turns.looks == 1


def test_the_thread_wakes_by_itself() -> None:
    """With the system's clock and the one thread there is: a wait ends without anybody's doing."""
    house = House()
    waiters = Waiters(house.store, house.clock, house.monitor, load_settings(None, {}, {}))
    try:
        watch = waiters.watch([(house.queue(), 1)], [USER], in_thread=False)
        wait = start(watch.wait(house.clock.elapsed() + 30))
        ended = threading.Event()
        wait.add_done_callback(lambda _: ended.set())
        house.clock.advance(30)
        other = waiters.watch([(house.queue(), 1)], [USER], in_thread=False)
        start(other.wait(house.clock.elapsed() + 0.01))

        assert ended.wait(30)
    finally:
        waiters.close()


def test_the_thread_outlives_a_failure(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader was told of anything by time any more, and no other server of messages here."""
    monkeypatch.setattr(due, "FAILED_LOOK_SECONDS", 0.0)
    house, again, failures = House(), threading.Event(), [ZeroDivisionError]

    def fail_once(_: Waiters) -> float:
        if failures:
            raise failures.pop()
        again.set()
        return 60.0

    monkeypatch.setattr(Waiters, "tick", fail_once)
    waiters = Waiters(house.store, house.clock, house.monitor, load_settings(None, {}, {}))
    try:
        watch = waiters.watch([(house.queue(), 1)], [USER], in_thread=False)
        start(watch.wait(house.clock.elapsed() + 30))

        assert again.wait(30)
        assert "ZeroDivisionError" in caplog.text
    finally:
        waiters.close()
