"""Runs next to each other, and what their figures say."""

from __future__ import annotations

import math
import mmap
import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class BenchFailed(Exception):
    """A run that says nothing: requests failed, answers were not what they must be."""


class Spread(NamedTuple):
    """A median and how far the runs lie apart."""

    middle: float
    least: float
    most: float

    def __str__(self) -> str:
        apart = "" if self.least == self.most else f" ({self.least:.2f}..{self.most:.2f})"
        return f"{self.middle:.2f}{apart}"


def spread(values: Sequence[float]) -> Spread:
    """
    >>> spread([3.0, 1.0, 2.0])
    Spread(middle=2.0, least=1.0, most=3.0)
    """
    return Spread(median(values), min(values), max(values))


def ratios(above: Sequence[float], below: Sequence[float]) -> Spread:
    """Of runs that lay next to each other: what slowed one slowed the other.

    The median of the ratios, not the ratio of the medians.

    >>> print(ratios([50, 100, 30], [100, 100, 100]))
    0.50 (0.30..1.00)
    """
    return spread([a / b for a, b in zip(above, below, strict=True)])


def alternate(baseline: Callable[[], T], subject: Callable[[], T], rounds: int) -> tuple[list[T], list[T]]:
    """Run both ``rounds`` times, each pair in the other order than the one before: a drift favours neither.

    >>> said = []
    >>> alternate(lambda: said.append("b"), lambda: said.append("s"), 2)
    ([None, None], [None, None])
    >>> "".join(said)
    'bssb'
    """
    below: list[T] = []
    above: list[T] = []
    for turn in range(rounds):
        pair = [(baseline, below), (subject, above)]
        for work, results in reversed(pair) if turn % 2 else pair:
            results.append(work())
    return below, above


def fetch_memory(size: int) -> None:
    """Have this machine's host give it this number of bytes of memory, or half of what is free, before anything is timed.

    Where free pages go back to the host, the next writer pays for them again: 3 MB at the end of a file took 8.6 ms, and
    0.8 once the pages were there. The first writer would pay for the later ones.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE
    with mmap.mmap(-1, max(min(size, free // 2), mmap.PAGESIZE)) as memory:
        for at in range(0, len(memory), mmap.PAGESIZE):
            memory[at] = 1


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that ``share`` of all values do not exceed.

    >>> percentile([1, 2, 3, 4], 0.5), percentile([1, 2, 3, 4], 0.99), percentile([7], 0.5)
    (2, 4, 7)
    """
    ranked = sorted(values)
    return ranked[max(math.ceil(share * len(ranked)) - 1, 0)]


def rate_of(work: Callable[[], int], seconds: float) -> float:
    """Things a second: ``work`` says how many it did, and is repeated until the time is up."""
    done, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        done += work()
    return done / took


def until(look: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait for a condition.

    :returns: how long it took.
    :raises BenchFailed: it does not come true in time.
    """
    began = time.perf_counter()
    while not look():
        if time.perf_counter() - began > seconds:
            raise BenchFailed(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.01)
    return time.perf_counter() - began


def is_quiet() -> bool:
    """Whether this process does nothing: what a store does on the side would count as the next measurement's cost."""
    began = time.process_time()
    time.sleep(0.25)
    return time.process_time() - began < 0.02
