"""Hash slots divide very many queues (docs/decisions/012).

Each queue belongs to one of 256 slots by the hash of its name. A slot is a partition of a queue that cannot exist, so
claims, plans and offsets work for slots as they do for partitions. The offset of a slot is a moment: everything up to
it is finished in all queues of the slot.
"""

from __future__ import annotations

import zlib

from qdo.groups.assign import Partition
from qdo.groups.coordination import CommittedOffset
from queuey.ids import MessageId, tail_from_low

__all__ = ["ALL", "SLOTS", "every_slot", "is_slot", "moment_of", "slot_of"]

ALL = "*"
"""The queue name of each slot. No real queue can have it."""
SLOTS = 256
"""A constant: with a setting, two members could divide the same queues in two ways."""
_LOW = 0b10 << 62
_NO_QUEUE = "0" * 32


def slot_of(queue: str) -> int:
    """The number of a queue's slot, 1 to :data:`SLOTS`.

    The same everywhere and for ever.

    >>> slot_of("crashes"), slot_of("crashes-2")
    (192, 200)
    """
    return zlib.crc32(queue.encode()) % SLOTS + 1


def every_slot() -> list[Partition]:
    """What the members of a group by slots divide."""
    return [Partition(ALL, number) for number in range(1, SLOTS + 1)]


def is_slot(partition: Partition) -> bool:
    return partition.queue == ALL


def moment_of(ticks: int) -> CommittedOffset:
    """The offset of a slot in which everything up to this moment is finished."""
    return CommittedOffset(_NO_QUEUE, MessageId(ticks, tail_from_low(_LOW)))
