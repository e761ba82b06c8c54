"""A station against queueing theory. Chance is seeded, so a run that passes passes again."""

from __future__ import annotations

import random
from collections.abc import Generator

import pytest
import simpy

from qdo.bench.simulation.stations import EventLoop, SharedProcessors, SharedThread, Station, Steps
from tests.support.simulated import interval, mean_wait

SERVICE = 0.01
RUNS, CUSTOMERS = 20, 1500


def waited(rate: float, processors: int, seed: int) -> float:
    """The mean wait of Poisson arrivals with exponential service, all after the first fifth."""
    env, chance = simpy.Environment(), random.Random(seed)
    station = Station(env, processors)
    before = [0.0, 0]

    def arrivals() -> Generator[simpy.Event, None, None]:
        for number in range(CUSTOMERS):
            yield env.timeout(chance.expovariate(rate))
            if number == CUSTOMERS // 5:
                before[:] = [station.waited, station.served]
            station.reserve(chance.expovariate(1 / SERVICE))

    env.process(arrivals())
    env.run()
    return (station.waited - before[0]) / (station.served - before[1])


@pytest.mark.parametrize(("processors", "load"), [(1, 0.5), (1, 0.7), (3, 0.7), (8, 0.7)])
def test_waits_are_those_of_queueing_theory(processors: int, load: float) -> None:
    rate = load * processors / SERVICE

    mean, off = interval([waited(rate, processors, seed) for seed in range(RUNS)])

    assert abs(mean - mean_wait(rate, SERVICE, processors)) < off
    assert off < 0.5 * mean, "an interval as wide as this would hold anything"


def test_work_begins_in_the_order_of_arrival() -> None:
    env = simpy.Environment()
    station = Station(env, 2)

    assert [station.reserve(seconds) for seconds in (3.0, 1.0, 1.0, 1.0)] == [3.0, 1.0, 2.0, 3.0]
    assert station.busy_share(4.0) == 6 / 8


def test_a_warm_up_does_not_count_as_busy() -> None:
    env = simpy.Environment()
    station = Station(env, 1, since=2.0)
    station.reserve(3.0)

    assert station.busy_share(4.0) == 0.5


def test_an_event_comes_when_the_work_is_done() -> None:
    env = simpy.Environment()
    station = Station(env, 1)
    moments = []

    def customer() -> Generator[simpy.Event, None, None]:
        yield station.serve(2.0)
        moments.append(env.now)

    env.process(customer())
    env.process(customer())
    env.run()

    assert moments == [2.0, 4.0]


def ends(processors: int, *threads: tuple[float, float]) -> list[float]:
    """When threads end that begin at these moments with this much work."""
    env = simpy.Environment()
    machine, found = SharedProcessors(env, processors), [0.0] * len(threads)

    def work(at: int, begin: float, seconds: float) -> Steps:
        yield env.timeout(begin)
        yield from machine.work(SharedThread(), seconds)
        found[at] = env.now

    for at, (begin, seconds) in enumerate(threads):
        env.process(work(at, begin, seconds))
    env.run()
    assert machine.busy_share(max(found)) <= 1
    return found


def test_threads_share_processors_evenly() -> None:
    assert ends(1, (0, 0.1), (0, 0.1), (0, 0.1)) == pytest.approx([0.3] * 3, abs=0.003)
    assert ends(2, (0, 0.1), (0, 0.1), (0, 0.1)) == pytest.approx([0.15] * 3, abs=0.003)
    assert ends(2, (0, 0.1), (0, 0.3)) == pytest.approx([0.1, 0.3]), "no thread has two processors"


def test_a_thread_that_slept_goes_first_and_saves_nothing_up() -> None:
    assert ends(1, (0, 1.0), (0.5, 0.002)) == pytest.approx([1.002, 0.503], abs=0.002)
    busy, late = ends(1, (0, 1.0), (0.5, 0.4))
    assert (busy, late) == pytest.approx((1.4, 1.3), abs=0.01), "from its wake-up on both have half"


def test_an_event_loop_takes_in_a_turn_all_that_has_come() -> None:
    env = simpy.Environment()
    loop = EventLoop(env, SharedProcessors(env, 1), 0.01)
    seen: list[tuple[float, int]] = []

    def ask(begin: float, asks: bool) -> Steps:
        yield env.timeout(begin)
        together = yield loop.take(0.1, asks=asks)
        seen.append((round(env.now, 6), together))

    for begin, asks in ((0.0, True), (0.05, True), (0.06, False), (0.07, True)):
        env.process(ask(begin, asks))
    env.run()

    assert seen == [(0.11, 1), (0.42, 2), (0.42, 2), (0.42, 2)]
