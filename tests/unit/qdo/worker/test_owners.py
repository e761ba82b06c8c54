"""What a worker lists for the group, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim
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


class Began:
    """What a worker's parts are asked for by its owner; and which partitions began at the end."""

    def __init__(self) -> None:
        self.at_end: list[bool] = []

    def make_buffer(self, claim: Claim, offset: object, *, from_end: bool) -> None:
        self.at_end.append(from_end)

    def nothing(self, *_: object) -> None:
        """It is not what the test looks at."""

    add = shut = follow = nothing


def test_a_queue_that_was_made_anew_begins_at_its_beginning() -> None:
    """Though one of its name was there when the worker began at the end."""
    began: Any = Began()
    parts: Any = SimpleNamespace(prefetched=began, fetcher=began, make_buffer=began.make_buffer)
    owner = PartitionOwner(parts, NOTHING, from_end=True)
    owner._at_first = frozenset({OLD})
    for generation in (1, 2):
        owner.gained({Claim(OLD, generation): None})
        owner.losing([Claim(OLD, generation)])

    assert began.at_end == [True, False]
