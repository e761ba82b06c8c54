from __future__ import annotations

from uuid import UUID

import pytest

from queuey.clock import ManualClock
from queuey.ids import MessageId
from queuey.model import Location, Queue
from queuey.service.waiting import append_rates
from queuey.service.waiting.append_rates import (
    FORGET_SECONDS,
    MOST_APPLICATIONS,
    MOST_LOOKED_AT,
    WINDOW_SECONDS,
    AppendRates,
)


def queue(application: str, name: str) -> Queue:
    return Queue(application, name, UUID(int=1), 0, partitions=3)


def of(application: str, name: str, messages: int, partition: int = 1) -> tuple[Queue, list[Location]]:
    """What a queue got."""
    return queue(application, name), [Location(partition, MessageId(tick, 0)) for tick in range(messages)]


def test_messages_count_from_the_first_look_on() -> None:
    clock = ManualClock()
    rates = AppendRates(clock)
    rates.note(*of("demo", "jobs", 100))
    assert rates.of("demo") == {}

    rates.note(*of("demo", "jobs", 30))
    rates.note(*of("demo", "mail", 10))
    rates.note(*of("other", "mail", 10))
    clock.advance(10)

    assert rates.of("demo") == {"jobs": 3.0, "mail": 1.0}
    assert rates.of("other") == {}


def test_a_rate_is_of_the_last_minute_at_most() -> None:
    clock = ManualClock()
    rates = AppendRates(clock)
    rates.of("demo")
    rates.note(*of("demo", "jobs", 300))
    clock.advance(WINDOW_SECONDS)
    rates.note(*of("demo", "mail", 300))
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
    rates.note(*of("demo", "jobs", 10))
    assert rates.of("demo") == {}
    rates.note(*of("demo", "jobs", 10))

    for number in range(MOST_APPLICATIONS):
        rates.of(f"app{number}")

    assert rates.of("demo") == {}


def test_a_window_has_room_for_a_number_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_rates, "MOST_QUEUES", 2)
    rates = AppendRates(ManualClock())
    rates.of("demo")

    for name in ("a", "b", "c", "a"):
        rates.note(*of("demo", name, 1))

    assert rates.of("demo") == {"a": 2.0, "b": 1.0}


def test_partitions_are_counted_where_somebody_looks_at_their_queue() -> None:
    clock = ManualClock()
    rates = AppendRates(clock)
    jobs = queue("demo", "jobs")
    rates.note(*of("demo", "jobs", 5))
    assert rates.of_partitions(jobs) is None

    rates.note(*of("demo", "jobs", 30))
    rates.note(*of("demo", "jobs", 10, partition=3))
    rates.note(*of("demo", "mail", 10))
    clock.advance(10)

    assert rates.of_partitions(jobs) == {1: 3.0, 3: 1.0}
    assert rates.of("demo") == {}
    for number in range(MOST_LOOKED_AT):
        rates.of_partitions(queue("demo", f"q{number}"))
    assert rates.of_partitions(jobs) is None
