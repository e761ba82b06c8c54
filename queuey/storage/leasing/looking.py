"""What lease groups hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from uuid import UUID

from queuey.ids import MessageId
from queuey.model import PartitionId
from queuey.model.holes import Hole
from queuey.model.lease_groups import AUTO
from queuey.model.lease_steps import LeaseCounts
from queuey.storage.leasing.access import LeaseAccess
from queuey.storage.leasing.book import LeaseBook

__all__ = ["counted", "holes_after"]


def counted(
    access: LeaseAccess, book: LeaseBook, queue: UUID, name: str, partitions: Sequence[int]
) -> Mapping[int, LeaseCounts]:
    """See :meth:`queuey.storage.leasing.LeaseStore.count`."""
    group = book.group(access, queue, name, None)
    if group is None:
        return {}
    found = {}
    rules, is_auto = group.rules, group.group.settings.k == AUTO
    for number in partitions:
        state = book.partition(access, group, PartitionId(queue, number)).state
        found[number] = LeaseCounts(
            state.frontier,
            state.done_up_to,
            len(state.holes),
            state.leased,
            state.dead,
            len(state.skipped),
            access.picking.k(number) if is_auto else rules.k,
            state.passed.size,
        )
    return found


def holes_after(
    access: LeaseAccess, book: LeaseBook, place: PartitionId, name: str, after: MessageId, limit: int
) -> list[Hole]:
    """See :meth:`queuey.storage.leasing.LeaseStore.holes`."""
    group = book.group(access, place.queue, name, None)
    if group is None:
        return []
    state = book.partition(access, group, place).state
    return [hole._replace(visible_at=state.visible_at(hole)) for hole in islice(state.holes.after(after), limit)]
