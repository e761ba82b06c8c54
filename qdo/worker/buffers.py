"""What a worker has under way in its partitions.

Messages fetched ahead, and how far each partition is.

::

    Prefetched ──has──► PartitionBuffer, one for each partition ──has──► KeyQueue, one or more

A partition with one key queue works on its messages one after the other. With several key queues it works on several
messages at once: messages of one key share a key queue, and so keep their order. What is committed is the last message
that is finished together with all messages before it.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from qdo.client.values import Message
from qdo.groups.coordination import Claim, CommittedOffset, last_id_of
from qdo.worker.job import Context, FailedMessages
from queuey.ids import EPOCH_TICKS, ZERO_ID, MessageId

__all__ = ["FetchedUpTo", "KeyQueue", "PartitionBuffer", "Prefetched"]

MOST_IN_A_PAGE = 1000
"""Messages of one partition that a server gives at once."""
BEGINNING = last_id_of(EPOCH_TICKS)
"""Before all messages. Unlike a missing offset it can be recorded: the next owner knows that the group was here."""


class KeyQueue:
    """Messages of one partition that follow each other.

    The lock of :class:`Prefetched` guards its fields.
    """

    __slots__ = (
        "attempt",
        "began",
        "buffer",
        "context",
        "failed",
        "freed_bytes",
        "give_ups",
        "held",
        "messages",
        "queued",
        "resume_at",
        "running",
        "trouble",
    )

    def __init__(self, buffer: PartitionBuffer, context: Context) -> None:
        self.buffer = buffer
        self.context = context
        self.messages: deque[Message] = deque()
        self.freed_bytes = 0
        """Bytes of messages that are finished. They count as fetched ahead until the turn ends."""
        self.running = False
        self.queued = False
        self.began = inf
        """When the turn under way began, by elapsed time."""
        self.attempt = 1
        """Of the first message."""
        self.failed: FailedMessages | None = None
        """The first messages, if they are given up and their dead letter is not stored yet."""
        self.give_ups = 0
        """Attempts to store it that failed."""
        self.trouble: str | None = None
        """Why the latest of them failed."""
        self.held = False
        """The dead letter can never be stored: nothing begins here until somebody claims the partition anew."""
        self.resume_at = -inf

    def start_over(self) -> None:
        """No message that comes next was tried before."""
        self.attempt = 1
        self.failed = self.trouble = None
        self.give_ups = 0
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
        "key_queues",
        "open",
        "read_upto",
    )

    def __init__(
        self, claim: Claim, offset: CommittedOffset | None, contexts: Sequence[Context], *, from_end: bool = False
    ) -> None:
        """:param contexts: one for each key queue.
        :param from_end: without an offset the partition begins with messages to come.
        """
        self.claim = claim
        self.key_queues = [KeyQueue(self, context) for context in contexts]
        self.incarnation = "" if offset is None else offset.incarnation
        """Of the queue that the ids below belong to; empty before it is known."""
        self.done: MessageId | None = None if offset is None else offset.message_id
        """The last message that is finished with all before it."""
        self.committed = self.done
        self.fetched: MessageId | None = self.done
        """The last message that was fetched."""
        self.from_end = from_end and offset is None
        self.open = True
        """New jobs may begin."""
        self.at_end = False
        """The last answer had no more messages."""
        self.read_upto = 0
        """Ticks: everything up to this moment was fetched."""
        self._order: deque[MessageId] = deque()
        """Ids fetched and not finished with all before them. Only kept with several key queues."""
        self._ahead: set[MessageId] = set()
        """Ids finished before one that comes earlier."""

    @property
    def running(self) -> bool:
        return any(key_queue.running for key_queue in self.key_queues)

    @property
    def unfinished(self) -> int:
        """Fetched messages that hold up the offset."""
        return len(self._order) if len(self.key_queues) > 1 else len(self.key_queues[0].messages)

    @property
    def dirty(self) -> bool:
        """Whether something finished is not committed.

        At most once, commits run ahead of what is finished.
        """
        return self.done is not None and (self.committed is None or self.committed < self.done)

    @property
    def idle(self) -> bool:
        """Whether nothing is fetched, nothing is under way, and everything is committed."""
        return not self.running and not any(key_queue.messages for key_queue in self.key_queues) and not self.dirty

    @property
    def held(self) -> bool:
        """Whether nothing begins here any more."""
        return all(key_queue.held for key_queue in self.key_queues)

    def is_over(self, most: int) -> bool:
        """Whether nothing is left to do here, as far as the last answer knew.

        What is held does not count. A partition in which nothing may begin is yet to be claimed anew, or given back.

        :param most: messages that are fetched and not finished, for more to be fetched. Behind more held ones nothing is.
        """
        if self.running or self.dirty or not self.open:
            return False
        if any(key_queue.messages and not key_queue.held for key_queue in self.key_queues):
            return False
        return self.at_end or self.held or self.unfinished > most

    def waiting(self) -> tuple[int, MessageId | None]:
        """How many messages are fetched and not finished, and the first of them."""
        firsts = []
        for key_queue in self.key_queues:
            with contextlib.suppress(IndexError):  # a job has just finished the last one
                firsts.append(key_queue.messages[0].id)
        return sum(len(key_queue.messages) for key_queue in self.key_queues), min(firsts, default=None)

    def put(self, message: Message) -> int:
        """Put a fetched message behind those before it.

        :returns: bytes that are kept of it. Behind a held message nothing is kept.
        """
        if len(self.key_queues) > 1:
            self._order.append(message.id)
        key_queue = self.key_queue_of(message)
        if key_queue.held:
            return 0
        key_queue.messages.append(message)
        return len(message.body)

    def key_queue_of(self, message: Message) -> KeyQueue:
        """Messages of one key share a key queue. Messages without a key are spread."""
        if len(self.key_queues) == 1:
            return self.key_queues[0]
        number = message.id.ticks if message.key is None else zlib.crc32(message.key.encode())
        return self.key_queues[number % len(self.key_queues)]

    def finish(self, message_id: MessageId) -> None:
        """A message is finished. With several key queues the caller holds the lock."""
        if len(self.key_queues) == 1:
            self.done = message_id
            return
        self._ahead.add(message_id)
        while self._order and self._order[0] in self._ahead:
            self.done = self._order.popleft()
            self._ahead.remove(self.done)

    def drop(self) -> int:
        """Drop what was fetched ahead, except in key queues that run.

        :returns: bytes that were dropped.
        """
        dropped = 0
        for key_queue in self.key_queues:
            while (
                key_queue.messages and not key_queue.running
            ):  # a running one ends after its message, then it is dropped
                dropped += len(key_queue.messages.pop().body)
        return dropped

    def start_over(self, incarnation: str, start: MessageId) -> None:
        """Read a queue that was made anew from ``start``.

        Nothing is fetched at this moment.

        A start behind the beginning is committed, or the next owner would choose another one.
        """
        self.incarnation = incarnation
        self.done = start if start > ZERO_ID else None
        self.committed = None
        self.fetched = start
        self.from_end = False  # whatever is made anew from now on is made while the group is at work
        self.read_upto = 0
        self._order.clear()
        self._ahead.clear()
        for key_queue in self.key_queues:
            key_queue.start_over()


class FetchedUpTo(NamedTuple):
    """How far a queue was read."""

    incarnation: str
    places: dict[int, MessageId]
    """By partition, the last message."""


class Prefetched:
    """The buffers of all partitions that a worker owns.

    It is thread-safe. Jobs and requests run outside its lock.
    """

    def __init__(self, *, prefetch_messages: int, prefetch_bytes: int) -> None:
        """:param prefetch_messages: of one partition, at most.
        :param prefetch_bytes: of all bodies together; one page may exceed it.
        """
        self.lock = threading.Condition()
        self._by_claim: dict[Claim, PartitionBuffer] = {}
        self._by_queue: dict[str, dict[int, PartitionBuffer]] = {}
        self._ready: deque[KeyQueue] = deque()
        self.portion = min((prefetch_messages + 1) // 2, MOST_IN_A_PAGE)
        """Messages of one partition in a page, at most."""
        self._most = prefetch_messages - self.portion
        """Messages of a partition that are fetched and not finished, for another page to have room."""
        self._most_bytes = prefetch_bytes
        self.bytes = 0
        """Of bodies fetched and not finished yet."""
        self.fetched = 0
        """Messages so far."""
        self.closed = False

    def all(self) -> list[PartitionBuffer]:
        with self.lock:
            return list(self._by_claim.values())

    def of_queue(self, queue: str) -> list[PartitionBuffer]:
        with self.lock:
            return list(self._by_queue.get(queue, {}).values())

    def add(self, buffer: PartitionBuffer) -> None:
        with self.lock:
            partition = buffer.claim.partition
            self._by_claim[buffer.claim] = buffer
            self._by_queue.setdefault(partition.queue, {})[partition.number] = buffer
            self.lock.notify_all()

    def shut(self, claims: Iterable[Claim], *, commits: bool = True) -> None:
        """Begin nothing more in these partitions, and drop what was fetched ahead.

        :param commits: what is done may be committed.
        """
        with self.lock:
            for claim in claims:
                buffer = self._by_claim.get(claim)
                if buffer is not None:
                    buffer.open = False
                    buffer.done = buffer.done if commits else buffer.committed  # what is refused was never recorded
                    self.bytes -= buffer.drop()

    def remove(self, claims: Iterable[Claim]) -> None:
        """Forget these partitions."""
        with self.lock:
            for claim in claims:
                buffer = self._by_claim.pop(claim, None)
                if buffer is None:
                    continue
                buffer.open = False
                self.bytes -= buffer.drop()
                buffers = self._by_queue.get(claim.partition.queue, {})
                if buffers.get(claim.partition.number) is buffer:
                    del buffers[claim.partition.number]
                if not buffers:
                    self._by_queue.pop(claim.partition.queue, None)

    # Fetching

    def wanting(self, queue: str) -> tuple[list[PartitionBuffer], bool]:
        """The buffers of a queue that have room, and whether these are all of them."""
        with self.lock:
            buffers = [each for each in self._by_queue.get(queue, {}).values() if each.open and not each.held]
            if self.bytes >= self._most_bytes:
                return [], False
            wanting = [buffer for buffer in buffers if buffer.unfinished <= self._most]
            return wanting, len(wanting) == len(buffers)

    def fill(
        self, buffers: Mapping[int, PartitionBuffer], messages: Iterable[Message], *, more: bool, upto: int = 0
    ) -> None:
        """Take over a page that was read for these buffers.

        The buffers come by partition number.

        :param more: there are messages behind the page.
        :param upto: the watermark of the page, ticks.
        """
        with self.lock:
            for buffer in buffers.values():
                buffer.at_end = not more
                if not more:
                    buffer.read_upto = max(buffer.read_upto, upto)
            for message in messages:
                buffer = buffers[message.partition]
                buffer.fetched = message.id
                if buffer.open:
                    self.fetched += 1
                    self.bytes += buffer.put(message)
            for buffer in buffers.values():
                for key_queue in buffer.key_queues:
                    self._enqueue(key_queue)

    def gone(self, queue: str) -> None:
        """A queue does not exist: nothing more can be read of it."""
        with self.lock:
            for buffer in self._by_queue.get(queue, {}).values():
                buffer.at_end = True

    # Working

    def _enqueue(self, key_queue: KeyQueue) -> None:
        if key_queue.buffer.open and key_queue.messages and not key_queue.running and not key_queue.queued:
            key_queue.queued = True
            self._ready.append(key_queue)
            self.lock.notify()

    def next_ready(self, now: float, clock_elapsed: Callable[[], float]) -> KeyQueue | None:
        """Wait for a key queue with something to do, and mark it running.

        It is None once closed.

        A key queue that waits for another attempt is passed over until its time comes.
        """
        with self.lock:
            while not self.closed:
                rest = 1.0
                for _ in range(len(self._ready)):
                    key_queue = self._ready.popleft()
                    if not (key_queue.buffer.open and key_queue.messages):
                        key_queue.queued = False
                    elif key_queue.resume_at <= now:
                        key_queue.queued = False
                        key_queue.running = True
                        key_queue.began = now
                        return key_queue
                    else:
                        rest = min(rest, key_queue.resume_at - now)
                        self._ready.append(key_queue)
                self.lock.wait(max(rest, 0.001))
                now = clock_elapsed()
            return None

    def finished(self, key_queue: KeyQueue, count: int) -> bool:
        """The first ``count`` messages are finished.

        Only the thread that runs the key queue may call it.

        :returns: whether another message may begin now.
        """
        buffer, messages = key_queue.buffer, key_queue.messages
        done = [messages.popleft() for _ in range(count)]
        key_queue.freed_bytes += sum([len(message.body) for message in done])
        key_queue.attempt = 1
        if len(buffer.key_queues) == 1:
            buffer.finish(done[-1].id)
        else:
            with self.lock:
                for message in done:
                    buffer.finish(message.id)
        return buffer.open and bool(messages)

    def end_turn(self, key_queue: KeyQueue, resume_at: float = -inf) -> None:
        """The turn of a key queue is over. The next one begins at ``resume_at`` or later."""
        with self.lock:
            key_queue.running = False
            key_queue.began = inf
            key_queue.resume_at = resume_at
            self.bytes -= key_queue.freed_bytes
            key_queue.freed_bytes = 0
            if not key_queue.buffer.open:
                self.bytes -= key_queue.buffer.drop()
            self._enqueue(key_queue)
            self.lock.notify_all()

    def hold(self, key_queue: KeyQueue, count: int) -> None:
        """Begin nothing behind the first ``count`` messages.

        What lies behind them is dropped, to leave others the room.
        """
        with self.lock:
            key_queue.held = True
            while len(key_queue.messages) > count:
                self.bytes -= len(key_queue.messages.pop().body)

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.lock.notify_all()

    @property
    def fetched_if_over(self) -> int | None:
        """How many messages were fetched so far; None if something is left to do, as far as the last answers knew."""
        with self.lock:
            return self.fetched if all(buffer.is_over(self._most) for buffer in self._by_claim.values()) else None

    def places_at_end(self) -> Mapping[str, FetchedUpTo] | None:
        """Where each queue was read to, but for partitions in which nothing begins any more; None as above."""
        with self.lock:
            if self.fetched_if_over is None:
                return None
            found: dict[str, FetchedUpTo] = {}
            for buffer in self._by_claim.values():
                if buffer.at_end and buffer.incarnation and not buffer.held:
                    queue, number = buffer.claim.partition.queue, buffer.claim.partition.number
                    fetched = found.setdefault(queue, FetchedUpTo(buffer.incarnation, {}))
                    fetched.places[number] = buffer.fetched or ZERO_ID
            return found

    # Committing

    def to_commit(self) -> dict[Claim, CommittedOffset]:
        """What is finished and not committed yet."""
        with self.lock:
            return {
                buffer.claim: CommittedOffset(buffer.incarnation, buffer.done)
                for buffer in self._by_claim.values()
                if buffer.dirty and buffer.done is not None
            }

    def committed(self, offsets: Mapping[Claim, CommittedOffset]) -> None:
        """These offsets are recorded. The next commit begins with others: it may not take all of them."""
        with self.lock:
            for claim, offset in offsets.items():
                if claim in self._by_claim:
                    buffer = self._by_claim[claim] = self._by_claim.pop(claim)
                    if buffer.incarnation == offset.incarnation:
                        buffer.committed = offset.message_id

    def drained(self, claims: Iterable[Claim]) -> list[Claim]:
        """Those with nothing under way or to commit, and those that were removed."""
        with self.lock:
            found = [(claim, self._by_claim.get(claim)) for claim in claims]
            return [claim for claim, buffer in found if buffer is None or (not buffer.running and not buffer.dirty)]

    def start_over(self, queue: str, incarnation: str, start: MessageId) -> None:
        """A queue turned out to be of this incarnation.

        Offsets of another incarnation count no more (G9).

        :param start: where buffers begin that begin at the end; ZERO_ID if none of the group does.
        """
        with self.lock:
            for buffer in self._by_queue.get(queue, {}).values():
                if buffer.incarnation != incarnation and not buffer.running:
                    self.bytes -= buffer.drop()
                    buffer.start_over(incarnation, start if buffer.from_end else min(start, BEGINNING))
