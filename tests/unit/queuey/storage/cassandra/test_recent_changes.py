"""What a server remembers of its last deletions."""

from __future__ import annotations

from uuid import UUID

from queuey.ids import MessageId
from queuey.model import PartitionId
from queuey.storage.cassandra.recent_changes import RecentDeletions

PLACE, ID = PartitionId(UUID(int=1), 1), MessageId(5, 7)


def test_of_two_deletions_the_later_date_counts_also_if_the_clock_was_set_back() -> None:
    """An overwrite that went over the lower date alone was hidden by the deletion before."""
    deletions = RecentDeletions(1000)
    deletions.note(PLACE, [ID], 500)
    deletions.note(PLACE, [ID], 100)

    assert deletions.date(PLACE, ID) == 500
