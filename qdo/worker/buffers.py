"""What a worker has under way in its partitions: messages fetched ahead, and jobs in order.

A lane is one partition. Its messages are worked on one after the other, or in several strands at once: then
messages of one key share a strand, and so keep their order. What is committed is the last message that is
finished together with all before it.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from qdo.client.values import Message
from qdo.client.wire import cursor_at
from qdo.groups.coordination import Claim, Offset, last_id_of
from qdo.worker.job import Context, Failed
from queuey.ids import EPOCH_TICKS, ZERO_ID, MessageId

__all__ = ["KeyQueue", "PartitionBuffer", "Prefetched"]

BEGINNING = last_id_of(EPOCH_TICKS)
"""Before all messages. Unlike no offset at all it can be recorded, and the next owner knows that somebody was here."""


class KeyQueue:
    """Messages of one lane that follow each other. What changes is guarded by the lock of its :class:`Prefetched`."""

    __slots__ = (
        "attempt",
        "began",
        "buffer",
        "context",
        "failed",
        "freed_bytes",
        "held",
        "lane",
        "queued",
        "resume_at",
        "running",
        "trouble",
        "untold",
    )

    def __init__(self, lane: PartitionBuffer, context: Context) -> None:
        self.lane = lane
        self.context = context
        self.buffer: deque[Message] = deque()
        self.freed_bytes = 0
        """Of messages that are done with, until the strand's turn is over."""
        self.running = False
        self.queued = False
        self.began = inf
        """When the turn under way began, by elapsed time."""
        self.attempt = 1
        """Of the first message in the buffer."""
        self.failed: Failed | None = None
        """The first messages of the buffer, when they are given up and that is not told yet."""
        self.untold = 0
        """Times that this could not be told."""
        self.trouble: str | None = None
        """Why not."""
        self.held = False
        """It can never be told: nothing begins any more until somebody claims the partition anew."""
        self.resume_at = -inf

    def begin_anew(self) -> None:
        """What comes next in the buffer was not tried before."""
        self.attempt = 1
        self.failed = self.trouble = None
        self.untold = 0
        self.held = False
        self.resume_at = -inf


class PartitionBuffer:
    """One owned partition."""

    __slots__ = (
        "_ahead",
        "_order",
        "at_end",
        "claim",
        "committed",
        "done",
        "fetched",
        "from_end",
        "incarnation",
        "open",
        "read_upto",
        "strands",
    )

    def __init__(
        self, claim: Claim, offset: Offset | None, contexts: Sequence[Context], *, from_end: bool = False
    ) -> None:
        """:param contexts: one for each strand.
        :param from_end: without an offset it begins with messages to come.
        """
        self.claim = claim
        self.strands = [KeyQueue(self, context) for context in contexts]
        self.incarnation = "" if offset is None else offset.incarnation
        """Of the queue that the places below are of; empty before anything is known."""
        self.done: MessageId | None = None if offset is None else offset.message_id
        """The last message that is finished with all before it."""
        self.committed = self.done
        self.fetched: MessageId | None = self.done
        """The last message that was fetched."""
        self.from_end = from_end and offset is None
        self.open = True
        """New jobs may begin."""
        self.at_end = False
        """The last look found nothing more."""
        self.read_upto = 0
        """Ticks: everything up to this moment was fetched."""
        self._order: deque[MessageId] = deque()
        """Fetched and not finished with all before them; only kept where there are several strands."""
        self._ahead: set[MessageId] = set()
        """Finished before one that comes earlier."""

    @property
    def running(self) -> bool:
        return any(strand.running for strand in self.strands)

    @property
    def unfinished(self) -> int:
        """Messages fetched that hold up the offset."""
        return len(self._order) if len(self.strands) > 1 else len(self.strands[0].buffer)

    @property
    def dirty(self) -> bool:
        """Something finished is not committed; at most once, what is committed runs ahead of what is finished."""
        return self.done is not None and (self.committed is None or self.committed < self.done)

    @property
    def idle(self) -> bool:
        """Nothing fetched, nothing under way, all committed."""
        return not self.running and not any(strand.buffer for strand in self.strands) and not self.dirty

    @property
    def held(self) -> bool:
        """Nothing begins here any more."""
        return all(strand.held for strand in self.strands)

    def is_over(self, most: int) -> bool:
        """Nothing is left to do here, as far as the last look knew, but for what is held.

        :param most: messages that are fetched and not finished; behind this many that are held back no others are fetched.
        """
        if self.running or self.dirty or any(strand.buffer and not strand.held for strand in self.strands):
            return False
        return self.at_end or self.held or self.unfinished >= most

    def take(self, message: Message) -> int:
        """Put a message that was fetched behind those before it.

        :returns: bytes that are kept of it: none behind one that is held.
        """
        if len(self.strands) > 1:
            self._order.append(message.id)
        strand = self.strand_of(message)
        if strand.held:
            return 0
        strand.buffer.append(message)
        return len(message.body)

    def strand_of(self, message: Message) -> KeyQueue:
        """Messages of one key share a strand; those without a key are spread."""
        if len(self.strands) == 1:
            return self.strands[0]
        number = message.id.ticks if message.key is None else zlib.crc32(message.key.encode())
        return self.strands[number % len(self.strands)]

    def finish(self, message_id: MessageId) -> None:
        """A message is done with; with several strands, call it with the lock held."""
        if len(self.strands) == 1:
            self.done = message_id
            return
        self._ahead.add(message_id)
        while self._order and self._order[0] in self._ahead:
            self.done = self._order.popleft()
            self._ahead.remove(self.done)

    def start_over(self, incarnation: str, start: MessageId) -> None:
        """The places so far count no more; nothing is in the buffers. A start behind the beginning is committed, or the next owner would choose another."""
        self.incarnation = incarnation
        self.done = start if start > ZERO_ID else None
        self.committed = None
        self.fetched = start
        self.from_end = False  # whatever is made anew is so while the group is at work
        self.read_upto = 0
        self._order.clear()
        self._ahead.clear()
        for strand in self.strands:
            strand.begin_anew()


class Prefetched:
    """All that a worker owns. Thread-safe; jobs and fetches run outside of its lock."""

    def __init__(self, *, prefetch_messages: int, prefetch_bytes: int) -> None:
        self.lock = threading.Condition()
        self._by_claim: dict[Claim, PartitionBuffer] = {}
        self._by_queue: dict[str, dict[int, PartitionBuffer]] = {}
        self._ready: deque[KeyQueue] = deque()
        self._most = prefetch_messages
        self._most_bytes = prefetch_bytes
        self.bytes = 0
        """Of bodies fetched and not finished yet."""
        self.closed = False

    def __len__(self) -> int:
        return len(self._by_claim)

    def all(self) -> list[PartitionBuffer]:
        with self.lock:
            return list(self._by_claim.values())

    def queues(self) -> list[str]:
        with self.lock:
            return list(self._by_queue)

    def add(self, lane: PartitionBuffer) -> None:
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

    def _forget_buffer(self, lane: PartitionBuffer) -> None:
        for strand in lane.strands:
            while strand.buffer and not strand.running:  # whoever runs it stops after this message, and then it is done
                self.bytes -= len(strand.buffer.pop().body)

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

    def hungry(self, queue: str) -> tuple[list[PartitionBuffer], bool]:
        """Prefetched of a queue that want messages, and whether these are all of its lanes."""
        with self.lock:
            lanes = [lane for lane in self._by_queue.get(queue, {}).values() if lane.open and not lane.held]
            if self.bytes >= self._most_bytes:
                return [], False
            wanting = [lane for lane in lanes if lane.unfinished < self._most]
            return wanting, len(wanting) == len(lanes)

    def fill(
        self, lanes: Mapping[int, PartitionBuffer], messages: Iterable[Message], *, more: bool, upto: int = 0
    ) -> None:
        """Take over a page that was read for these lanes, by number.

        :param upto: its watermark, ticks.
        """
        with self.lock:
            for lane in lanes.values():
                lane.at_end = not more
                if not more:
                    lane.read_upto = max(lane.read_upto, upto)
            for message in messages:
                lane = lanes[message.partition]
                lane.fetched = message.id
                if lane.open:
                    self.bytes += lane.take(message)
            for lane in lanes.values():
                for strand in lane.strands:
                    self._enqueue(strand)

    def gone(self, queue: str) -> None:
        """A queue is not there: nothing more can be read of it."""
        with self.lock:
            for lane in self._by_queue.get(queue, {}).values():
                lane.at_end = True

    # Working

    def _enqueue(self, strand: KeyQueue) -> None:
        if strand.lane.open and strand.buffer and not strand.running and not strand.queued:
            strand.queued = True
            self._ready.append(strand)
            self.lock.notify()

    def next_ready(self, now: float, clock_elapsed: Callable[[], float]) -> KeyQueue | None:
        """Wait for a strand with something to do, and mark it running; None once closed.

        Those that wait for another attempt are passed over until their time has come.
        """
        with self.lock:
            while not self.closed:
                rest = 1.0
                for _ in range(len(self._ready)):
                    strand = self._ready.popleft()
                    if not (strand.lane.open and strand.buffer):
                        strand.queued = False
                    elif strand.resume_at <= now:
                        strand.queued = False
                        strand.running = True
                        strand.began = now
                        return strand
                    else:
                        rest = min(rest, strand.resume_at - now)
                        self._ready.append(strand)
                self.lock.wait(max(rest, 0.001))
                now = clock_elapsed()
            return None

    def finished(self, strand: KeyQueue, count: int) -> bool:
        """The first ``count`` messages of the buffer are done with. Belongs to who runs the strand.

        :returns: whether there is another one that may begin now.
        """
        lane, buffer = strand.lane, strand.buffer
        done = [buffer.popleft() for _ in range(count)]
        strand.freed_bytes += sum([len(message.body) for message in done])
        strand.attempt = 1
        if len(lane.strands) == 1:
            lane.finish(done[-1].id)
        else:
            with self.lock:
                for message in done:
                    lane.finish(message.id)
        return lane.open and bool(buffer)

    def rest(self, strand: KeyQueue, resume_at: float = -inf) -> None:
        """A strand's turn is over; not to begin again before ``resume_at``."""
        with self.lock:
            strand.running = False
            strand.began = inf
            strand.resume_at = resume_at
            self.bytes -= strand.freed_bytes
            strand.freed_bytes = 0
            if not strand.lane.open:
                self._forget_buffer(strand.lane)
            self._enqueue(strand)
            self.lock.notify_all()

    def hold(self, strand: KeyQueue, count: int) -> None:
        """Begin nothing behind the first ``count`` messages of the buffer, and let go of it: it would take the room of others."""
        with self.lock:
            strand.held = True
            while len(strand.buffer) > count:
                self.bytes -= len(strand.buffer.pop().body)

    def all_held(self, queue: str) -> bool:
        """Whether nothing more of a queue is wanted, for as long as its lanes are these."""
        with self.lock:
            return all(lane.held for lane in self._by_queue.get(queue, {}).values())

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.lock.notify_all()

    def at_end(self) -> bool:
        """Whether nothing is left to do, as far as the last look knew."""
        return all(lane.is_over(self._most) for lane in self.all())

    def waiting(self) -> list[tuple[int, MessageId | None]]:
        """Of each lane: how many messages are fetched and not finished, and the first of them."""
        found: list[tuple[int, MessageId | None]] = []
        for lane in self.all():
            firsts = []
            for strand in lane.strands:
                with contextlib.suppress(IndexError):  # a job has just finished the last one
                    firsts.append(strand.buffer[0].id)
            found.append((sum(len(strand.buffer) for strand in lane.strands), min(firsts, default=None)))
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

        :param start: what lanes are read behind that begin at the end; ZERO_ID if none of the group does.
        """
        with self.lock:
            for lane in self._by_queue.get(queue, {}).values():
                if lane.incarnation != incarnation and not lane.running:
                    self._forget_buffer(lane)
                    lane.start_over(incarnation, start if lane.from_end else min(start, BEGINNING))


def cursor_of(lanes: Mapping[int, PartitionBuffer], incarnation: str) -> str:
    """The cursor that reads these lanes of one queue, each behind what was fetched last."""
    return cursor_at(incarnation, {number: lane.fetched or ZERO_ID for number, lane in lanes.items()})
