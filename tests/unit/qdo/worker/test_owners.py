"""What a worker lists for the group, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset
from qdo.worker.buffers import PartitionBuffer, Prefetched
from qdo.worker.job import Context
from qdo.worker.owners import PartitionOwner
from qdo.worker.parts import WorkerParts
from queuey.clock import ManualClock
from queuey.ids import MessageId
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


@pytest.mark.parametrize("recorded", [True, False, None], ids=["recorded", "not recorded", "refused"])
def test_a_queue_that_was_made_anew_begins_at_its_beginning(recorded: bool | None) -> None:
    """Though one of its name was there when the worker began at the end. Where nothing was recorded it is the same queue."""
    prefetched, clock = Prefetched(prefetch_messages=9, prefetch_bytes=9), ManualClock()

    def make_buffer(claim: Claim, offset: CommittedOffset | None, *, from_end: bool) -> PartitionBuffer:
        context = Context(claim, member="m", group="g", clock=clock, value=None)
        return PartitionBuffer(claim, offset, [context], from_end=from_end)

    fetcher: Any = SimpleNamespace(follow=lambda queues: None)
    parts: Any = SimpleNamespace(prefetched=prefetched, fetcher=fetcher, make_buffer=make_buffer)
    owner = PartitionOwner(parts, NOTHING, from_end=True)
    owner._at_first = frozenset({OLD})
    first, second = Claim(OLD, 1), Claim(OLD, 2)

    owner.gained({first: None})
    if recorded is not False:
        prefetched.start_over(OLD.queue, "a" * 32, MessageId(9, 0))
    if recorded:
        prefetched.committed(prefetched.to_commit())
    if recorded is None:
        owner.fenced([first])
        assert owner.after_commit() == [first]
    owner.losing([first])
    assert owner.drained([first]) == [first]
    owner.gained({second: None})

    (buffer,) = prefetched.all()
    assert buffer.from_end is not bool(recorded)
