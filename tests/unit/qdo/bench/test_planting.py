"""What is planted is found: the judge is proven before anything else is believed."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from qdo.bench.bodies import NO_KEY
from qdo.bench.clock import SECOND
from qdo.bench.judge import judged
from qdo.bench.planting import EVERY, FIGURE_OF, Plant, Planting
from qdo.bench.records import STORED, ReceivedRow, SentRow
from qdo.bench.unsettled import Quiet
from qdo.bench.verdict import FOUND, NOT_TRUSTED, exit_code, unfound
from tests.support.bench_by_clock import run_by_clock, workload_of

MESSAGES = 10_000


@pytest.mark.parametrize("plant", get_args(Plant))
def test_each_planted_fault_is_found(plant: Plant) -> None:
    keys = {"count": 4} if plant == "overtake" else None
    workload = workload_of(producerRate=1000, seconds=2, receiving={"batch": 20}, keys=keys)

    repeat = run_by_clock(workload, plant=plant)

    assert repeat.planted >= 2000 / EVERY * 0.9
    assert repeat.findings.counts[FIGURE_OF[plant]] == repeat.planted
    assert exit_code([repeat], workload.queuey.expect, plant) == FOUND


@pytest.mark.parametrize("plant", get_args(Plant))
def test_one_fault_in_a_hundred_thousand_is_found(plant: Plant) -> None:
    """Each message is received a moment after it was sent, and its lease is over after a second."""
    messages, step = 100_010, 10_000
    written: list[ReceivedRow] = []
    planting = Planting(plant, written.append, every=100_000)
    for number in range(messages):
        at = number * step
        planting.write(
            ReceivedRow(0, 0, 0, number, 7, 0, at, at, at, at, at + 10, at + SECOND, settled=at + 20, settling=at + 15)
        )
    planting.end()
    workload = workload_of(seconds=2, receiving={"visibility": 1, "wait": 0})
    quiet = Quiet(messages * step, messages * step + 10 * SECOND, {})

    found = judged(workload, [SentRow(0, at, 10, STORED, 0, 0, 0, 0) for at in range(0, messages, 10)], written, quiet)

    assert planting.planted == 1
    assert found.counts[FIGURE_OF[plant]] == 1


def test_messages_that_are_swapped_come_before_their_time_no_more_than_they_did() -> None:
    """Each is received a moment after it was sent."""
    written: list[ReceivedRow] = []
    planting = Planting("swap", written.append)
    for number in range(100):
        sent = number * 1000
        planting.write(
            ReceivedRow(
                0, 0, 0, number, NO_KEY, 0, sent, sent, sent, sent, sent + 10, held_until=0, settled=0, settling=0
            )
        )
    planting.end()

    assert planting.planted == 1
    assert [row.number for row in written] == [*range(49), 50, 49, *range(51, 100)]
    assert all(row.arrived >= row.not_before for row in written)


@pytest.mark.parametrize("plant", ["dup", "overlap"])
def test_nothing_is_planted_where_it_would_be_excused(plant: Plant) -> None:
    """Of every third message the answer took longer than the lease, so it may have been over."""
    written: list[ReceivedRow] = []
    planting = Planting(plant, written.append, every=3)
    for number in range(9):
        at = number * 10 * SECOND
        arrived = at + (2 * SECOND if number % 3 == 2 else 10)
        planting.write(
            ReceivedRow(
                0, 0, 0, number, NO_KEY, 0, at, at, at, at, arrived, at + SECOND, settled=arrived, settling=arrived
            )
        )
    workload = workload_of(seconds=2, receiving={"visibility": 1, "wait": 5})

    found = judged(workload, [SentRow(0, 0, 9, STORED, 0, 0, 0, 0)], written)

    assert planting.planted > 0
    assert found.counts[FIGURE_OF[plant]] == planting.planted


def test_without_a_plant_nothing_is_found() -> None:
    workload = workload_of(producerRate=1000, seconds=2)

    repeat = run_by_clock(workload)

    assert sum(repeat.findings.counts.values()) == 0
    assert repeat.findings.distinct == 2000


def test_a_judge_that_finds_less_than_was_planted_is_not_trusted() -> None:
    workload = workload_of(producerRate=1000, seconds=1)
    repeat = run_by_clock(workload, plant="lose")
    repeat.findings.counts["lost"] -= 1

    assert unfound([repeat], "lose")
    assert exit_code([repeat], workload.queuey.expect, "lose") == NOT_TRUSTED


@pytest.mark.parametrize(("option", "kind"), [("lose", "lost"), ("repeat", "duplicates"), ("swap", "out_of_order")])
@pytest.mark.parametrize("rate", [0.002, 0.05])
def test_a_planted_rate_is_found_within_its_interval(option: str, kind: str, rate: float) -> None:
    workload = workload_of(
        producerRate=10_000, seconds=MESSAGES / 10_000, receiving={"mode": "pop", "batch": 1000}, seed=5
    )

    repeat = run_by_clock(workload, "faulty", {option: str(rate)})

    low, high = interval(repeat.findings.counts[kind], MESSAGES)
    # A pair that was swapped is passed over, so that each swap moves one message.
    expected = rate / (1 + rate) if option == "swap" else rate
    assert low <= expected <= high
    others = {name: count for name, count in repeat.findings.counts.items() if count and name != kind}
    assert others == {}


def interval(found: int, of: int) -> tuple[float, float]:
    """Wilson's interval for a share, which holds the true one 999 times in 1,000."""
    z, share = 3.29, found / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return middle - half, middle + half
