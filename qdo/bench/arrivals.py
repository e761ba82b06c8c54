"""When messages are due: drawn from the seed before the load begins.

A sender that falls behind does not change what is due: a slow server cannot slow the load that it is measured by.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from qdo.bench.clock import SECOND

Arrivals = Literal["constant", "poisson"]


class LoadPhase(NamedTuple):
    """A part of the run with one rate."""

    seconds: float
    rate: float
    """Requests a second of all senders together; 0 is a closed loop: each sends its next one after the answer."""


def drawn(phases: Sequence[LoadPhase], arrivals: Arrivals, *, sender: int, senders: int, seed: int) -> array[int]:
    """Nanoseconds from the start at which a sender's requests are due, rising.

    Each sender has its share of the rate. Constant arrivals of the senders lie evenly between each other.

    >>> list(drawn([LoadPhase(1, 4)], "constant", sender=1, senders=2, seed=1))
    [250000000, 750000000]
    """
    chance = random.Random(f"{seed}/{sender}")  # noqa: S311 -- repeatable, not secret
    found = array("q")
    begin = 0.0
    for phase in phases:
        if phase.rate:
            gaps = _constant(phase, sender, senders) if arrivals == "constant" else _poisson(phase, senders, chance)
            found.extend(int((begin + at) * SECOND) for at in gaps)
        begin += phase.seconds
    return found


def _constant(phase: LoadPhase, sender: int, senders: int) -> Iterator[float]:
    count = int(phase.seconds * phase.rate)
    return (turn / phase.rate for turn in range(sender, count, senders))


def _poisson(phase: LoadPhase, senders: int, chance: random.Random) -> Iterator[float]:
    at = chance.expovariate(phase.rate / senders)
    while at < phase.seconds:
        yield at
        at += chance.expovariate(phase.rate / senders)
