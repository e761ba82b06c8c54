"""Assignments for hypothesis to draw, and how few moves one takes at least."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import permutations

from hypothesis import strategies as st

from qdo.groups.assign import Assignment, Partition

NAMES = [f"m{number}" for number in range(8)]
POOL = [Partition(queue, number) for queue in ("a", "a-b", "c") for number in range(1, 13)]

members_there = st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=5)
partitions_there = st.lists(st.sampled_from(POOL), unique=True)


@st.composite
def ownerships(draw: st.DrawFn) -> Assignment:
    """Any: unbalanced, with members and partitions that are gone, and with partitions that nobody has."""
    owned: dict[str, list[Partition]] = {name: [] for name in draw(st.lists(st.sampled_from(NAMES), unique=True))}
    if owned:
        for partition in draw(partitions_there):
            owned[draw(st.sampled_from(sorted(owned)))].append(partition)
    return owned


def shares_of(count: int, members: int) -> list[int]:
    return [len(range(number, count, members)) for number in range(members)]


def least_possible(members: Sequence[str], partitions: Collection[Partition], current: Assignment) -> int:
    """How many partitions with an owner must get another one: every way to deal out the shares is tried."""
    has = [len(set(current.get(member, ())) & set(partitions)) for member in members]
    gone = sum(len(set(owned) & set(partitions)) for member, owned in current.items() if member not in members)
    shares = set(permutations(shares_of(len(partitions), len(members))))
    return gone + min(sum(max(one - share, 0) for one, share in zip(has, dealt, strict=True)) for dealt in shares)
