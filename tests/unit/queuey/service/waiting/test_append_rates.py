from __future__ import annotations

import pytest

from queuey.clock import ManualClock
from queuey.service.waiting import append_rates
from queuey.service.waiting.append_rates import FORGET_SECONDS, MOST_APPLICATIONS, WINDOW_SECONDS, AppendRates


def test_messages_count_from_the_first_look_on() -> None:
    clock = ManualClock()
    rates = AppendRates(clock)
    rates.note("demo", "jobs", 100)
    assert rates.of("demo") == {}

    rates.note("demo", "jobs", 30)
    rates.note("demo", "mail", 10)
    rates.note("other", "mail", 10)
    clock.advance(10)

    assert rates.of("demo") == {"jobs": 3.0, "mail": 1.0}
    assert rates.of("other") == {}


def test_a_rate_is_of_the_last_minute_at_most() -> None:
    clock = ManualClock()
    rates = AppendRates(clock)
    rates.of("demo")
    rates.note("demo", "jobs", 300)
    clock.advance(WINDOW_SECONDS)
    rates.note("demo", "mail", 300)
    clock.advance(WINDOW_SECONDS / 2)
    both = rates.of("demo")
    clock.advance(WINDOW_SECONDS / 2)

    assert both == {"jobs": 300 / 45, "mail": 300 / 45}
    assert rates.of("demo") == {"mail": 10.0}
    clock.advance(WINDOW_SECONDS * 2)
    assert rates.of("demo") == {}


def test_what_nobody_looks_at_is_forgotten() -> None:
    clock = ManualClock()
    rates = AppendRates(clock)
    rates.of("demo")
    clock.advance(FORGET_SECONDS + 1)
    rates.note("demo", "jobs", 10)
    assert rates.of("demo") == {}
    rates.note("demo", "jobs", 10)

    for number in range(MOST_APPLICATIONS):
        rates.of(f"app{number}")

    assert rates.of("demo") == {}


def test_a_window_has_room_for_a_number_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_rates, "MOST_QUEUES", 2)
    rates = AppendRates(ManualClock())
    rates.of("demo")

    for name in ("a", "b", "c", "a"):
        rates.note("demo", name, 1)

    assert rates.of("demo") == {"a": 2.0, "b": 1.0}
