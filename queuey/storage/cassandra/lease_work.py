"""Where the calls of lease groups are carried out: on the server's event loop, or in threads.

A group's work is plain code that waits for statements in the middle of a rule. On the loop it is carried out in a greenlet: where
it waits for a future, the loop goes on with other work, and comes back to it later. So a step wakes no thread, and its statements
are sent with those of the same turn (docs/decisions/045). Commands and servers under WSGI have no such loop. There a thread
carries the work out, and sleeps where it waits.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from queuey.errors import OutcomeUnknown
from queuey.future import Future, Inbox
from queuey.locks import new_lock

__all__ = ["GroupTask", "GroupWork", "awaited"]

log = logging.getLogger(__name__)

T = TypeVar("T")

THREADS = 16
"""Groups that threads carry out at the same time. A thread waits for the nodes most of the time."""
_LONG_SECONDS = 0.01
"""Work that takes longer at a stretch keeps the loop's other work waiting."""
LONG_ONES, IN_THREAD = 3, 100
"""Stretches of a group's work that keep the loop for long, and those after them that a thread carries out. A single one may have
waited for a processor."""
_LOOK_SECONDS = 0.002
"""How often a loop that is about to end looks whether work that waits can go on."""


def awaited(future: Future[T]) -> T:
    """The outcome of a future. Work on the loop lets other work go on until then; elsewhere the thread waits.

    The work must hold no lock here.

    :raises BaseException: the error that was set.
    """
    if not future.done:
        here = getcurrent()
        if isinstance(here, _OnLoop):
            here.wait(future)
        else:
            return future.wait()
    return future.result()


class _OnLoop(greenlet):  # type: ignore[misc]
    """Work that an event loop carries out. It is made where that loop calls back, and not by other such work."""

    def __init__(self, work: Callable[[], object], inbox: Inbox) -> None:
        super().__init__(work)
        self.inbox = inbox
        self.awaits: Future[Any] | None = None
        self.began = 0.0
        """When it went on last."""
        self.was_long = False
        """It kept the loop too long at a stretch."""

    def wait(self, future: Future[Any]) -> None:
        """Let the loop go on until a future is done."""
        self.awaits = future
        future.add_done_callback(self._is_done)
        self.parent.switch()

    def _is_done(self, future: Future[Any]) -> None:
        self.inbox.arrives(partial(self.go_on, future))

    def go_on(self, after: Future[Any] | None) -> None:
        """Begin, or go on after a future that is done, unless it has gone on already."""
        if self.awaits is after and not self.dead:
            self.awaits, self.began = None, time.perf_counter()
            self.switch()
            self.measure()

    def give_up(self) -> None:
        """Let it go on, though what it waits for is not done: nobody knows the outcome."""
        self.awaits = None
        self.throw(OutcomeUnknown())

    def measure(self) -> None:
        """Note how long it has kept the loop."""
        self.was_long = self.was_long or time.perf_counter() - self.began > _LONG_SECONDS


class GroupWork:
    """Carries out the work of groups. Thread-safe."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="leases")
        self._lock = new_lock()
        self._inbox: Inbox | None = None
        self._soon = deque[Callable[[], object]]()
        """What the loop is to begin in its next turn."""
        self._on_loop = set[_OnLoop]()
        self._queued = 0
        """Work that waits for a thread."""

    def use(self, inbox: Inbox | None, patience_seconds: float) -> None:
        """Carry work out on the loop that runs in this thread, from now on.

        :param inbox: None stands for threads. Call it before the loop ends, and after the driver's connections have left it: work
            that is under way there is brought to its end here, as far as that takes no longer than ``patience_seconds``.
        """
        with self._lock:
            self._inbox = inbox
            soon, self._soon = self._soon, deque()
        for work in soon:
            self.begin(work)
        until = time.monotonic() + patience_seconds
        while inbox is None and self._on_loop and time.monotonic() < until:
            for one in [*self._on_loop]:
                if one.awaits is not None and one.awaits.done:
                    one.go_on(one.awaits)
            time.sleep(_LOOK_SECONDS)
        if inbox is None:
            for one in [*self._on_loop]:
                log.warning(
                    "the loop ends while calls of a lease group are under way: their callers cannot know what is done"
                )
                while not one.dead:  # it may wait for something else on its way to the end
                    one.give_up()

    def uses(self, inbox: Inbox) -> bool:
        """Whether the loop of this inbox carries out work."""
        return self._inbox is inbox

    def begin(self, work: Callable[[], object], *, in_thread: bool = False) -> None:
        """Begin work soon.

        :param in_thread: also if there is a loop.
        :raises RuntimeError: the threads have ended.
        """
        with self._lock:
            inbox = None if in_thread else self._inbox
            if inbox is not None:
                self._soon.append(work)
                inbox.arrives(self._begin_next)
                return
        self._submit(work)

    def _submit(self, work: Callable[[], object]) -> None:
        """:raises RuntimeError: the threads have ended, or the system gives no further one; the work is never begun then."""
        is_taken = False

        def begun() -> None:
            with self._lock:
                if not is_taken:  # the executor keeps what it had no thread for
                    return
                self._queued -= 1
            work()

        with self._lock:
            self._threads.submit(begun)
            self._queued += 1
            is_taken = True

    @property
    def lacks_threads(self) -> bool:
        """Whether work waits for a thread."""
        return self._queued > 0

    def _begin_next(self) -> None:
        """Begin what was to be begun first, in a turn of the loop."""
        with self._lock:
            inbox = self._inbox
            if inbox is None or not self._soon:
                return
            work = self._soon.popleft()
        one = _OnLoop(partial(self._carry_out, work), inbox)
        self._on_loop.add(one)
        one.go_on(None)

    def _carry_out(self, work: Callable[[], object]) -> None:
        try:
            work()
        finally:
            self._on_loop.discard(getcurrent())

    def aside(self, work: Callable[[], T]) -> T:
        """What long work returns. If the loop carries out the work that asks, a thread does this meanwhile, unless the threads
        have ended.
        """
        if not isinstance(getcurrent(), _OnLoop):
            return work()
        ended: Future[T] = Future()

        def carry_out() -> None:
            try:
                found = work()
            except BaseException as error:  # noqa: BLE001 - it is raised where the outcome is awaited
                ended.set_error(error)
            else:
                ended.set_result(found)

        try:
            self._submit(carry_out)
        except RuntimeError:  # the store is closed
            return work()
        return awaited(ended)

    def close(self) -> None:
        """End the threads. May be called again."""
        self._threads.shutdown(wait=False)


class GroupTask:
    """The work of one group, which is begun again and again. A thread carries it out while it takes long."""

    def __init__(self, work: GroupWork, what: Callable[[], object]) -> None:
        self._work, self._what = work, what
        self._long = 0
        """Stretches of work, one after the other, that kept the loop for long."""
        self._in_thread = 0
        """Stretches that are a thread's."""

    def begin(self) -> None:
        """See :meth:`GroupWork.begin`."""
        self._work.begin(self._what, in_thread=self._in_thread > 0)

    def goes_on_elsewhere(self) -> bool:
        """Whether the rest of the work is to be begun anew: a stretch of it has ended, and the next ones are a thread's, or the
        loop's again, or no loop carries out anything any more, or other work waits for this thread.
        """
        here = getcurrent()
        if isinstance(here, _OnLoop) and not self._work.uses(here.inbox):
            return True
        before, self._in_thread = self._in_thread, max(0, self._in_thread - 1)
        self._long = self._long + 1 if _has_taken_long() else 0
        if self._long >= LONG_ONES:
            self._long, self._in_thread = 0, IN_THREAD
        is_waited_for = self._work.lacks_threads and not isinstance(here, _OnLoop)
        return is_waited_for or (before > 0) is not (self._in_thread > 0)


def _has_taken_long() -> bool:
    """Whether the work that asks has kept the loop too long since it asked last."""
    here = getcurrent()
    if not isinstance(here, _OnLoop):
        return False
    here.measure()
    was_long, here.was_long, here.began = here.was_long, False, time.perf_counter()
    return was_long
