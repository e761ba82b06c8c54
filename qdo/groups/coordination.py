"""What the members of a group share, and how one is reached (docs/decisions/011).

::

    members   who is there; the first to have joined leads
    plan      which partitions there are and who is to own each, with a generation that only rises
    claims    who owns a partition now: at most one living member, with a generation that only rises
    offsets   how far the group has got in a partition, moved by who holds its claim

Each change is atomic. A change that carries a generation is refused once there is a higher one: a
former owner or leader can do no harm, whatever it believes (G14).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from qdo.groups.assign import Assignment, Partition
from queuey.ids import MessageId, tail_from_low

__all__ = ["TRUSTED_SHARE", "Claim", "Coordinator", "Member", "Offset", "Plan", "last_id_of"]

TRUSTED_SHARE = 2 / 3
"""Of the session timeout: for so long after the last answer nobody else can have taken over (G15)."""


class Offset(NamedTuple):
    """How far a group has got in a partition: the last message that was finished."""

    incarnation: str
    """The queue's: 32 hex digits, as a cursor begins with. A queue made anew is another one (G9)."""
    message_id: MessageId

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.message_id.hex}"

    @classmethod
    def parse(cls, text: str) -> Offset:
        """The inverse of ``str``.

        :raises ValueError, InvalidMessageId: it is not.
        """
        incarnation, _, message_id = text.partition(".")
        if len(incarnation) != 32:
            raise ValueError(f"{text!r} is no offset")
        return cls(incarnation, MessageId.parse(message_id))


_LAST_LOW = 0xBF7F7F7F7F7F7F7F
"""With the variant of RFC 4122, the last in Cassandra's order, which is signed byte by byte."""


def last_id_of(ticks: int) -> MessageId:
    """The greatest id that a message of this tick could have: unlike a bound it can be written down, as an offset."""
    return MessageId(ticks, tail_from_low(_LAST_LOW))


class Member(NamedTuple):
    """Somebody in the group."""

    name: str
    about: Mapping[str, Any]
    """What it says of itself: host, process, version."""


class Claim(NamedTuple):
    """The right to work on a partition, until somebody else has claimed it."""

    partition: Partition
    generation: int
    """From 1; higher than that of all earlier claims of this partition in this group."""


@dataclass(frozen=True)
class Plan:
    """Who is to own what, as the leader last said."""

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
    """One member's way to what its group shares. Thread-safe.

    Every call may raise :class:`~queuey.errors.CoordinatorUnavailable`: then the change may or may not
    have happened, and may be tried again; :class:`~queuey.errors.SessionLost` says that the others hold
    this member for dead: its claims are gone, and it has to join anew.
    """

    changed: Callable[[], None] = staticmethod(lambda: None)
    """Called in any thread when something of the group may have changed. Set it before :meth:`join`."""

    @abstractmethod
    def join(self, about: Mapping[str, Any]) -> str:
        """Become a member.

        :returns: the member's name, which nobody ever had in this group before.
        """

    @abstractmethod
    def tell(self, about: Mapping[str, Any]) -> None:
        """Say something else of oneself; who looks at :meth:`members` sees it. No other member is called for it."""

    @abstractmethod
    def leave(self) -> None:
        """Be a member no more: claims become free at once. May be repeated; raises nothing."""

    @abstractmethod
    def trusted(self) -> bool:
        """Whether it is sure that nobody holds this member for dead.

        True for :data:`TRUSTED_SHARE` of the session timeout after the last answer was asked for, by elapsed time. Costs no request.
        """

    @abstractmethod
    def members(self) -> Sequence[Member]:
        """Who is there, in the order of joining.

        For a member it may be as old as the last notice (:attr:`changed`), and what others :meth:`tell` older still.
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
    def claim(self, partitions: Collection[Partition]) -> Mapping[Claim, Offset | None]:
        """Claim those of ``partitions`` that no living member holds.

        Each claim is made before its offset is read, so no former owner can move that offset any more (G14).

        :returns: the claims that are this member's now, those it had before included, with the group's offsets.
        """

    @abstractmethod
    def release(self, claims: Collection[Claim]) -> None:
        """Give claims back, whatever their generation; those that are lost already, or never were this member's, are no error."""

    @abstractmethod
    def commit(self, offsets: Mapping[Claim, Offset]) -> Collection[Claim]:
        """Record how far the group has got, in one step for those partitions whose claims still hold.

        :returns: claims that somebody has taken over: of these nothing was recorded.
        """

    @abstractmethod
    def resets(self) -> int:
        """How often offsets of the group were set by hand. May be as old as the last notice, like :meth:`members`.

        When it has changed, :meth:`claim` gives other claims for those partitions than before.
        """

    # For whoever looks from outside; no membership is needed, and a look at a group that is not there makes nothing.

    @abstractmethod
    def owners(self) -> Mapping[Partition, tuple[str, int]]:
        """Living owners and their claims' generations."""

    @abstractmethod
    def offsets(self) -> Mapping[Partition, Offset]:
        """All offsets of the group."""

    @abstractmethod
    def known(self) -> Collection[Partition]:
        """All partitions that were ever claimed or reset in this group, also those that no plan has any more."""

    @abstractmethod
    def begin(self, offsets: Mapping[Partition, Offset]) -> Collection[Partition]:
        """Give partitions their first offset, those that have neither an offset nor an owner: of several who try, one does.

        :returns: those that got it from this call.
        """

    @abstractmethod
    def reset(self, offsets: Mapping[Partition, Offset | None]) -> None:
        """Set offsets by hand, also backwards; None forgets one.

        Raises the generations of these partitions: who works on them now is fenced, and begins anew from here. It is their
        owner all the same: nobody else can claim them until it has given them back (G15).
        """

    @abstractmethod
    def close(self) -> None:
        """Leave, and let go of connections and threads. May be repeated."""


def plan_to_text(plan: Plan) -> str:
    """A plan's assignment as it is kept: numbers of each queue, by member.

    >>> plan_to_text(Plan(1, {"m": [Partition("q", 1), Partition("q", 2)]}))
    '{"m":{"q":[1,2]}}'
    """
    kept: dict[str, dict[str, list[int]]] = {member: {} for member in plan.assignment}
    for member, owned in plan.assignment.items():
        for queue, number in owned:
            kept[member].setdefault(queue, []).append(number)
    return json.dumps(kept, separators=(",", ":"))


def plan_from_text(generation: int, text: str) -> Plan:
    """The inverse."""
    kept = json.loads(text)
    return Plan(
        generation,
        {
            member: [Partition(queue, number) for queue, numbers in queues.items() for number in numbers]
            for member, queues in kept.items()
        },
    )


def tell_apart(wanted: Iterable[Partition], held: Iterable[Partition]) -> tuple[list[Partition], list[Partition]]:
    """Which of the wanted are not held, and which of the held are not wanted; both sorted."""
    wanted_set, held_set = set(wanted), set(held)
    return sorted(wanted_set - held_set), sorted(held_set - wanted_set)
