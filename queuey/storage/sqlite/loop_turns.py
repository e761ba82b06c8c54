"""Commits at the end of the event loop's turns, as long as they are quick (docs/decisions/030).

A hand-over from the loop to the committer's thread and back takes a quarter to a third of the processor time of an
append. So the loop itself commits the writes of a turn. No reader is served during that time. So the thread has the
commits that are slow or large, and those while the log is copied into the file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

from queuey.future import Inbox
from queuey.locks import new_lock
from queuey.storage.sqlite.writes import Group, Write

__all__ = ["CommitTimes", "TurnCommits", "processor_waits"]

log = logging.getLogger(__name__)

MOST_JOBS, MOST_BYTES = 128, 128 << 10
"""Jobs of one turn that the loop commits, and their bytes."""
MOST_JOB_BYTES = 16 << 10
"""Bytes of one of them. Batches share commits of the thread, which works on while the loop reads the next ones."""
_MOST_TURNS = 4
"""Turns that writes wait at most while each brings more. A turn takes as long as its requests."""
_MOST_VAIN, _UNWAITED = 8, 63
"""After this many waits that brought nothing, as on a loop with little to do, this many commits do not wait."""
_ONE_IN = 100
"""Of this number of commits one may take longer than the limit."""
_MOST_SCORE, _FIRST_SCORE = 10 * _ONE_IN, 5 * _ONE_IN
"""Ten slow commits in a row end the loop's commits, or five of the first ones."""
_FAR_TOO_LONG = 20
"""A commit that takes this many times the limit ends them at once: the next may take as long."""
_FIRST_REST_SECONDS, _MOST_REST_SECONDS = 5.0, 300.0
"""How long the thread carries the commits before the loop tries again: each time twice as long."""
_LOOK_EACH = 250
"""Quick commits after which it looks how long the thread has waited for a processor, so that a slow one is excused by
little else than its own wait."""
_SCHEDULER = Path("/proc/thread-self/schedstat")
_LONG_SECONDS = 60.0
"""After a time of quick commits as long as this, the first rest is short again."""


def processor_waits() -> float:
    """Seconds that the calling thread was ready to run and had no processor; 0 where the kernel does not say."""
    try:
        return int(_SCHEDULER.read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class CommitTimes:
    """Decides by the times of commits whether the event loop carries them.

    ``elapsed`` is passed in, so a test needs no time. One thread at a time uses it, but for :attr:`is_quick`.
    """

    def __init__(
        self,
        limit_seconds: float,
        elapsed: Callable[[], float],
        switched: Callable[[str], None] = lambda to: None,
        waited: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """:param limit_seconds: 99 of 100 commits of the loop take no longer; 0 if it carries none.
        :param switched: hears of each change: ``loop`` or ``thread``.
        :param waited: seconds that this thread has waited for a processor. They say nothing about the disk.
        """
        self._limit, self._elapsed, self._switched, self._waited = limit_seconds, elapsed, switched, waited
        self._waits, self._commits = 0.0, 0
        """What ``waited`` said last, and the commits since."""
        self.is_quick = limit_seconds > 0
        """Whether the loop carries commits."""
        self._score = _FIRST_SCORE
        self._since = elapsed()
        """When the loop or the thread began to carry them."""
        self._rest = 0.0
        self._fastest = inf
        """Of the thread's commits, since the last look."""
        self._has_told = False

    def on_loop(self, seconds: float | None, whole: float) -> None:
        """A commit of the loop took this time.

        :param seconds: None if it wrote nothing.
        :param whole: with all jobs of its group.
        """
        self._commits += 1
        took = seconds or 0.0
        if took > self._limit or self._commits >= _LOOK_EACH:
            waited = self._waited_since()
            took, whole = took - waited, whole - waited
        if took > self._limit:
            self._score += _ONE_IN
        elif seconds is not None:
            self._score = max(self._score - 1, 0)
        if self._score >= _MOST_SCORE or whole > _FAR_TOO_LONG * self._limit:
            self.leave(f"they take longer than {self._limit * 1000:g} ms")

    def _waited_since(self) -> float:
        """Seconds that this thread has waited for a processor since the last look."""
        before, self._waits, self._commits = self._waits, self._waited(), 0
        return self._waits - before

    def leave(self, why: str) -> None:
        """Leave commits to the thread for some time.

        :param why: goes on after "since".
        """
        now = self._elapsed()
        lasted, self._since = now - self._since, now
        again = 2 * self._rest if lasted <= _LONG_SECONDS else 0.0
        self._rest = min(max(again, _FIRST_REST_SECONDS), _MOST_REST_SECONDS)
        self.is_quick, self._fastest = False, inf
        self._switched("thread")
        if not self._has_told:
            self._has_told = True
            log.info(
                "the event loop leaves commits to a thread for %g s, since %s; queuey_commit_switches_total counts how often",
                self._rest,
                why,
            )

    def in_thread(self, seconds: float) -> None:
        """A commit of the thread took this time.

        It may have waited for the interpreter, so only the fastest ones say how quick the disk is.
        """
        if self.is_quick or not self._limit:
            return
        self._fastest = min(self._fastest, seconds)
        now = self._elapsed()
        if now - self._since >= self._rest:
            self._since = now
            self.is_quick, self._fastest = self._fastest <= self._limit, inf
            if self.is_quick:
                self._score = _FIRST_SCORE
                self._switched("loop")


class TurnCommits:
    """Gathers the small writes of one turn of the event loop."""

    def __init__(self, commit: Callable[[Group], bool], to_thread: Callable[[Write], None], times: CommitTimes) -> None:
        """:param commit: commits a group in this thread, and completes its futures. If the thread has to do it, it does
        nothing and returns False.
        :param to_thread: leaves a write to the thread.
        """
        self._commit_group, self._to_thread, self._times = commit, to_thread, times
        self._lock = new_lock()
        self._inbox: Inbox | None = None
        self._is_held_off = False
        self._gathered: Group = []
        self._bytes = 0
        """Of what is gathered, since the last commit."""
        self._is_asked = False
        """The loop will call :meth:`_commit`."""
        self._stays_open = self._stayed_open = False
        """What is gathered waits one more turn, or has done so."""
        self._turns = self._seen = 0
        """Turns that it has waited for more, and how much there was in the last of them."""
        self._vain = self._unwaited = 0
        """Waits for more that brought nothing, one after the other, and commits since that did not wait."""

    def begin(self, inbox: Inbox) -> None:
        """Commit at the end of the turns of this loop, from now on. No work of the loop may wait for a commit and block it."""
        with self._lock:
            self._inbox, self._is_asked = inbox, False

    def end(self) -> None:
        """Leave everything to the thread: the loop ends."""
        with self._lock:
            self._inbox, self._is_asked = None, False
            left, self._gathered, self._bytes = self._gathered, [], 0
        for write in left:
            self._to_thread(write)

    def forsake(self) -> None:
        """Take nothing more, in the child of a fork."""
        self._inbox = None

    @contextmanager
    def held_off(self) -> Iterator[None]:
        """Leave everything to the thread while the block runs. One thread at a time does so."""
        self._is_held_off = True
        try:
            yield
        finally:
            self._is_held_off = False

    def takes(self, write: Write) -> bool:
        """Take a write for the end of this turn; False if the thread has to do it. Any thread may ask."""
        if write.size > MOST_JOB_BYTES:
            return False
        with self._lock:
            inbox = self._inbox
            if inbox is None or self._is_held_off or not self._times.is_quick:
                return False
            self._gathered.append(write)
            self._bytes += write.size
            is_asked, self._is_asked = self._is_asked, True
        if not is_asked:
            inbox.arrives(self._commit)
        return True

    def stay_open(self) -> bool:
        """Let what is gathered wait for one more turn, so that what the loop does there goes along. Any thread may ask.

        :returns: False if nothing is gathered, or has waited before.
        """
        with self._lock:
            if not self._gathered or self._stayed_open:
                return False
            self._stays_open = True
            return True

    def _waits_for_more(self) -> bool:
        """Whether what is gathered waits for the next turn: as long as each turn brings more, on a busy loop."""
        seen, self._seen = self._seen, len(self._gathered)
        has_grown = self._seen > seen
        if self._turns:
            self._vain = 0 if has_grown else self._vain + 1
        is_half_full = 2 * self._seen >= MOST_JOBS or 2 * self._bytes >= MOST_BYTES
        if not has_grown or is_half_full or self._turns == _MOST_TURNS:
            return False
        if self._vain >= _MOST_VAIN and self._unwaited < _UNWAITED:
            self._unwaited += 1
            return False
        self._unwaited = 0
        self._turns += 1
        return True

    def _commit(self) -> None:
        with self._lock:
            is_off = self._inbox is None or self._is_held_off or not self._times.is_quick
            if self._inbox is not None and (self._stays_open or (not is_off and self._waits_for_more())):
                self._stayed_open, self._stays_open = self._stayed_open or self._stays_open, False
                self._inbox.arrives(self._commit)
                return
            group, self._gathered, self._is_asked = self._gathered, [], False
            is_large = len(group) > MOST_JOBS or self._bytes > MOST_BYTES
            self._stayed_open, self._turns, self._seen, self._bytes = False, 0, 0, 0
        if not group:
            return
        if is_off or is_large or not self._commit_group(group):
            for write in group:
                self._to_thread(write)
