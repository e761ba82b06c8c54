"""The positions of qdo 0.1 (queuey-api-v1 13.2).

It kept a message for each partition in a queue of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from qdo.client import Client, Message
from qdo.groups.assign import Partition
from qdo.groups.coordination import CommittedOffset
from queuey.errors import QueueNotFound
from queuey.ids import MessageId

__all__ = ["STATUS_QUEUE", "parse_old_partition", "positions", "to_offsets"]

STATUS_QUEUE = "qdo_status"


def parse_old_partition(text: str) -> Partition:
    """The partition that qdo 0.1 named QUEUE-NUMBER.

    The last dash counts, since names of queues may contain dashes.

    >>> parse_old_partition("mail-in-3")
    Partition(queue='mail-in', number=3)

    :raises ValueError: the text is not a queue, a dash and a number from 1.
    """
    queue, dash, number = text.rpartition("-")
    if not (queue and dash and number.isascii() and number.isdigit() and number[0] != "0"):
        raise ValueError(f"{text!r} is no partition: expected QUEUE-NUMBER, such as crashes-3")
    return Partition(queue, int(number))


def positions(client: Client, queue: str = STATUS_QUEUE) -> Mapping[Partition, MessageId]:
    """The last message done in each partition.

    It is what the newest message about the partition in ``queue`` says.

    :raises QueueNotFound: qdo 0.1 never ran here, or its positions have expired.
    """
    newest: dict[Partition, tuple[MessageId, MessageId | None]] = {}
    for message in client.iterate(queue):
        found = _position(message)
        if found is not None and (found[0] not in newest or newest[found[0]][0] < message.id):
            newest[found[0]] = message.id, found[1]
    return {partition: processed for partition, (_, processed) in newest.items() if processed is not None}


def _position(message: Message) -> tuple[Partition, MessageId | None] | None:
    """None for any other message.

    A partition in which nothing was done yet has no id.
    """
    try:
        told = json.loads(message.body)
        partition = parse_old_partition(told["partition"])
        return partition, MessageId.parse(told["processed"]) if told["processed"] else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def to_offsets(
    client: Client, found: Mapping[Partition, MessageId]
) -> tuple[Mapping[Partition, CommittedOffset], Collection[Partition]]:
    """Positions as offsets in queues that exist, and partitions that are gone."""
    offsets: dict[Partition, CommittedOffset] = {}
    gone: list[Partition] = []
    for queue in sorted({partition.queue for partition in found}):
        mine = [partition for partition in sorted(found) if partition.queue == queue]
        try:
            info = client.queue_info(queue)
        except QueueNotFound:
            gone += mine
            continue
        numbers = {part.number for part in info.partitions}
        gone += [partition for partition in mine if partition.number not in numbers]
        offsets |= {each: CommittedOffset(info.uuid, found[each]) for each in mine if each.number in numbers}
    return offsets, gone
