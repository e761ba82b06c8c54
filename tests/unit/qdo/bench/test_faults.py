"""Faults come at drawn moments, and are healed."""

from __future__ import annotations

from pathlib import Path

import pytest

from qdo.bench.clock import SECOND
from qdo.bench.faults import FaultMaker
from qdo.bench.systems.server import StartedServer
from qdo.bench.workload import Killing
from tests.support.bench_by_clock import CountingClock


class RecordedServer(StartedServer):
    """Writes down what is done to it."""

    def __init__(self) -> None:
        super().__init__(Path("none"))
        self.done: list[str] = []

    def start(self) -> None:
        self.done.append("start")

    def kill(self) -> None:
        self.done.append("kill")

    def pause(self) -> None:
        self.done.append("pause")

    def resume(self) -> None:
        self.done.append("resume")


@pytest.mark.parametrize(("kind", "back"), [("kill", "start"), ("pause", "resume")])
def test_a_server_fails_by_its_mean_times_and_comes_back(kind: str, back: str) -> None:
    clock, server = CountingClock(), RecordedServer()
    breaker = FaultMaker(server, Killing(mttf=10, mttr=2, signal=kind), 1, clock)  # type: ignore[arg-type]

    end = clock.now() + 2000 * SECOND
    while clock.now() < end:
        breaker(True)
        clock.sleep_until(clock.now() + SECOND // 50)
    breaker.heal()

    times = server.done.count(kind)
    # A cycle takes 12 s on average, so there are some 167; four standard deviations are 43.
    assert 120 < times < 215
    assert server.done == [kind, back] * times
    assert len(breaker.done) == 2 * times


def test_a_server_that_is_down_comes_back_when_all_is_sent_and_stays_up() -> None:
    clock, server = CountingClock(), RecordedServer()
    breaker = FaultMaker(server, Killing(mttf=10, mttr=1000), 1, clock)
    breaker(True)
    clock.sleep_until(clock.now() + 1000 * SECOND)
    breaker(True)

    for _ in range(3):
        breaker(False)
        clock.sleep_until(clock.now() + 1000 * SECOND)

    assert server.done == ["kill", "start"]


def test_no_server_fails_before_the_load_has_begun() -> None:
    clock, server = CountingClock(), RecordedServer()
    breaker = FaultMaker(server, Killing(mttf=10, mttr=1000), 1, clock)
    clock.sleep_until(clock.now() + 1000 * SECOND)

    breaker(True)

    assert server.done == []


def test_a_server_that_is_up_is_not_healed() -> None:
    server = RecordedServer()

    FaultMaker(server, Killing(mttf=10), 1, CountingClock()).heal()

    assert server.done == []
