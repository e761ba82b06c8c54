"""The settings that decide what a lease group hands out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from queuey.ids import TICKS_PER_SECOND, MessageId

__all__ = ["Backoff", "LeaseRules", "Share"]


class Backoff(NamedTuple):
    """How long a message waits after a failure."""

    first: float = 1.0
    """Seconds after the first failure."""
    factor: float = 2.0
    """How much longer it waits after each further failure."""
    most: float = 3600.0
    """Seconds."""
    jitter: float = 0.1
    """The share by which a wait is longer or shorter at random, so that messages that failed together come apart."""

    def ticks(self, failures: int, chance: float) -> int:
        """The wait after the n-th failure.

        :param failures: the number n, at least 1.
        :param chance: a random number from 0 to 1.

        >>> [Backoff(jitter=0).ticks(failures, 0.5) // TICKS_PER_SECOND for failures in (1, 2, 3, 60)]
        [1, 2, 4, 3600]
        """
        seconds = min(self.first * self.factor ** min(failures - 1, 64), self.most)
        return round(seconds * (1 + self.jitter * (2 * chance - 1)) * TICKS_PER_SECOND)


class Share(NamedTuple):
    """The part of a partition's messages that one of several servers hands out before the others do."""

    servers: int
    """How many share them."""
    rank: Callable[[MessageId], int]
    """This server's rank for a message among them: 0 if the message is in its part. Servers that know of each other have
    different ranks."""
    is_free: Callable[[MessageId, int], bool] = lambda message_id, rank: True
    """Whether a message of this rank was left to the others for long enough. If none of the first ``k`` messages is in this
    server's part, a receive hands out those that are free: the servers of the rest may be about to."""


class LeaseRules(NamedTuple):
    """The settings of a group that decide what is handed out."""

    max_failures: int = 20
    """After this many failures a message is given up; 0 for never."""
    backoff: Backoff = Backoff()
    orders_keys: bool = False
    """While a message of a key is out or waits, no other of that key is handed out."""
    per_key: int = 1
    """Messages of a key in one receive, if the group orders keys."""
    k: int = 1
    """A receive picks among the first ``k`` messages at random. A group that orders keys does not."""
    max_leased: int = 120_000
    """Holes that a receiver has or had."""
    max_held: int = 1_000_000
    """Holes of all kinds."""
    visibility: float = 30.0
    """Seconds for which a message is hidden, if a receive does not say."""
    fair: bool = False
    """Messages of keys that have a large part of the leases wait behind others."""
    share: Share | None = None
    """In a weak group that several servers use."""
