"""The two times: the wall clock, which may be stepped, and the time that passes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.clock import Clock, ManualClock, SystemClock
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, format_timestamp

CLOCKS = [SystemClock(), ManualClock()]


def test_the_system_clock_tells_the_machines_time() -> None:
    before = time.time_ns() // 100
    ticks = SystemClock().now_ticks()
    after = time.time_ns() // 100

    assert before <= ticks - EPOCH_TICKS <= after


def test_a_tick_is_a_tenth_of_a_microsecond() -> None:
    clock = ManualClock(EPOCH_TICKS + 1_795_236_650 * TICKS_PER_SECOND + 1)

    assert format_timestamp(clock.now_ticks()) == "1795236650.0000001"


def test_the_system_counts_from_boot_what_every_process_counts() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    elapsed = [SystemClock().elapsed() for _ in range(100)]

    assert elapsed == sorted(elapsed)
    assert before <= elapsed[0]
    assert elapsed[-1] <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert SystemClock().boot() == SystemClock().boot() != ""


def test_a_machine_that_names_no_boot_compares_with_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("queuey.clock._BOOT_ID", tmp_path / "absent")

    assert SystemClock().boot() == ""


@given(st.lists(st.floats(0, 1e6, allow_nan=False), max_size=10))
def test_time_that_passes_passes_on_both_clocks(seconds: list[float]) -> None:
    clock = ManualClock()
    ticks, elapsed = clock.now_ticks(), clock.elapsed()

    for some in seconds:
        clock.advance(some)

    assert abs(clock.now_ticks() - ticks - sum(seconds) * TICKS_PER_SECOND) <= len(seconds) + 1
    assert clock.elapsed() - elapsed == pytest.approx(sum(seconds))


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 0.0000001])
def test_a_step_moves_the_wall_clock_alone(seconds: float) -> None:
    clock = ManualClock()
    ticks, elapsed = clock.now_ticks(), clock.elapsed()

    clock.step(seconds)

    assert clock.now_ticks() - ticks == round(seconds * TICKS_PER_SECOND)
    assert clock.elapsed() == elapsed


def test_a_manual_clock_stands_still_by_itself() -> None:
    clock = ManualClock()

    assert {(clock.now_ticks(), clock.elapsed(), clock.boot()) for _ in range(1000)} == {
        (clock.now_ticks(), clock.elapsed(), "manual")
    }


@pytest.mark.parametrize("clock", CLOCKS, ids=["system", "manual"])
def test_clocks_tell_ticks_that_ids_can_hold(clock: Clock) -> None:
    assert EPOCH_TICKS < clock.now_ticks() < 1 << 60
    assert isinstance(clock.now_ticks(), int)
