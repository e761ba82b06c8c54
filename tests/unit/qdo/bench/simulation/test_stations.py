"""A station against queueing theory. Chance is seeded, so a run that passes passes again."""

from __future__ import annotations

import random
from collections.abc import Generator

import pytest
import simpy

from qdo.bench.simulation.stations import Station
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
