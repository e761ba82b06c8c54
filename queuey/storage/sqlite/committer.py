"""Group commit: one thread at a time writes, and waiting requests share its commits (G1).

A request submits a job and gets a future. Whoever commits takes all waiting jobs, runs them one after the other in one
``BEGIN IMMEDIATE`` transaction, commits, and only then completes their futures. While a commit is on its way to disk,
the next group gathers. A job that refuses its request raises before it writes anything, or writes inside
:meth:`Transaction.whole`; so it does not affect the other jobs of its group.

The committer's thread commits, and at the end of its turns the event loop commits light jobs while that is quick
(:mod:`queuey.storage.sqlite.loop_turns`). Both do it by :meth:`GroupWriter.commit`. The loop carries only what goes
well: what fails before the commit itself, and what would have to wait, it leaves to the thread.

Large jobs have a queue and groups of their own, each of a few megabytes. A group of small jobs goes between two of
them, so one message does not wait until all earlier batches are stored.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import apsw

from queuey.errors import StorageUnavailable
from queuey.future import Future
from queuey.locks import new_lock
from queuey.storage.sqlite.group_writer import GroupWriter
from queuey.storage.sqlite.loop_turns import TurnCommits
from queuey.storage.sqlite.writes import Aside, Group, Job, Write

log = logging.getLogger(__name__)

_GROUP = 4096
"""The most jobs of one transaction. It bounds the memory, and the wait of the first job."""
_LARGE = 64 << 10
"""A job with this many bytes is large."""
_LARGE_AT_ONCE = 4 << 20
"""Bytes of large jobs in one transaction, unless a single job has more. Small jobs wait for one such transaction."""


class Committer:
    """The one writer of a store file."""

    def __init__(self, writer: GroupWriter) -> None:
        self.writer = writer
        self.turns = TurnCommits(self._commit_on_loop, self.resubmit, writer.times)
        """Where an event loop says that it carries commits."""
        self._committing = new_lock()
        """Held by the thread that uses the connection."""
        self._waiting: SimpleQueue[Write | Aside | None] = SimpleQueue()
        self._large: deque[Write] = deque()
        self._closed = self._has_ended = False
        """Whether jobs are refused, and whether nobody takes what waits any more."""
        self._last: Job | None = None
        self._why_closed = "the store is closing; nothing was stored"
        self._close_lock = new_lock()
        self._thread = threading.Thread(target=self._work, name="committer", daemon=True)
        self._thread.start()

    def read(self, job: Job) -> Future[Any]:
        """Run a job that writes nothing between those that do, also while all of these are refused.

        :raises StorageUnavailable: by the future; the store is damaged or closed.
        """
        return self._enter(Write(job, False, Future(), 0, only_reads=True), is_light=False)

    def submit(self, job: Job, *, grows: bool, size: int = 0, is_light: bool = False) -> Future[Any]:
        """Run ``job`` in the next group's transaction.

        A large job may wait behind small jobs that come later.

        :param grows: the job needs more space, so it is refused when the disk is full up to the reserve.
        :param size: bytes to store, approximately.
        :param is_light: the event loop may run it: it takes no longer than its size says, and nothing that the loop does
            waits for it.
        :returns: completes with the job's value once the group is on disk.
        :raises StorageFull, StorageReadOnly, StorageUnavailable: by the future; nothing was written.
        :raises OutcomeUnknown: by the future; the commit itself failed.
        """
        return self._enter(Write(job, grows, Future(), size), is_light=is_light)

    def _enter(self, write: Write, *, is_light: bool) -> Future[Any]:
        if self._closed:
            write.future.set_error(StorageUnavailable(self._why_closed))
        elif not (is_light and self.turns.takes(write)):
            self._put(write)
        return write.future

    def resubmit(self, write: Write) -> None:
        """Let the committer's thread run a job that was put off."""
        if self._closed:
            write.future.set_error(StorageUnavailable(self._why_closed))
        else:
            self._put(write)

    def _put(self, item: Write | Aside) -> None:
        """Leave something to the thread."""
        self._waiting.put(item)
        if self._has_ended:  # the store was closed since the caller looked
            self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Refuse the jobs that the thread has not taken before its end. Two threads may call this at once."""
        with suppress(Empty):
            while True:
                left = self._waiting.get_nowait()
                if left is not None:
                    left.future.set_error(StorageUnavailable(self._why_closed))

    def run_between(self, work: Callable[[], None]) -> Future[None]:
        """Let the committer's thread do ``work`` outside of any transaction.

        :returns: completes when it is done; an error is logged and not passed on.
        """
        future: Future[None] = Future()
        if self._closed:
            future.set_result(None)
        else:
            self._put(Aside(work, future))
        return future

    def forsake(self, why: str) -> None:
        """Refuse all jobs, in the child of a fork.

        The thread does not exist there.
        """
        self._closed, self._why_closed = True, why
        self.turns.forsake()

    def close(self, last: Job | None = None) -> None:
        """Commit what was accepted, then end. Later jobs are refused.

        :param last: runs after all others are committed; in the queue it would overtake the large ones.
        """
        self.turns.end()
        with self._close_lock:
            if not self._closed:
                self._closed, self._last = True, last
                self._waiting.put(None)
        self._thread.join()
        self._has_ended = True
        self._refuse_waiting()

    def _work(self) -> None:
        ending = False
        while not ending or self._large:
            items = self._gathered()
            small = [item for item in items if type(item) is Write and item.size < _LARGE]
            if small:
                self._commit_in_thread(small)
            if len(small) < len(items):
                ending = ending or None in items
                self._large += [item for item in items if type(item) is Write and item.size >= _LARGE]
                self._step_aside([item for item in items if type(item) is Aside])
            del items, small  # an idle committer must hold no bodies
            if self._large:
                self._commit_in_thread(self._next_large())
        if self._last is not None:
            self._commit_in_thread([Write(self._last, False, Future(), 0)])

    def _commit_in_thread(self, group: Group) -> None:
        with self._committing:
            self.writer.wait_for_others(wanted=True)
            self.writer.commit(group)

    def _commit_on_loop(self, group: Group) -> bool:
        """Commit a group in the thread of an event loop.

        :returns: False if the committer's thread is at work, or has to try the group. Then nothing was stored.
        """
        if not self._committing.acquire(blocking=False):
            return False
        try:
            self.writer.wait_for_others(wanted=False)
            return self.writer.commit(group, on_loop=True)
        finally:
            self._committing.release()

    def _gathered(self) -> list[Write | Aside | None]:
        """What has come since the last group.

        It waits for something if nothing is left to do.
        """
        items = [] if self._large else [self._waiting.get()]
        return items + [self._waiting.get_nowait() for _ in range(min(self._waiting.qsize(), _GROUP - len(items)))]

    def _next_large(self) -> Group:
        """The large jobs of the next group.

        It is one job, or several if they are few bytes together.
        """
        group = [self._large.popleft()]
        left = _LARGE_AT_ONCE - group[0].size
        while self._large and self._large[0].size <= left:
            left -= self._large[0].size
            group.append(self._large.popleft())
        return group

    def _step_aside(self, asides: list[Aside]) -> None:
        for work, future in asides:
            try:
                with self._committing:
                    self.writer.wait_for_others(wanted=True)
                    work()
            except Exception as error:  # faulty work must not end the loop
                log.warning("work between commits failed: %s", error, exc_info=not isinstance(error, apsw.Error))
            future.set_result(None)
