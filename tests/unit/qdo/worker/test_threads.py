"""What the threads of a worker record before a job."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from qdo.client.values import Message
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset, last_id_of
from qdo.worker.buffers import PartitionBuffer, Prefetched
from qdo.worker.options import WorkerOptions
from qdo.worker.threads import JobThreads
from qdo.worker.work import JobCaller
from queuey.clock import ManualClock
from queuey.ids import IdGenerator

INCARNATION = "a" * 32


def test_at_most_once_the_beginning_at_the_end_is_recorded_before_the_first_message() -> None:
    """Recorded after it, the offset would go back, and a crash would repeat the job."""
    clock = ManualClock()
    nothing: Any = None
    prefetched = Prefetched(prefetch_messages=3, prefetch_bytes=100)
    recorded: list[CommittedOffset] = []

    def record(offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
        recorded.extend(offsets.values())
        prefetched.committed(offsets)
        return ()

    options = WorkerOptions(at_most_once=True, from_end=True)
    caller = JobCaller(lambda message, context: None, options)
    threads = JobThreads(caller, options, nothing, None, record, lambda: None)
    buffer = PartitionBuffer(Claim(Partition("q", 1), 1), None, [nothing], from_end=True)
    prefetched.add(buffer)
    end = last_id_of(clock.now_ticks())
    prefetched.start_over("q", INCARNATION, end)
    clock.advance(1)
    first = Message(IdGenerator(clock).next_id(), 1, b"x")

    before = threads._committed_first(buffer, first)
    record(prefetched.to_commit())

    assert (before, threads._committed_first(buffer, first)) == (False, True)
    assert [offset.message_id for offset in recorded] == [end, first.id]
