"""A group seen from outside, however it divides its queues.

A group by slots owns slots and no queues, and only Queuey knows how far the group is in each queue. A slot's moment
says that everything up to it is finished in all queues of the slot. So a queue without a message since then has no lag,
and a server tells that of a hundred queues at once. The number of queues looked at is bounded, and a view says when it
was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from qdo.client import Client
from qdo.groups.assign import Partition
from qdo.groups.coordination import CommittedOffset, Coordinator, Member, last_id_of
from qdo.groups.dead_letter_names import DEFAULT_DEAD_LETTERS, DeadLetterNames
from qdo.groups.hash_slots import ALL, is_slot, slot_of
from qdo.groups.lag import MOST_COUNTED, PartitionStatus, lags, statuses
from qdo.groups.offsets_in_queuey import offset_of
from qdo.groups.probes import Probe, probe_batches, with_new_messages
from qdo.groups.subscription import each_queue, is_meant
from queuey.errors import QueueNotFound

__all__ = ["MOST_LOOKED_AT", "MOST_QUEUES", "GroupView", "most_lag_first", "view_of"]

MOST_QUEUES = 20_000
"""Of a group by slots, this many queues are probed, by name."""
MOST_LOOKED_AT = 1000
"""This many of the queues with new messages are looked at closely: two requests each, and more to count messages."""


class GroupView(NamedTuple):
    """The members of a group, and how far it is."""

    members: Sequence[Member]
    owned: Sequence[PartitionStatus]
    """What members divide: partitions, or slots. A slot has no lag of its own."""
    found: Sequence[PartitionStatus]
    """Partitions of queues, by name. By slots, only of queues that got a message since the slot's moment."""
    queues: int | None = None
    """By slots: the number of queues that were probed."""
    cut: bool = False
    """By slots: there are more queues, and nobody looked at them."""


def view_of(
    client: Client,
    coordinator: Coordinator,
    group: str,
    patterns: Sequence[str] = (),
    *,
    most: int = MOST_COUNTED,
    idle_too: bool = False,
) -> GroupView:
    """Look at a group.

    :param patterns: names of queues, and patterns. Without any it looks at the queues that the group works on, as its
        members say. By slots, if there is no member to say it, it looks at all queues in which the group ever claimed
        something.
    :param most: messages of a partition that are counted.
    :param idle_too: by slots, also look at queues without a new message; then it looks at fewer queues.
    """
    members = coordinator.members()
    everything = statuses(client, coordinator, _one_of(patterns), most=most)
    slots = {each.partition.number: each for each in everything if is_slot(each.partition)}
    planned = {*coordinator.plan().partitions(), *coordinator.owners()}
    if not slots or not all(map(is_slot, planned)):
        found = [each for each in everything if not is_slot(each.partition)]
        return GroupView(members, found, found)
    listed, cut = _listed(client, members, group, patterns, MOST_LOOKED_AT if idle_too else MOST_QUEUES)
    probes = [Probe(name, partitions, _since(slots.get(slot_of(name)))) for name, partitions in listed.items()]
    if not idle_too:
        probes = [probe for batch in probe_batches(probes) for probe in with_new_messages(client, batch)]
    known = bool(patterns or members)
    found = [
        status
        for probe in sorted(probes)[:MOST_LOOKED_AT]
        for status in _statuses_of(client, group, probe, slots.get(slot_of(probe.queue)), known=known, most=most)
    ]
    return GroupView(members, list(slots.values()), found, len(listed), cut or len(probes) > MOST_LOOKED_AT)


def _one_of(patterns: Sequence[str]) -> Callable[[str], bool]:
    return lambda name: not patterns or name == ALL or is_meant(name, patterns)


def _listed(
    client: Client, members: Sequence[Member], group: str, patterns: Sequence[str], most: int
) -> tuple[Mapping[str, int], bool]:
    """The first queues of a group, and how many partitions each has.

    The last value says whether there are more queues.
    """
    said = sorted({pattern for member in members for pattern in member.about.get("queues", ())})
    letters = {member.about.get("dead_letters") for member in members} or {DEFAULT_DEAD_LETTERS}
    kept_apart = [DeadLetterNames(name) for name in letters if name is not None]

    def leave_out(name: str) -> bool:
        return not patterns and any(each.is_one(name) for each in kept_apart)

    found = {
        each.name: each.partitions for each in islice(each_queue(client, patterns or said or "*", leave_out), most + 1)
    }
    return dict(islice(found.items(), most)), len(found) > most


def _since(slot: PartitionStatus | None) -> int:
    return 0 if slot is None or slot.offset is None else slot.offset.message_id.ticks + 1


def _statuses_of(
    client: Client, group: str, probe: Probe, slot: PartitionStatus | None, *, known: bool, most: int
) -> Sequence[PartitionStatus]:
    """How the partitions of one queue are doing.

    :param known: the group is known to work on the queue. Otherwise it does if it claimed something there.
    """
    try:
        at = client.offsets(probe.queue, group)
    except QueueNotFound:
        return ()
    if not known and not any(each.generation for each in at):
        return ()
    offsets = {Partition(probe.queue, each.partition): offset for each in at if (offset := offset_of(each)) is not None}
    partitions = [Partition(probe.queue, each.partition) for each in at]
    since = _since(slot) - 1
    begins = {
        Partition(probe.queue, each.partition): CommittedOffset(each.incarnation, last_id_of(since))
        for each in at
        if since > 0 and each.timestamp is None
    }
    behind = lags(client, partitions, begins | offsets, most=most)
    owner = None if slot is None else slot.owner
    generations = {each.partition: each.generation for each in at}
    return [
        PartitionStatus(each, owner, generations[each.number], offsets.get(each), behind.get(each))
        for each in partitions
    ]


def most_lag_first(found: Sequence[PartitionStatus]) -> list[PartitionStatus]:
    """Sorted by seconds, then messages, then name.

    The order in which a person should care.
    """
    return sorted(
        found,
        key=lambda each: (
            (-each.lag.seconds, -each.lag.messages, each.partition)
            if each.lag is not None
            else (0.0, 0, each.partition)
        ),
    )
