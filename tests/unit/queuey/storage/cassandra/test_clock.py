"""How wrong a clock may be, and the times that writes carry (G3, rule 4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.clock import ManualClock
from queuey.errors import ClockUnsafe
from queuey.ids import TICKS_PER_SECOND
from queuey.storage.cassandra.clock import SAMPLE_SECONDS, ClockGuard, WriteTimes

BOUND = 0.25


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def guard(clock: ManualClock) -> ClockGuard:
    return ClockGuard(clock, BOUND)


def hear(
    guard: ClockGuard, clock: ManualClock, *, node: object = "node", ahead: float = 0.0, trip: float = 0.002
) -> None:
    """One round trip to a node whose clock is ahead of ours by so much, and which looks at it half-way."""
    asked = clock.elapsed()
    clock.advance(trip / 2)
    node_ticks = clock.now_ticks() + round(ahead * TICKS_PER_SECOND)
    clock.advance(trip / 2)
    guard.learn(node, node_ticks, asked, clock.elapsed())


def test_nothing_is_safe_before_a_node_was_heard(guard: ClockGuard) -> None:
    with pytest.raises(ClockUnsafe, match="no Cassandra node has told its time"):
        guard.check()

    assert guard.error_seconds() == float("inf")
    assert guard.refused == 1
    assert guard.problem() == "no Cassandra node has answered lately"


def test_with_equal_clocks_the_error_is_the_doubt_of_half_a_round_trip(guard: ClockGuard, clock: ManualClock) -> None:
    hear(guard, clock, trip=0.004)

    guard.check()
    assert guard.error_seconds() == pytest.approx(0.002)
    assert guard.problem() is None


@pytest.mark.parametrize("seconds", [0.3, -0.3, 3600, -3600])
def test_a_step_of_the_clock_shows_at_once_and_passes_by_itself(
    guard: ClockGuard, clock: ManualClock, seconds: float
) -> None:
    hear(guard, clock)

    clock.step(seconds)

    with pytest.raises(ClockUnsafe, match=r"more than the 0\.250 s allowed: nothing was stored"):
        guard.check()
    assert "set the clock right" in str(guard.problem())
    clock.step(-seconds)
    guard.check()
    assert guard.refused == 1


def test_a_clock_that_was_wrong_before_the_first_look_is_seen(guard: ClockGuard, clock: ManualClock) -> None:
    hear(guard, clock, ahead=-0.4)

    with pytest.raises(ClockUnsafe, match=r"may be 0\.40[0-9] s off"):
        guard.check()


def test_one_nodes_bad_clock_stops_nobody_and_two_of_three_do(guard: ClockGuard, clock: ManualClock) -> None:
    for node in ("a", "b", "c"):
        hear(guard, clock, node=node)

    hear(guard, clock, node="c", ahead=3600)
    guard.check()
    hear(guard, clock, node="b", ahead=3600)

    with pytest.raises(ClockUnsafe):
        guard.check()


def test_the_error_grows_while_no_node_is_heard_and_ends_in_not_knowing(guard: ClockGuard, clock: ManualClock) -> None:
    hear(guard, clock)
    before = guard.error_seconds()

    clock.advance(2 * SAMPLE_SECONDS)
    later = guard.error_seconds()
    clock.advance(3600)

    assert before < later < BOUND
    assert guard.error_seconds() == float("inf")


def test_a_slow_answer_tells_less_than_the_quick_one_before_it(guard: ClockGuard, clock: ManualClock) -> None:
    hear(guard, clock, trip=0.002)
    clock.advance(SAMPLE_SECONDS)

    hear(guard, clock, trip=1.0)

    assert guard.error_seconds() < 0.01


def test_a_slow_answer_is_better_than_none(guard: ClockGuard, clock: ManualClock) -> None:
    hear(guard, clock, trip=0.4)
    assert guard.error_seconds() == pytest.approx(0.2)
    clock.advance(20)
    hear(guard, clock, trip=0.4)

    assert guard.error_seconds() == pytest.approx(0.2)


def test_a_node_that_only_answers_slowly_is_always_known(guard: ClockGuard, clock: ManualClock) -> None:
    """Its last quick answer counts until it is old; then a slow one takes its place, before nothing is known."""
    hear(guard, clock, trip=0.002)

    for _ in range(30):
        clock.advance(SAMPLE_SECONDS)
        guard.check()
        hear(guard, clock, trip=0.3)
        guard.check()

    assert guard.error_seconds() == pytest.approx(0.15, abs=0.01)


@given(ahead=st.floats(-5, 5), there=st.floats(0, 0.5), back=st.floats(0, 0.5), step=st.floats(-5, 5))
def test_a_clock_is_never_further_off_than_told(ahead: float, there: float, back: float, step: float) -> None:
    """However the round trip divides into the way there and the way back."""
    clock = ManualClock()
    guard = ClockGuard(clock, BOUND)
    asked = clock.elapsed()
    clock.advance(there)
    node_ticks = clock.now_ticks() + round(ahead * TICKS_PER_SECOND)
    clock.advance(back)
    guard.learn("node", node_ticks, asked, clock.elapsed())

    clock.step(step)

    assert guard.error_seconds() >= abs(step - ahead) - 1e-6


Call = Callable[[WriteTimes], int]
CALLS: list[Call] = [WriteTimes.append, WriteTimes.put, WriteTimes.delete]


@given(st.lists(st.tuples(st.sampled_from(CALLS), st.floats(-2, 2)), min_size=2, max_size=30))
def test_what_undoes_a_write_is_dated_after_it_however_the_clock_is_stepped(
    calls: list[tuple[Call, float]],
) -> None:
    """In one process: an overwrite or a deletion beats all that came before. Equal dates: Cassandra lets a deletion win."""
    clock = ManualClock()
    times = WriteTimes(clock, BOUND)
    made: list[tuple[Call, int]] = []
    for call, step in calls:
        clock.step(step)
        over = max((earlier for kind, earlier in made if kind is not WriteTimes.append), default=0)
        date = times.put(over=over) if call is WriteTimes.put else call(times)
        if call is not WriteTimes.append:
            beaten = [earlier for kind, earlier in made if call is WriteTimes.put or kind is not WriteTimes.delete]
            same = [earlier for kind, earlier in made if kind is call]
            assert all(date >= earlier for earlier in beaten)
            others = [earlier for kind, earlier in made if kind is not call and kind is not WriteTimes.append]
            assert all(date > earlier for earlier in others)
            assert call is WriteTimes.delete or all(date > earlier for earlier in same)
        made.append((call, date))


@given(
    first=st.floats(-BOUND, BOUND),
    second=st.floats(-BOUND, BOUND),
    writes=st.sampled_from([WriteTimes.append, WriteTimes.put]),
    passed=st.floats(0.000_002, 10),
)
def test_a_deletion_beats_an_earlier_write_of_any_server_whose_clock_is_within_the_bound(
    first: float, second: float, writes: Call, passed: float
) -> None:
    clocks = [ManualClock(), ManualClock()]
    for clock, off in zip(clocks, (first, second), strict=True):
        clock.step(off)
    one, other = (WriteTimes(clock, BOUND) for clock in clocks)

    written = writes(one)
    for clock in clocks:
        clock.advance(passed)

    assert other.delete() >= written
    if writes is WriteTimes.append:
        assert other.put() >= written


def test_an_overwrite_tried_again_is_dated_later_than_any_deletion_could_be() -> None:
    clock = ManualClock()
    here, there = WriteTimes(clock, BOUND), WriteTimes(clock, BOUND)

    tries = [here.put(attempt) for attempt in range(3)]

    assert tries == sorted(set(tries))
    assert tries[1] > there.delete()


def test_an_overwrite_waits_for_no_clock_that_was_set_back_by_an_hour() -> None:
    """It waited for the hour, with its client; calls of a server whose clock is that wrong are refused."""
    clock = ManualClock()
    times = WriteTimes(clock, BOUND)
    before = times.put()
    clock.step(-3600)

    assert 0 < times.seconds_ahead(times.put(over=before)) <= 10 * BOUND


def test_a_deletion_while_the_clock_is_wrong_dates_no_later_one() -> None:
    """Deletions were dated an hour ahead for an hour, and hid all overwrites of other servers."""
    clock = ManualClock()
    times = WriteTimes(clock, BOUND)
    clock.step(3600)
    times.delete()
    clock.step(-3600)

    assert times.delete() == WriteTimes(clock, BOUND).delete()


def test_a_node_whose_clock_is_off_those_of_the_others_is_named(guard: ClockGuard, clock: ManualClock) -> None:
    """It stops no server, and no figure of a server shows it."""
    assert guard.strays() == []
    for node, ahead in (("one", 0.0), ("two", 0.1), ("three", 5.0)):
        hear(guard, clock, node=node, ahead=ahead)

    guard.check()
    (said,) = guard.strays()
    assert said.startswith("the clock of the Cassandra node three is +4.9")
    for _ in range(10):  # a slow answer says less than the one before
        hear(guard, clock, node="three", ahead=0.2, trip=0.5)
        clock.advance(SAMPLE_SECONDS)
    assert guard.strays() == []
