"""The members of a worker group: what grows with them, and how."""

from __future__ import annotations

import pytest

from qdo.bench.simulation.outcome import SimulatedFigures
from qdo.bench.simulation.simulating import simulated_figures
from tests.support.simulated import costs, scenario


def crowd(members: int, **values: float) -> SimulatedFigures:
    return simulated_figures(scenario(members={"members": members, "ensemble": 5, **values}), costs())


def uses(found: SimulatedFigures) -> dict[str, float]:
    return {limit.name: limit.use for limit in found.limits}


def test_signs_of_life_and_the_plan_grow_with_the_members() -> None:
    few, many = uses(crowd(100)), uses(crowd(10_000))

    assert many["size of the plan"] == pytest.approx(100 * few["size of the plan"])
    # The leader takes 10 microseconds for each of 6,000 a second.
    assert 0.05 < many["signs of life"] < 0.07


def test_what_a_change_sends_grows_with_their_square() -> None:
    few, many = crowd(100).figures, crowd(1000).figures

    assert round(many["bytes sent for a change, MB"] / few["bytes sent for a change, MB"]) == 100


def test_a_leader_that_cannot_follow_is_said() -> None:
    found = crowd(200_000, session=10)

    assert uses(found)["signs of life"] > 1
