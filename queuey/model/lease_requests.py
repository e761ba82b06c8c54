"""What a lease group is asked for, the settings that decide, and what is answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import repeat
from typing import NamedTuple, overload

from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model.holes import Hole, marked_together
from queuey.model.lease_state import Change

__all__ = [
    "MOVE_AGAIN_SECONDS",
    "Acknowledged",
    "Action",
    "ReceiveRequest",
    "Received",
    "Settle",
    "Settled",
    "later",
]

MOVE_AGAIN_SECONDS = 5.0
"""A message that is given up is reported again after this time, until it is among the dead letters."""


class Action(Enum):
    """How a lease ends, or goes on."""

    ACKNOWLEDGE = "acknowledge"
    RELEASE = "release"
    EXTEND = "extend"
    REJECT = "reject"
    MOVED = "moved"
    """The message was given up and is among the dead letters now. This settles no lease."""
    REMOVE = "remove"
    """The message is settled, whoever has it now; also if it is settled already."""


class Settle(NamedTuple):
    """What becomes of one lease."""

    id: MessageId
    delivery: int
    """Which delivery of the message the lease was, counted from 1."""
    action: Action
    seconds: float | None = None
    """From now: until a released message may be handed out, or an extended lease runs out. A release that names none
    waits by the group's back-off if it counts."""
    counts: bool = True
    """Whether a release is a failure."""
    reason: str = ""
    """Why it is rejected; see :func:`queuey.model.dead_letters.reason_with`."""


@dataclass(frozen=True, slots=True)
class Acknowledged(Sequence[Settle]):
    """Acknowledgements, by column: most settles are nothing else."""

    ids: Sequence[MessageId]
    deliveries: Sequence[int]

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Settle]:
        return map(Settle, self.ids, self.deliveries, repeat(Action.ACKNOWLEDGE))

    @overload
    def __getitem__(self, at: int) -> Settle: ...

    @overload
    def __getitem__(self, at: slice) -> Acknowledged: ...

    def __getitem__(self, at: int | slice) -> Settle | Acknowledged:
        if isinstance(at, slice):
            return Acknowledged(self.ids[at], self.deliveries[at])
        return Settle(self.ids[at], self.deliveries[at], Action.ACKNOWLEDGE)


class Settled(NamedTuple):
    """What settling changes."""

    change: Change
    stale: Sequence[int]
    """Indexes of leases that had ended already: the message was handed out again, or is settled."""
    given_up: Sequence[Hole] = ()
    """Messages to be moved to the dead letters: those that are rejected."""


class ReceiveRequest(NamedTuple):
    """What a receiver asks for."""

    most: int = 1
    visibility_seconds: float | None = 30.0
    """None for the group's own."""
    pop: bool = False
    """Settle the messages at once."""
    receiver: str = ""
    others: int = 0
    """Messages of other partitions that the same receive hands out."""
    max_bytes: int = 1 << 20
    """Bytes of bodies and headers in one receive."""
    blames_each: bool = False
    """Each message whose lease runs out has failed, also one that was handed out with others. Then G28 does not hold: a
    message that ends its receivers takes others with it."""
    looks_on: bool = False
    """There is more than what lies ahead: a fair group that finds only messages of noisy keys there passes over them."""


class Received(NamedTuple):
    """What is handed out, and what that changes.

    The messages of ``again`` come before those of ``fresh``.
    """

    change: Change
    again: Sequence[Hole]
    """Messages to be read by their ids."""
    fresh: Sequence[int]
    """Indexes of the messages that lay ahead."""
    hole: Hole
    """What the fresh messages have in common, with any id and key."""
    given_up: Sequence[Hole]
    """Messages to be moved to the dead letters. They are holes until they are moved."""
    is_full: bool
    """New messages were held back, since the group holds as many as it may."""
    expired: int = 0
    """How many of ``again`` had a lease that ran out."""
    most: int = 0
    """How many messages the whole receive may have, those of other partitions included."""
    waits_alone: bool = False
    """The next message goes alone, or with few others, and had no place beside those that went before."""
    left: Sequence[MessageId] = ()
    """Messages that come next and are in the shares of other servers, to which they are left for a moment."""

    @property
    def number(self) -> int:
        """How many messages are handed out."""
        return len(self.again) + len(self.fresh)

    def with_others(self, number: int) -> Received:
        """The same, handed out together with messages of other partitions.

        :param number: of all of them.
        """
        given = {hole.id: _beside(hole, number) for hole in self.again}
        hole = _beside(self.hole, number)
        fresh = [one._replace(hole=hole) for one in self.change.fresh]
        marked = [
            given.get(one.id, _beside(one, number) if one.leased_at == hole.leased_at else one)
            for one in self.change.holes
        ]
        change = self.change._replace(fresh=fresh, holes=marked)
        return self._replace(change=change, again=[*given.values()], hole=hole)


def _beside(hole: Hole, number: int) -> Hole:
    return hole._replace(flags=marked_together(hole.flags, number))


def later(now: int, seconds: float | None) -> int:
    """The moment ``seconds`` from now."""
    return now + round((seconds or 0.0) * TICKS_PER_SECOND)
