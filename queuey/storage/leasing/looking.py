"""What lease groups hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from uuid import UUID

from queuey.ids import MessageId
from queuey.model import PartitionId
from queuey.model.lease_groups import AUTO
from queuey.model.lease_steps import HeldPage, LeaseCounts
from queuey.storage.leasing.access import LeaseAccess
from queuey.storage.leasing.book import LeaseBook

__all__ = ["counted", "held_after"]


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


def held_after(
    access: LeaseAccess, book: LeaseBook, place: PartitionId, name: str, after: MessageId, limit: int
) -> HeldPage:
    """See :meth:`queuey.storage.leasing.LeaseStore.held`. The moment is left to the store."""
    group = book.group(access, place.queue, name, None)
    if group is None:
        return HeldPage(0)
    state = book.partition(access, group, place).state
    holes = [hole._replace(visible_at=state.visible_at(hole)) for hole in islice(state.holes.after(after), limit)]
    reasons = {hole.id: state.reasons[hole.id] for hole in holes if hole.id in state.reasons} if state.reasons else {}
    return HeldPage(0, holes, reasons)
