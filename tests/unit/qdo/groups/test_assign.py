from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdo.groups.assign import STRATEGIES, Assignment, Partition, assign_range, assign_round_robin, assign_sticky, moved
from tests.support.assignments import POOL, least_possible, members_there, ownerships, partitions_there


def moves(partitions: Collection[Partition], before: Assignment, after: Assignment) -> int:
    """As :func:`moved`, of those partitions that are still there."""
    return moved({name: [one for one in owned if one in partitions] for name, owned in before.items()}, after)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@given(members=members_there, partitions=partitions_there, current=ownerships(), chance=st.randoms())
def test_each_partition_has_one_owner_in_equal_shares_and_always_the_same(
    strategy: Callable[[Sequence[str], Collection[Partition], Assignment], Assignment],
    members: list[str],
    partitions: list[Partition],
    current: Assignment,
    chance: random.Random,
) -> None:
    given_out = strategy(members, partitions, current)

    assert list(given_out) == members
    assert sorted(one for owned in given_out.values() for one in owned) == sorted(partitions)
    counts = [len(owned) for owned in given_out.values()]
    assert max(counts) - min(counts) <= 1
    assert all(list(owned) == sorted(owned) for owned in given_out.values())
    assert strategy(members, shuffled(partitions, chance), shuffled_owners(current, chance)) == given_out


def shuffled(items: Collection[Partition], chance: random.Random) -> list[Partition]:
    return chance.sample(list(items), len(items))


def shuffled_owners(current: Assignment, chance: random.Random) -> Mapping[str, list[Partition]]:
    names = chance.sample(list(current), len(current))
    return {name: shuffled(current[name], chance) for name in names}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_without_members_nobody_gets_anything(
    strategy: Callable[[Sequence[str], Collection[Partition], Assignment], Assignment],
) -> None:
    assert strategy([], POOL, {"gone": POOL}) == {}


@given(members=members_there, partitions=partitions_there, current=ownerships())
def test_sticky_moves_no_more_than_it_must(
    members: list[str], partitions: list[Partition], current: Assignment
) -> None:
    after = assign_sticky(members, partitions, current)

    assert moves(partitions, current, after) == least_possible(members, partitions, current)
    assert assign_sticky(members, partitions, after) == after


@given(members=members_there, partitions=partitions_there)
def test_who_joins_takes_a_share_and_nothing_else_moves(members: list[str], partitions: list[Partition]) -> None:
    before = assign_sticky(members, partitions, {})

    after = assign_sticky([*members, "new"], partitions, before)

    assert moved(before, after) == len(after["new"]) <= math.ceil(len(partitions) / (len(members) + 1))


@given(members=members_there, partitions=partitions_there)
def test_who_leaves_gives_its_share_and_nothing_else_moves(members: list[str], partitions: list[Partition]) -> None:
    before = assign_sticky([*members, "old"], partitions, {})

    after = assign_sticky(members, partitions, before)

    assert moved(before, after) == len(before["old"])


@given(members=members_there, partitions=partitions_there, more=partitions_there)
def test_a_queue_that_grows_moves_nothing(
    members: list[str], partitions: list[Partition], more: list[Partition]
) -> None:
    before = assign_sticky(members, partitions, {})

    after = assign_sticky(members, {*partitions, *more}, before)

    assert moved(before, after) == 0


def test_a_partition_that_two_members_believe_theirs_goes_to_one() -> None:
    both = [Partition("q", 1), Partition("q", 2)]

    assert assign_sticky(["a", "b"], both, {"a": both, "b": both}) == {"a": both[:1], "b": both[1:]}


@given(members=members_there, partitions=partitions_there)
def test_range_keeps_neighbours_together_and_round_robin_apart(members: list[str], partitions: list[Partition]) -> None:
    together = assign_range(members, partitions, {})
    apart = assign_round_robin(members, partitions, {})

    assert [one for owned in together.values() for one in owned] == sorted(partitions)
    place = {one: at for at, one in enumerate(sorted(partitions))}
    assert all(place[one] % len(members) == at for at, owned in enumerate(apart.values()) for one in owned)


def test_what_moved_is_counted_and_what_had_no_owner_is_not() -> None:
    one, two, three, new = (Partition("q", number) for number in (1, 2, 3, 4))

    assert moved({"a": [one, two, three]}, {"a": [one], "b": [two, new]}) == 1


@pytest.mark.parametrize("text", ["q", "q:", ":1", "q:0", "q:01", "q:-1", "q:1 ", "q:x", "q:²", ""])
def test_what_is_no_partition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected QUEUE:NUMBER"):
        Partition.parse(text)


@given(st.sampled_from(POOL))
def test_a_partition_is_read_as_it_was_written(partition: Partition) -> None:
    assert Partition.parse(str(partition)) == partition
