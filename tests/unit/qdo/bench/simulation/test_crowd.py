"""Receivers of one queue, against what can be computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from qdo.bench.simulation.costs import CostLevel, OperationCost
from qdo.bench.simulation.outcome import SimulatedFigures
from qdo.bench.simulation.simulating import simulated_figures
from tests.support.simulated import costs, scenario

FIXED, EACH = 0.010, 0.001
LEVELS = [CostLevel(n, 0.0, 0.0, 0.0, FIXED + n * EACH) for n in (1, 4, 16)]


def crowd(seed: int = 1, network: float = 0.0, **group: Any) -> SimulatedFigures:
    small = scenario(seed=seed, machines={"network": network}, group={"messages": 2000, **group})
    return simulated_figures(small, costs(receive=OperationCost(LEVELS)))


@pytest.mark.parametrize("receivers", [1, 8, 32, 200])
def test_requests_that_wait_share_a_transaction(receivers: int) -> None:
    found = crowd(receivers=receivers, messages=20_000)

    # Those that wait go together, 64 at most; those that were just answered come back for the transaction after the next.
    together = min(receivers, 64)
    assert found.figures["requests/s"] == pytest.approx(together / (FIXED + together * EACH), rel=0.05)
    assert found.figures["duplicates, %"] == found.figures["disorder, %"] == 0


def test_servers_of_an_exact_group_share_its_transactions_at_its_home() -> None:
    alone, spread = crowd(receivers=12), crowd(receivers=12, servers=12)
    assert alone.figures["requests of a transaction"] > 10
    assert spread.figures == alone.figures
    assert spread.limits[0].use > 0.99
    # One receiver of another server: its step passes two networks each way.
    single = crowd(receivers=2, servers=2, network=0.1, messages=200, batch=1).figures["requests/s"]
    assert single == pytest.approx(1 / (0.2 + FIXED + EACH) + 1 / (0.4 + FIXED + EACH), rel=0.05)


def test_handing_over_takes_processors_of_a_shared_machine_and_time_on_machines_of_their_own() -> None:
    group = {"receivers": 12, "messages": 20_000}
    levels = [CostLevel(n, 0.002, 0.001, 0.001, FIXED + n * EACH) for n in (1, 4, 16)]

    def rate(servers: int, shared: int, handed: float = 0.002, network: float = 0.0, **others: Any) -> float:
        machines = {"network": network, "shared": shared}
        small = scenario(machines=machines, group={**group, "servers": servers, **others})
        return simulated_figures(small, costs(receive=OperationCost(levels), handed=handed)).figures["requests/s"]

    assert rate(1, 2) == rate(1, 0)
    # Eight of twelve requests cost half as much again, of processors that have work all the time.
    assert rate(3, 2) == pytest.approx(rate(1, 2) / (1 + 2 / 3 / 2), rel=0.02)
    # Two receivers, one of which waits for the other server, too.
    single = rate(2, 0, handed=0.2, network=0.1, receivers=2, messages=200, batch=1)
    assert single == pytest.approx(1 / (0.2 + FIXED + EACH) + 1 / (0.6 + FIXED + EACH), rel=0.05)


@pytest.mark.parametrize(("servers", "k"), [(3, 1), (3, 3), (3, 10), (8, 8)])
def test_random_picks_meet_as_often_as_chance_says(servers: int, k: int) -> None:
    """Servers that pick at one moment, as in the BDQS paper: c of them get K (1 - (1 - 1/K)^c) different messages."""
    shares = [
        crowd(seed, receivers=servers, servers=servers, exact=False, k=k, batch=1).figures["duplicates, %"] / 100
        for seed in range(3)
    ]

    distinct = k * (1 - (1 - 1 / k) ** servers)
    # A receipt is one of n trials that is no duplicate with this chance.
    expected, trials = distinct / servers, 3 * 2000 * servers / distinct
    off = 3.3 * (expected * (1 - expected) / trials) ** 0.5 + 0.01
    assert 1 - sum(shares) / 3 == pytest.approx(expected, abs=off)


def test_a_larger_k_repeats_less_and_disorders_more() -> None:
    found = [crowd(receivers=6, servers=3, exact=False, k=k, batch=1).figures for k in (1, 10, 100)]

    duplicates, moved = ([one[name] for one in found] for name in ("duplicates, %", "displacement"))
    assert duplicates == sorted(duplicates, reverse=True)
    assert moved == sorted(moved)


def test_shares_repeat_less_than_any_k_with_the_same_disorder() -> None:
    shared = crowd(receivers=6, servers=3, exact=False, k="auto", batch=1).figures
    picked = crowd(receivers=6, servers=3, exact=False, k=24, batch=1).figures

    assert shared["duplicates, %"] < picked["duplicates, %"] / 2
    assert shared["displacement"] < 2 * picked["displacement"]


def test_a_hot_key_goes_one_message_after_the_other() -> None:
    found = crowd(receivers=20, batch=10, work=0.02, keys=50, hot=0.5)

    # Half of the messages have one key. Between two of them lie the work on the batch and two transactions.
    limit = found.limits[0]
    assert limit.name == "order of the busiest key"
    assert limit.use > 0.9
    assert found.figures["messages/s"] < 2 / 0.02 * 1.2
    several = crowd(receivers=20, batch=10, work=0.02, keys=50, hot=0.5, per_key=10)
    assert several.figures["messages/s"] > 1.2 * found.figures["messages/s"]


def test_all_messages_of_all_keys_come_once() -> None:
    found = crowd(receivers=20, batch=3, keys=500)

    assert found.figures["duplicates, %"] == 0
