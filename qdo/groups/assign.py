"""Assigns partitions to members.

These are pure functions from members and partitions to an assignment.

Each function gives each partition to exactly one member, and the members' numbers of partitions differ by one at most.
The same arguments give the same answer, in whatever order the partitions come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

__all__ = ["STRATEGIES", "Assignment", "Partition", "assign_range", "assign_round_robin", "assign_sticky", "moved"]


class Partition(NamedTuple):
    """A partition of a queue by name. Members divide partitions among themselves."""

    queue: str
    number: int
    """From 1."""

    def __str__(self) -> str:
        """Its form in logs, commands and nodes. No queue name contains a colon."""
        return f"{self.queue}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> Partition:
        """The inverse of ``str``.

        >>> Partition.parse("a-b:3")
        Partition(queue='a-b', number=3)

        :raises ValueError: the text is not a queue, a colon and a number from 1.
        """
        queue, colon, number = text.rpartition(":")
        if not (queue and colon and number.isascii() and number.isdigit() and number[0] != "0"):
            raise ValueError(f"{text!r} is no partition: expected QUEUE:NUMBER, such as crashes:3")
        return cls(queue, int(number))


Assignment = Mapping[str, Sequence[Partition]]
"""From each member to its partitions, sorted. Members without partitions are there as well."""

Strategy = Callable[[Sequence[str], Collection[Partition], Assignment], Assignment]
"""It gets the members in the order they joined, all partitions, and what each member has now."""


def _shares(count: int, members: int) -> list[int]:
    """How many partitions each member gets, the larger shares first."""
    least, more = divmod(count, members)
    return [least + (number < more) for number in range(members)]


def assign_range(members: Sequence[str], partitions: Collection[Partition], current: Assignment) -> Assignment:
    """Neighbours together: each member gets a run of the sorted partitions.

    >>> assign_range(["a", "b"], [Partition("q", n) for n in (1, 2, 3)], {})
    {'a': [Partition(queue='q', number=1), Partition(queue='q', number=2)], 'b': [Partition(queue='q', number=3)]}
    """
    rest, given = sorted(partitions), {}
    for member, share in zip(members, _shares(len(rest), len(members)) if members else (), strict=True):
        given[member], rest = rest[:share], rest[share:]
    return given


def assign_round_robin(members: Sequence[str], partitions: Collection[Partition], current: Assignment) -> Assignment:
    """Neighbours apart: the sorted partitions are dealt out like cards."""
    ordered = sorted(partitions)
    return {member: ordered[at :: len(members)] for at, member in enumerate(members)}


def assign_sticky(members: Sequence[str], partitions: Collection[Partition], current: Assignment) -> Assignment:
    """No member loses a partition unless balance asks for it.

    So the least possible number moves (G15).

    The larger shares go to the members that have most now. Any other choice would take more away.
    """
    left = set(partitions)
    kept: dict[str, list[Partition]] = {}
    for member in members:
        kept[member] = sorted(left.intersection(current.get(member, ())))
        left.difference_update(kept[member])
    by_load = sorted(members, key=lambda member: -len(kept[member]))
    shares = dict(zip(by_load, _shares(len(partitions), len(members)) if members else (), strict=True))
    for member, share in shares.items():
        left.update(kept[member][share:])
        del kept[member][share:]
    spare = sorted(left, reverse=True)
    return {
        member: sorted(kept[member] + [spare.pop() for _ in range(shares[member] - len(kept[member]))])
        for member in members
    }


STRATEGIES: Mapping[str, Strategy] = {
    "sticky": assign_sticky,
    "range": assign_range,
    "round-robin": assign_round_robin,
}
"""By the names that settings use."""


def moved(before: Assignment, after: Assignment) -> int:
    """How many partitions have another owner than before.

    Partitions without an owner before do not count.
    """
    owner = {partition: member for member, owned in after.items() for partition in owned}
    return sum(owner.get(partition, member) != member for member, owned in before.items() for partition in owned)
