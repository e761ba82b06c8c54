"""What the members of a group share (docs/decisions/011).

::

    members   the living members; the first to have joined leads
    plan      all partitions and the planned owner of each, with a generation that only rises
    claims    the owner of a partition now: at most one living member, with a generation that only rises
    offsets   how far the group is in a partition; the holder of the claim moves it

Each change is atomic. A change that carries a generation is refused once there is a higher one. So a former owner or
leader can do no harm, whatever it believes (G14).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from qdo.groups.assign import Assignment, Partition
from queuey.ids import MessageId, tail_from_low

__all__ = ["TRUSTED_SHARE", "Claim", "CommittedOffset", "Coordinator", "Member", "Plan", "last_id_of"]

TRUSTED_SHARE = 2 / 3
"""Of the session timeout: for this long after the last answer nobody else can have taken over (G15)."""


class CommittedOffset(NamedTuple):
    """How far a group is in a partition: the last message that is finished."""

    incarnation: str
    """Of the queue: 32 hex digits, as a cursor begins with. A queue that was made anew has another incarnation (G9)."""
    message_id: MessageId

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.message_id.hex}"

    @classmethod
    def parse(cls, text: str) -> CommittedOffset:
        """The inverse of ``str``.

        :raises ValueError, InvalidMessageId: the text is no offset.
        """
        incarnation, _, message_id = text.partition(".")
        if len(incarnation) != 32:
            raise ValueError(f"{text!r} is no offset")
        return cls(incarnation, MessageId.parse(message_id))


_LAST_LOW = 0xBF7F7F7F7F7F7F7F
"""With the variant of RFC 4122, the last value in Cassandra's order, which compares signed bytes."""


def last_id_of(ticks: int) -> MessageId:
    """The greatest id that a message of this tick could have.

    Unlike a bound it can be stored as an offset.
    """
    return MessageId(ticks, tail_from_low(_LAST_LOW))


class Member(NamedTuple):
    """One member of the group."""

    name: str
    about: Mapping[str, Any]
    """What the member says of itself: host, process, version."""


class Claim(NamedTuple):
    """The right to work on a partition, until somebody else claims it."""

    partition: Partition
    generation: int
    """From 1, and higher than in any earlier claim of this partition in this group."""


@dataclass(frozen=True)
class Plan:
    """The planned owner of each partition, as the leader last said."""

    generation: int = 0
    """0 before the first one."""
    assignment: Assignment = field(default_factory=dict)

    def of(self, member: str) -> Sequence[Partition]:
        """The partitions that a member is to own."""
        return self.assignment.get(member, ())

    def partitions(self) -> set[Partition]:
        """All partitions of the group."""
        return {partition for owned in self.assignment.values() for partition in owned}


class Coordinator(ABC):
    """One member's access to what its group shares. Thread-safe.

    Every call may raise :class:`~queuey.errors.CoordinatorUnavailable`: then the change may or may not have happened, and
    may be tried again. :class:`~queuey.errors.SessionLost` says that the others hold this member for dead: its claims are
    gone, and it has to join anew.
    """

    changed: Callable[[], None] = staticmethod(lambda: None)
    """Called in any thread when something of the group may have changed. Set it before :meth:`join`."""

    @abstractmethod
    def join(self, about: Mapping[str, Any]) -> str:
        """Become a member.

        :returns: the member's name. No member of this group ever had it before.
        """

    @abstractmethod
    def tell(self, about: Mapping[str, Any]) -> None:
        """Change what this member says of itself.

        Readers of :meth:`members` see it; no other member is notified.
        """

    @abstractmethod
    def leave(self) -> None:
        """Stop being a member: the claims become free at once.

        The call may be repeated, and raises nothing.
        """

    @abstractmethod
    def trusted(self) -> bool:
        """Whether it is sure that nobody holds this member for dead. Sends no request.

        True for :data:`TRUSTED_SHARE` of the session timeout, by elapsed time, from the moment at which the request for the
        last answer was sent.
        """

    @abstractmethod
    def members(self) -> Sequence[Member]:
        """All members, in the order of joining.

        For a member the list may be as old as the last notice (:attr:`changed`), and what others :meth:`tell` older still.
        """

    @abstractmethod
    def plan(self) -> Plan:
        """The latest plan. May be as old as the last notice, like :meth:`members`."""

    @abstractmethod
    def propose(self, plan: Plan) -> bool:
        """Make ``plan`` the latest, if its generation follows that of the latest one.

        :returns: False if it does not; nothing changed.
        """

    @abstractmethod
    def claim(self, partitions: Collection[Partition]) -> Mapping[Claim, CommittedOffset | None]:
        """Claim those of ``partitions`` that no living member holds.

        Each claim is made before its offset is read, so no former owner can move that offset any more (G14).

        :returns: the claims that this member has now, earlier ones included, with the group's offsets.
        """

    @abstractmethod
    def release(self, claims: Collection[Claim]) -> None:
        """Give claims back, whatever their generation.

        A claim that is lost, or never was this member's, is no error.
        """

    @abstractmethod
    def commit(self, offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
        """Record offsets, in one step for all partitions whose claims still hold.

        :returns: claims that somebody else has taken over; nothing of them is recorded.
        """

    @abstractmethod
    def resets(self) -> int:
        """How often offsets of the group were set by hand.

        The number may be as old as the last notice, like :meth:`members`.

        Once it has changed, :meth:`claim` returns other claims for those partitions than before.
        """

    # For a look from outside. It needs no membership, and a look at a group that does not exist makes nothing.

    @abstractmethod
    def owners(self) -> Mapping[Partition, tuple[str, int]]:
        """Living owners and the generations of their claims."""

    @abstractmethod
    def offsets(self) -> Mapping[Partition, CommittedOffset]:
        """All offsets of the group."""

    @abstractmethod
    def known(self) -> Collection[Partition]:
        """All partitions that were ever claimed or reset in this group.

        That includes partitions that are in no plan any more.
        """

    @abstractmethod
    def begin(self, offsets: Mapping[Partition, CommittedOffset]) -> Collection[Partition]:
        """Give a first offset to partitions that have neither an offset nor an owner.

        Of several callers one succeeds.

        :returns: partitions that got their offset from this call.
        """

    @abstractmethod
    def reset(self, offsets: Mapping[Partition, CommittedOffset | None]) -> None:
        """Set offsets by hand, also backwards; None forgets one.

        This raises the generations of the partitions: their owners are fenced off, and begin anew from these offsets. They
        stay owners all the same: nobody else can claim the partitions until they have given them back (G15).
        """

    @abstractmethod
    def close(self) -> None:
        """Leave, and let go of connections and threads. May be repeated."""


def plan_to_text(plan: Plan) -> str:
    """The stored form of a plan's assignment.

    The partition numbers of each queue, by member.

    >>> plan_to_text(Plan(1, {"m": [Partition("q", 1), Partition("q", 2)]}))
    '{"m":{"q":[1,2]}}'
    """
    kept: dict[str, dict[str, list[int]]] = {member: {} for member in plan.assignment}
    for member, owned in plan.assignment.items():
        for queue, number in owned:
            kept[member].setdefault(queue, []).append(number)
    return json.dumps(kept, separators=(",", ":"))


def plan_from_text(generation: int, text: str) -> Plan:
    """The inverse of :func:`plan_to_text`."""
    kept = json.loads(text)
    return Plan(
        generation,
        {
            member: [Partition(queue, number) for queue, numbers in queues.items() for number in numbers]
            for member, queues in kept.items()
        },
    )


def tell_apart(wanted: Iterable[Partition], held: Iterable[Partition]) -> tuple[list[Partition], list[Partition]]:
    """The wanted that are not held, and the held that are not wanted; both sorted."""
    wanted_set, held_set = set(wanted), set(held)
    return sorted(wanted_set - held_set), sorted(held_set - wanted_set)
