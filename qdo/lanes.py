"""What a worker has under way in one partition: messages fetched ahead, one job at a time, in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import inf

from qdo.coordination import Claim, Offset
from qdo.job import Context
from qdo.values import Message
from qdo.wire import cursor_at
from queuey.ids import ZERO_ID, MessageId

__all__ = ["Lane", "Lanes"]


class Lane:
    """One owned partition. What changes is guarded by the lock of its :class:`Lanes`."""

    __slots__ = (
        "at_end",
        "attempt",
        "began",
        "buffer",
        "claim",
        "committed",
        "context",
        "done",
        "fetched",
        "freed_bytes",
        "incarnation",
        "open",
        "queued",
        "resume_at",
        "running",
    )

    def __init__(self, claim: Claim, offset: Offset | None, context: Context) -> None:
        self.claim = claim
        self.context = context
        self.incarnation = "" if offset is None else offset.incarnation
        """Of the queue that the places below are of; empty before anything is known."""
        self.done: MessageId | None = None if offset is None else offset.message_id
        """The last message that is finished."""
        self.committed = self.done
        self.fetched: MessageId | None = self.done
        """The last message that was fetched."""
        self.buffer: deque[Message] = deque()
        self.freed_bytes = 0
        """Of messages that are done with, until the lane's turn is over."""
        self.open = True
        """New jobs may begin."""
        self.running = False
        self.queued = False
        self.began = inf
        """When the job under way began, by elapsed time."""
        self.attempt = 1
        """Of the first message in the buffer."""
        self.resume_at = -inf
        self.at_end = False
        """The last look found nothing more."""

    @property
    def dirty(self) -> bool:
        """Something finished is not committed; at most once, what is committed runs ahead of what is finished."""
        return self.done is not None and (self.committed is None or self.committed < self.done)

    @property
    def idle(self) -> bool:
        """Nothing fetched, nothing under way, all committed."""
        return not self.running and not self.buffer and not self.dirty


class Lanes:
    """All that a worker owns. Thread-safe; jobs and fetches run outside of its lock."""

    def __init__(self, *, prefetch_messages: int, prefetch_bytes: int) -> None:
        self.lock = threading.Condition()
        self._by_claim: dict[Claim, Lane] = {}
        self._by_queue: dict[str, dict[int, Lane]] = {}
        self._ready: deque[Lane] = deque()
        self._most = prefetch_messages
        self._most_bytes = prefetch_bytes
        self.bytes = 0
        """Of bodies fetched and not finished yet."""
        self.closed = False

    def __len__(self) -> int:
        return len(self._by_claim)

    def all(self) -> list[Lane]:
        with self.lock:
            return list(self._by_claim.values())

    def queues(self) -> list[str]:
        with self.lock:
            return list(self._by_queue)

    def add(self, lane: Lane) -> None:
        with self.lock:
            partition = lane.claim.partition
            self._by_claim[lane.claim] = lane
            self._by_queue.setdefault(partition.queue, {})[partition.number] = lane
            self.lock.notify_all()

    def shut(self, claims: Iterable[Claim]) -> None:
        """Begin nothing more in these; what was fetched ahead is dropped."""
        with self.lock:
            for claim in claims:
                lane = self._by_claim.get(claim)
                if lane is not None:
                    lane.open = False
                    self._forget_buffer(lane)

    def _forget_buffer(self, lane: Lane) -> None:
        if lane.running:
            return  # whoever runs it stops after this message, and then it is done
        while lane.buffer:
            self.bytes -= len(lane.buffer.pop().body)

    def remove(self, claims: Iterable[Claim]) -> None:
        with self.lock:
            for claim in claims:
                lane = self._by_claim.pop(claim, None)
                if lane is None:
                    continue
                lane.open = False
                self._forget_buffer(lane)
                lanes = self._by_queue.get(claim.partition.queue, {})
                if lanes.get(claim.partition.number) is lane:
                    del lanes[claim.partition.number]
                if not lanes:
                    self._by_queue.pop(claim.partition.queue, None)

    # Fetching

    def hungry(self, queue: str) -> tuple[list[Lane], bool]:
        """Lanes of a queue that want messages, and whether these are all of its lanes."""
        with self.lock:
            lanes = [lane for lane in self._by_queue.get(queue, {}).values() if lane.open]
            if self.bytes >= self._most_bytes:
                return [], False
            wanting = [lane for lane in lanes if len(lane.buffer) < self._most]
            return wanting, len(wanting) == len(lanes)

    def fill(self, lanes: Mapping[int, Lane], messages: Iterable[Message], *, more: bool) -> None:
        """Take over a page that was read for these lanes, by number."""
        with self.lock:
            for lane in lanes.values():
                lane.at_end = not more
            for message in messages:
                lane = lanes[message.partition]
                lane.fetched = message.id
                if lane.open:
                    lane.buffer.append(message)
                    self.bytes += len(message.body)
            for lane in lanes.values():
                self._enqueue(lane)

    # Working

    def _enqueue(self, lane: Lane) -> None:
        if lane.open and lane.buffer and not lane.running and not lane.queued:
            lane.queued = True
            self._ready.append(lane)
            self.lock.notify()

    def next_ready(self, now: float, clock_elapsed: Callable[[], float]) -> Lane | None:
        """Wait for a lane with something to do, and mark it running; None once closed.

        Lanes that wait for another attempt are passed over until their time has come.
        """
        with self.lock:
            while not self.closed:
                rest = 1.0
                for _ in range(len(self._ready)):
                    lane = self._ready.popleft()
                    if not (lane.open and lane.buffer):
                        lane.queued = False
                    elif lane.resume_at <= now:
                        lane.queued = False
                        lane.running = True
                        lane.began = now
                        return lane
                    else:
                        rest = min(rest, lane.resume_at - now)
                        self._ready.append(lane)
                self.lock.wait(max(rest, 0.001))
                now = clock_elapsed()
            return None

    @staticmethod
    def finished(lane: Lane, count: int) -> bool:
        """The first ``count`` messages of the buffer are done with. Belongs to who runs the lane, and takes no lock.

        :returns: whether there is another one that may begin now.
        """
        buffer = lane.buffer
        for _ in range(count):
            message = buffer.popleft()
            lane.freed_bytes += len(message.body)
        lane.done = message.id
        lane.attempt = 1
        return lane.open and bool(buffer)

    def rest(self, lane: Lane, resume_at: float = -inf) -> None:
        """A lane's turn is over; not to begin again before ``resume_at``."""
        with self.lock:
            lane.running = False
            lane.began = inf
            lane.resume_at = resume_at
            self.bytes -= lane.freed_bytes
            lane.freed_bytes = 0
            if not lane.open:
                self._forget_buffer(lane)
            self._enqueue(lane)
            self.lock.notify_all()

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.lock.notify_all()

    def waiting(self) -> list[tuple[int, MessageId | None]]:
        """Of each lane: how many messages are fetched and not finished, and the first of them."""
        found: list[tuple[int, MessageId | None]] = []
        for lane in self.all():
            try:
                found.append((len(lane.buffer), lane.buffer[0].id))
            except IndexError:  # a job has just finished the last one
                found.append((0, None))
        return found

    # Committing

    def to_commit(self) -> dict[Claim, Offset]:
        """What is finished and not committed yet."""
        with self.lock:
            return {
                lane.claim: Offset(lane.incarnation, lane.done)
                for lane in self._by_claim.values()
                if lane.dirty and lane.done is not None
            }

    def committed(self, offsets: Mapping[Claim, Offset]) -> None:
        with self.lock:
            for claim, offset in offsets.items():
                lane = self._by_claim.get(claim)
                if lane is not None and lane.incarnation == offset.incarnation:
                    lane.committed = offset.message_id

    def drained(self, claims: Iterable[Claim]) -> list[Claim]:
        """Those with nothing under way and nothing to commit, and those not there any more."""
        with self.lock:
            found = [(claim, self._by_claim.get(claim)) for claim in claims]
            return [claim for claim, lane in found if lane is None or (not lane.running and not lane.dirty)]

    def start_over(self, queue: str, incarnation: str, start: MessageId) -> None:
        """A queue turned out to be of this incarnation: places of another one count no more (G9).

        :param start: what new lanes are read behind.
        """
        with self.lock:
            for lane in self._by_queue.get(queue, {}).values():
                if lane.incarnation != incarnation and not lane.running:
                    lane.incarnation = incarnation
                    lane.done = lane.committed = None
                    lane.fetched = start
                    self._forget_buffer(lane)


def cursor_of(lanes: Mapping[int, Lane], incarnation: str) -> str:
    """The cursor that reads these lanes of one queue, each behind what was fetched last."""
    return cursor_at(incarnation, {number: lane.fetched or ZERO_ID for number, lane in lanes.items()})
