"""What a store is asked to do for lease groups in one step, and what it answers (queue-layer, section 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, overload

from queuey.ids import TICKS_PER_SECOND, ZERO_ID, MessageId
from queuey.model.columns import Columns
from queuey.model.holes import Hole
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import ReceiveRequest, Settle
from queuey.model.messages import Appended, AppendRequest, Message
from queuey.model.values import IdempotencyKey, Queue

__all__ = [
    "NOTHING_HANDED",
    "GivenUp",
    "GroupStep",
    "Handed",
    "HandedAlone",
    "HandedOut",
    "HandedPart",
    "HeldPage",
    "LeaseCounts",
    "LeaseOutcome",
    "LeaseStep",
    "RenewAll",
    "StaleLease",
    "wall_moment",
    "without_place",
]


class RenewAll(NamedTuple):
    """An extension of all leases that a receiver has in a group."""

    receiver: str
    seconds: float


class GroupStep(NamedTuple):
    """The part of a step that one group has."""

    queue: Queue
    name: str
    """Of the group."""
    new: LeaseGroup | None
    """The group that this step makes if there is none; None refuses a step of a group that is not there."""
    token: int | None = None
    """The token in the receipts of ``settles``; None if there are none."""
    settles: Mapping[int, Sequence[Settle]] = MappingProxyType({})
    """By partition, no message twice."""
    renewals: Sequence[RenewAll] = ()
    receive_from: Sequence[int] = ()
    """Partitions whose messages may be handed out."""
    passes: Mapping[int, MessageId] = MappingProxyType({})
    """By partition, an id up to which everything is settled, as far as the step gets; see
    :func:`queuey.model.leases.pass_over`."""


class LeaseStep(NamedTuple):
    """One step: what is settled and appended is done whole or not at all, and then messages are handed out."""

    groups: Sequence[GroupStep]
    """At least one, no group twice."""
    appends: Sequence[AppendRequest] = ()
    receive: ReceiveRequest | None = None
    """How many messages all groups hand out together, and how. If it names no visibility, each group's own counts."""
    attempt: IdempotencyKey | None = None
    """Names this step in its first group: repeated, it is answered as before."""
    renews: bool = False
    """A repeat counts its leases from now, as SQS has it. If one of them has ended or was changed, the step is a new one.
    An answer without messages is not remembered."""
    looks_again: bool = False
    """A step that does nothing but receive: only an answer with messages is remembered under the attempt."""
    turns: Sequence[int] = ()
    """Indexes of the groups in the order in which they hand out. Empty: messages that may be given longest come first,
    of whichever group."""


class StaleLease(NamedTuple):
    """A settle of a lease that had ended."""

    group: int
    """Index of the group in the step."""
    partition: int
    at: int
    """Index of the settle among those of its partition."""


class HandedOut(NamedTuple):
    """A message that was handed out."""

    group: int
    """Index of the group in the step."""
    partition: int
    hole: Hole
    """Its lease, without id and key: the message has those. After a pop there is none, and this is what it would be."""
    message: Message


class HandedPart(NamedTuple):
    """Messages of one partition that were handed out, by column."""

    group: int
    """Index of the group in the step."""
    partition: int
    messages: Columns
    leases: Sequence[Hole]
    """Of each message, as in :class:`HandedOut`. Leases that are all the same are an
    :class:`~queuey.model.columns.Alike`."""


class Handed(Sequence[HandedOut]):
    """The messages that a step handed out.

    A value for each message is made only when it is asked for; the parts have columns.
    """

    __slots__ = ("_number", "_parts")

    def __init__(self, parts: Sequence[HandedPart]) -> None:
        """:param parts: in the order in which they are handed out, none of them empty."""
        self._parts = parts
        self._number = sum([len(part.messages) for part in parts])

    def __len__(self) -> int:
        return self._number

    @property
    def parts(self) -> Sequence[HandedPart]:
        """In the order in which they are handed out, none of them empty."""
        return self._parts

    def __iter__(self) -> Iterator[HandedOut]:
        for group, partition, messages, leases in self.parts:
            for message, hole in zip(messages, leases, strict=True):
                yield HandedOut(group, partition, hole, message)

    @overload
    def __getitem__(self, at: int) -> HandedOut: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[HandedOut]: ...

    def __getitem__(self, at: int | slice) -> HandedOut | Sequence[HandedOut]:
        return [*self][at]

    @property
    def size(self) -> int:
        """Bytes of the bodies and the headers."""
        return sum([part.messages.size for part in self.parts])


class HandedAlone(Handed):
    """The one message that a step of one group handed out, as most steps do. It needs no columns."""

    __slots__ = ("lease", "message", "partition")

    def __init__(self, partition: int, message: Message, lease: Hole) -> None:
        """:param lease: see :class:`HandedOut`."""
        self._number = 1
        self.partition, self.message, self.lease = partition, message, lease

    @property
    def parts(self) -> Sequence[HandedPart]:
        return [HandedPart(0, self.partition, Columns.of([self.message]), (self.lease,))]

    @property
    def size(self) -> int:
        return self.message.size


NOTHING_HANDED = Handed(())


def without_place(hole: Hole) -> Hole:
    """A lease as :class:`HandedOut` has it."""
    return hole._replace(id=ZERO_ID, key=None)


class GivenUp(NamedTuple):
    """A message to be moved to the dead letters."""

    group: int
    """Index of the group in the step."""
    partition: int
    hole: Hole
    reason: str | None
    """Why it was rejected; None if it failed too often."""


class LeaseOutcome(NamedTuple):
    """What a step did."""

    now: int
    """The step's moment on the clock of leases, in ticks. Times of holes are on this clock."""
    wall: int
    """The same moment on the wall clock, in ticks."""
    tokens: Sequence[int]
    """Of the groups."""
    stale: Sequence[StaleLease] = ()
    appended: Sequence[Appended] = ()
    handed: Handed = NOTHING_HANDED
    given_up: Sequence[GivenUp] = ()
    is_full: bool = False
    """New messages were held back, since a group holds as many as it may."""
    next_due: int | None = None
    """Before this moment nothing falls due in these groups; None if nothing will."""
    larger: int = 0
    """Bytes of the message that would be handed out first, if it alone has more than the receive may have. Then nothing
    is handed out."""
    expired: int = 0
    """How many of the messages had a lease that ran out."""
    frees: bool = False
    """What was settled may let others be handed messages that are there: it opened a key, or a group was full."""
    repeated: bool = False
    """The attempt was known; nothing was done."""
    more: bool = False
    """Nothing was handed out, and the step has passed over as many messages as one step does. Look again: there may be
    others behind them."""
    worked: int = 0
    """Ticks from the lease to the acknowledgement, the longest of the first ones in each partition; 0 if there is none."""
    gone: bool = False
    """The attempt was known, and of the messages that it handed out some have expired or were deleted since."""

    def to_wall(self, moment: int) -> int:
        """A moment on the clock of leases as the wall clock shows it.

        The two show the same, until somebody steps the wall clock.
        """
        return wall_moment(moment, self.now, self.wall)


def wall_moment(moment: int, now: int, wall: int) -> int:
    """A moment on the clock of leases as the wall clock shows it.

    :param now: this moment on the clock of leases.
    :param wall: the same on the wall clock.

    >>> wall_moment(70, 50, 55), wall_moment(70, 50, 50 + 3 * TICKS_PER_SECOND) == 70 + 3 * TICKS_PER_SECOND
    (70, True)
    """
    return moment + wall - now if abs(wall - now) > TICKS_PER_SECOND else moment


class HeldPage(NamedTuple):
    """Some messages that a group holds in one partition."""

    now: int
    """The moment on the clock of leases, in ticks."""
    holes: Sequence[Hole] = ()
    reasons: Mapping[MessageId, str] = MappingProxyType({})
    """Why those were rejected that are on their way to the dead letters."""


class LeaseCounts(NamedTuple):
    """What a group holds in one partition."""

    frontier: MessageId
    """The last message that the group has looked at."""
    done_up_to: MessageId
    """All messages up to this id are settled."""
    holes: int = 0
    """Messages behind the frontier that are not settled and not passed over."""
    leased: int = 0
    """Holes that a receiver has, or had when its lease ran out."""
    dead: int = 0
    """Messages that went to the dead letters."""
    closed_keys: int = 0
    """Keys of which messages were passed over."""
    k: int = 1
    """A receive at this server picks among this number of messages."""
    passed: int = 0
    """Messages of closed keys that were passed over, as far as this server has looked at them since it began."""
