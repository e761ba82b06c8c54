"""How many messages a transaction passes over.

A receive comes to messages that it may not hand out: they are for another group, or their key is closed. There may be a
million of them, so a transaction passes over some, settles what is for others, and the next step goes on behind them.
"""

from __future__ import annotations

from typing import Protocol

from queuey.model import Columns

__all__ = ["MOST_PASSED_OVER", "PassesOver", "cost", "has_passed_enough", "most_together"]

MOST_PASSED_OVER = 5000
"""Messages that one transaction passes over; a KiB of them counts as one more."""
LEAST_TOGETHER = 64
"""Messages that are read together at least, so that each look at a partition comes to something."""


class PassesOver(Protocol):
    """A transaction."""

    passed_over: int
    """What it has passed over, as :func:`cost` counts it."""


def cost(passed_over: Columns) -> int:
    """How much messages count that are passed over."""
    return len(passed_over) + (passed_over.size >> 10)


def has_passed_enough(access: PassesOver) -> bool:
    """Whether the transaction has passed over as many messages as one does."""
    return access.passed_over >= MOST_PASSED_OVER


def most_together(access: PassesOver, most: int) -> int:
    """How many messages are read together, if all of them may be passed over."""
    return min(most, max(MOST_PASSED_OVER - access.passed_over, LEAST_TOGETHER))
