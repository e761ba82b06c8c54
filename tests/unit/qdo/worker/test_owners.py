"""What a worker lists for the group, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import Any

from qdo.groups.assign import Partition
from qdo.worker.owners import PartitionOwner
from qdo.worker.parts import WorkerParts
from tests.support.servers import eventually

OLD, NEW = Partition("old", 1), Partition("new", 1)
NOTHING: Any = None


class Queues:
    """A subscription, and the term of the member that lists its queues."""

    def __init__(self, *during: Callable[[Queues], None]) -> None:
        """:param during: what happens while the first lists are made."""
        self.found: Collection[Partition] = [OLD]
        self.term: int | None = None
        self._during = list(during)

    def partitions(self, client: object) -> Collection[Partition]:
        found = self.found
        if self._during:
            self._during.pop(0)(self)
        return found


def owner_of(queues: Queues, wake: Callable[[], None]) -> PartitionOwner:
    client: Any = nullcontext
    nothing = dict.fromkeys(("coordinator", "clock", "prefetched", "fetcher", "make_buffer"), NOTHING)
    parts = WorkerParts(make_client=client, term=lambda: queues.term, wake=wake, **nothing)
    subscription: Any = queues
    return PartitionOwner(parts, subscription, from_end=False)


def test_a_list_counts_for_the_term_in_which_it_was_begun() -> None:
    """A plan by one of before would leave out what a former leader has divided since."""

    def begins_to_lead(queues: Queues) -> None:
        queues.found, queues.term = [OLD, NEW], 1

    queues = Queues(begins_to_lead)
    seen: list[Collection[Partition] | None] = []
    owner = owner_of(queues, lambda: seen.append(owner.divided()))
    over = threading.Event()
    thread = threading.Thread(target=owner.find_work, args=(over,))
    thread.start()
    try:
        eventually(lambda: len(seen) >= 2)
        assert seen[:2] == [None, [OLD, NEW]]

        queues.found = [NEW]
        queues.term = 2

        assert eventually(owner.divided) == [NEW]
    finally:
        over.set()
        owner.close()
        thread.join()
