"""How far a group is, seen from outside.

A view has the owner of each partition, and what lies behind the offsets.

Lag in seconds is the age of the first message that is not finished, by the server's clock. Lag in messages is what can
still be read behind the offset. Where the offset lies before the oldest message of its partition, that is the depth of
the partition. Otherwise ids are read and counted, up to a bound; above the bound the lag is "at least".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from qdo.client import Client, QueueInfo
from qdo.client.wire import cursor_at
from qdo.groups.assign import Partition
from qdo.groups.coordination import CommittedOffset, Coordinator
from queuey.errors import QueueNotFound
from queuey.ids import TICKS_PER_SECOND, MessageId, parse_timestamp

__all__ = ["MOST_COUNTED", "Lag", "PartitionStatus", "lags", "statuses", "total"]

MOST_COUNTED = 10_000
"""Messages of one partition that are counted one by one."""
_A_PAGE = 1000


class Lag(NamedTuple):
    """What a group still has to do in a partition."""

    messages: int = 0
    seconds: float = 0.0
    exact: bool = True
    """False: there are at least this many messages."""


@dataclass(frozen=True)
class PartitionStatus:
    """How one partition of a group is doing."""

    partition: Partition
    owner: str | None
    generation: int | None
    """Of the owner's claim."""
    offset: CommittedOffset | None
    lag: Lag | None
    """None if the queue is gone."""


def statuses(
    client: Client,
    coordinator: Coordinator,
    wanted: Callable[[str], bool] = lambda queue: True,
    *,
    most: int = MOST_COUNTED,
) -> list[PartitionStatus]:
    """All partitions that the group plans for, owns or has an offset of, by name.

    It sends one request for each queue, and one more for each thousand messages that are counted.

    :param wanted: says of a queue whether to look at it.
    """
    owners, offsets = coordinator.owners(), coordinator.offsets()
    known = {*coordinator.plan().partitions(), *owners, *offsets}
    partitions = sorted(partition for partition in known if wanted(partition.queue))
    behind = lags(client, partitions, offsets, most=most)
    found = []
    for each in partitions:
        owner, generation = owners.get(each, (None, None))
        found.append(PartitionStatus(each, owner, generation, offsets.get(each), behind.get(each)))
    return found


def total(found: Collection[PartitionStatus]) -> Lag:
    """All messages together, and the seconds of the worst partition."""
    known = [status.lag for status in found if status.lag is not None]
    return Lag(
        sum(lag.messages for lag in known),
        max((lag.seconds for lag in known), default=0.0),
        all(lag.exact for lag in known),
    )


def lags(
    client: Client,
    partitions: Collection[Partition],
    offsets: Mapping[Partition, CommittedOffset],
    *,
    most: int = MOST_COUNTED,
) -> Mapping[Partition, Lag]:
    """What lies behind these offsets.

    Partitions of queues that are gone are left out.
    """
    numbers: dict[str, set[int]] = {}
    for queue, number in partitions:
        numbers.setdefault(queue, set()).add(number)
    found: dict[Partition, Lag] = {}
    for queue, some in numbers.items():
        places = {number: offsets.get(Partition(queue, number)) for number in some}
        try:
            info = client.queue_info(queue)
            of_queue = _of_queue(client, info, places, most)
        except QueueNotFound:
            continue
        found |= {Partition(queue, number): lag for number, lag in of_queue.items()}
    return found


def _of_queue(
    client: Client, info: QueueInfo, offsets: Mapping[int, CommittedOffset | None], most: int
) -> dict[int, Lag]:
    found: dict[int, Lag] = {}
    inside: dict[int, MessageId] = {}
    for part in info.partitions:
        if part.number not in offsets:
            continue
        offset = offsets[part.number]
        place = offset.message_id if offset is not None and offset.incarnation == info.uuid else None
        if part.newest is None or part.oldest is None or (place is not None and place >= part.newest):
            found[part.number] = Lag()
        elif place is None or place < part.oldest:
            found[part.number] = Lag(part.depth, _age(info, part.oldest))
        else:
            inside[part.number] = place
    return found | _counted(client, info, inside, most)


def _counted(client: Client, info: QueueInfo, places: Mapping[int, MessageId], most: int) -> dict[int, Lag]:
    left, done = dict(places), not places
    counts = dict.fromkeys(places, 0)
    first: dict[int, MessageId] = {}
    while left and not done:
        page = client.read(
            info.settings.name,
            cursor=cursor_at(info.uuid, left),
            until=info.watermark,
            limit=_A_PAGE,
            with_bodies=False,
        )
        for message in page.messages:
            counts[message.partition] += 1
            first.setdefault(message.partition, message.id)
            left[message.partition] = message.id
        done = not page.more
        if not done:
            left = {number: place for number, place in left.items() if counts[number] < most}
    exact = set(left) if done else set()
    return {
        number: Lag(count, _age(info, first[number]) if count else 0.0, number in exact)
        for number, count in counts.items()
    }


def _age(info: QueueInfo, message_id: MessageId) -> float:
    return max((parse_timestamp(info.watermark) - message_id.ticks) / TICKS_PER_SECOND, 0.0)
