"""Arrivals: the rate that was asked for, the same each time, and all senders together."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import mean, pstdev

import pytest

from qdo.bench.arrivals import LoadPhase, drawn
from qdo.bench.clock import SECOND


def test_a_seed_gives_the_same_arrivals_and_another_seed_others() -> None:
    phases = [LoadPhase(10, 100)]

    first, again, other = (drawn(phases, "poisson", sender=0, senders=2, seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_constant_arrivals_of_all_senders_lie_evenly() -> None:
    moments = sorted(
        moment
        for sender in range(3)
        for moment in drawn([LoadPhase(2, 30)], "constant", sender=sender, senders=3, seed=1)
    )

    gaps = [after - before for before, after in pairwise(moments)]
    assert len(moments) == 60
    assert max(gaps) - min(gaps) <= 2


def test_poisson_arrivals_have_their_rate_and_its_spread() -> None:
    moments = drawn([LoadPhase(1000, 50)], "poisson", sender=0, senders=5, seed=3)

    gaps = [(after - before) / SECOND for before, after in pairwise(moments)]
    # 10,000 gaps: the mean and the deviation of an exponential distribution are alike, within four standard errors.
    assert abs(mean(gaps) - 0.1) < 0.004
    assert abs(pstdev(gaps) - 0.1) < 0.006


def test_phases_follow_each_other() -> None:
    moments = drawn([LoadPhase(1, 2), LoadPhase(1, 4)], "constant", sender=0, senders=1, seed=1)

    assert [moment / SECOND for moment in moments] == [0, 0.5, 1, 1.25, 1.5, 1.75]


@pytest.mark.parametrize("senders", [1, 8])
def test_gaps_of_poisson_arrivals_are_exponential_for_all_senders_together(senders: int) -> None:
    """By the test of Kolmogorov and Smirnov, at 1 %."""
    rate = 500
    moments = sorted(
        moment
        for sender in range(senders)
        for moment in drawn([LoadPhase(40, rate)], "poisson", sender=sender, senders=senders, seed=4)
    )
    shares = sorted(1 - math.exp(-rate * (later - one) / SECOND) for one, later in pairwise(moments))

    count = len(shares)
    distance = max(max((at + 1) / count - share, share - at / count) for at, share in enumerate(shares))
    assert distance < 1.628 / math.sqrt(count)
