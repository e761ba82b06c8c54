"""The error bound of this server's clock, and the times that writes carry.

G3, rule 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from statistics import median

from queuey.clock import Clock
from queuey.errors import ClockUnsafe
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.locks import new_lock

SAMPLE_SECONDS = 5.0
"""Seconds between two readings of the nodes' clocks."""
_OLDEST_SECONDS = 30.0
"""Age from which on a reading of a node's clock is ignored."""
_AGEING_SECONDS = _OLDEST_SECONDS - 1.5 * SAMPLE_SECONDS
"""Age from which on any new reading replaces the last one: waiting longer might leave none."""
_SILENT_SECONDS = 2.5 * SAMPLE_SECONDS
"""Readiness reports a problem when no node has answered for this long."""
_DRIFT = 0.0002
"""How much two healthy clocks may drift apart: 200 millionths."""


@dataclass(frozen=True)
class _Sample:
    """The result of one round trip to a node's clock."""

    offset_ticks: int
    """The node's clock minus our elapsed time, both in ticks."""
    doubt_seconds: float
    """Half of the round trip. When in it the node read its clock is not known."""
    at: float
    """Our elapsed time at that moment."""


class ClockGuard:
    """Compares the wall clock with the clocks of the store's nodes. Thread-safe.

    The nodes' clocks are known relative to this machine's elapsed time, which no step of the wall clock moves. So a
    step shows at the very next stamp, not at the next round trip. The median of the nodes counts, so that one node's
    bad clock stops no server.
    """

    def __init__(self, clock: Clock, bound_seconds: float) -> None:
        self._clock = clock
        self._bound = bound_seconds
        self._lock = new_lock()
        self._samples: dict[object, _Sample] = {}
        self._reference: _Sample | None = None
        self.refused = 0
        """Calls that were refused."""

    def learn(self, node: object, node_ticks: int, asked: float, answered: float) -> None:
        """Take a reading of a node's clock.

        :param asked: our elapsed seconds when the question left; ``answered``, when the answer came.
        """
        middle = (asked + answered) / 2
        sample = _Sample(node_ticks - round(middle * TICKS_PER_SECOND), (answered - asked) / 2, answered)
        with self._lock:
            last = self._samples.get(node)
            # A slow round trip is less exact than the last reading, as long as that one is fresh.
            age = inf if last is None else answered - last.at
            if last is None or age > _AGEING_SECONDS or sample.doubt_seconds <= last.doubt_seconds + age * _DRIFT * 10:
                self._samples[node] = sample
            self._samples = {at: one for at, one in self._samples.items() if answered - one.at < _OLDEST_SECONDS}
            fresh = self._samples.values()
            if not fresh:
                return  # the process was stopped in mid-question for so long that all readings are void
            middle_one = median(one.offset_ticks for one in fresh)
            self._reference = _Sample(
                round(middle_one), median(one.doubt_seconds for one in fresh), max(one.at for one in fresh)
            )

    def error_seconds(self) -> float:
        """The most that this clock may be off the nodes' time.

        Infinite while no node has answered.
        """
        reference = self._reference
        if reference is None:
            return inf
        elapsed = self._clock.elapsed()
        age = elapsed - reference.at
        if age > _OLDEST_SECONDS:
            return inf
        off = self._clock.now_ticks() - round(elapsed * TICKS_PER_SECOND) - reference.offset_ticks
        return abs(off) / TICKS_PER_SECOND + reference.doubt_seconds + age * _DRIFT

    def strays(self) -> list[str]:
        """Nodes whose clocks are surely off those of the others by more than the bound, each in a sentence.

        They stop no server. But such a node dates what it decides in transactions, and a deletion that a server dates may
        then come too early to delete it.
        """
        with self._lock:
            samples, reference = dict(self._samples), self._reference
        if reference is None:
            return []
        off = {at: (one.offset_ticks - reference.offset_ticks) / TICKS_PER_SECOND for at, one in samples.items()}
        return [
            f"the clock of the Cassandra node {at} is {seconds:+.3f} s off those of the others: set it right"
            for at, seconds in off.items()
            if abs(seconds) - samples[at].doubt_seconds - reference.doubt_seconds > self._bound
        ]

    def is_safe(self) -> bool:
        """Whether the error is surely under the bound."""
        return self.error_seconds() <= self._bound

    def check(self) -> None:
        """:raises ClockUnsafe: the error may exceed the bound; nothing was stored, and it may pass without help."""
        error = self.error_seconds()
        if error > self._bound:
            self.refused += 1
            raise ClockUnsafe(self.describe(error))

    def describe(self, error: float) -> str:
        """The problem, in words for an operator."""
        if error == inf:
            return "no Cassandra node has told its time lately: nothing was stored, try again"
        return (
            f"this server's clock may be {error:.3f} s off those of the Cassandra nodes, "
            f"more than the {self._bound:.3f} s allowed: nothing was stored; set the clock right"
        )

    def problem(self) -> str | None:
        """A sentence for readiness, None if all is well."""
        reference = self._reference
        silence = inf if reference is None else self._clock.elapsed() - reference.at
        if silence > _SILENT_SECONDS:
            return "no Cassandra node has answered lately"
        error = self.error_seconds()
        return self.describe(error) if error > self._bound else None


_MOST_APART = 5
"""See :meth:`WriteTimes.seconds_ahead`."""


class WriteTimes:
    """The times in microseconds that decide between two writes of one row.

    Servers' clocks may differ by twice the bound. So a write that undoes another is dated later by as much: a delete
    beats every append that was acknowledged before it, on whichever server. Within one process a deletion beats any earlier
    call, and an overwrite all but deletions, which its caller names.
    """

    def __init__(self, clock: Clock, bound_seconds: float) -> None:
        self._clock = clock
        self._apart = round(2 * bound_seconds * 1_000_000)
        self._lock = new_lock()
        self._appended = self._put = self._last_put = 0

    def _now(self) -> int:
        return (self._clock.now_ticks() - EPOCH_TICKS) // 10

    def append(self) -> int:
        """For a row that was never written before."""
        with self._lock:
            self._appended = max(self._now(), self._appended)
            return self._appended

    def put(self, attempt: int = 0, *, over: int = 0) -> int:
        """For a row that replaces an existing one.

        :param attempt: from the second one on, it is later than any deletion that was answered before.
        :param over: the date of the row that is replaced, or of its deletion; 0 if none is known. So of two overwrites,
            the one that begins when the other is answered wins, whichever servers take them.
        """
        with self._lock:
            now = max(self._now(), self._appended)  # the clock may have been set back since
            date = now + (1 + 2 * attempt) * self._apart
            if attempt == 0:
                date = self._put = max(date, self._put + 1)
            date = max(date, over + 1)
            self._last_put = max(date, self._last_put)
            return date

    def seconds_ahead(self, date: int) -> float:
        """How long a deletion by another server might not beat an overwrite of this date.

        Where clocks are no more than the bound off those of the nodes, the third attempt of a server that is ahead by the bound
        dates an overwrite five such differences ahead of one that is behind by it. So no wait is longer, even after this
        server's clock was set back by an hour: then calls are refused, and none of them may hang.
        """
        return min(max(0, date - self._apart - self._now()), _MOST_APART * self._apart) / 1_000_000

    def delete(self) -> int:
        """For the removal of a row.

        No deletion has to beat an earlier one. So none is remembered: those that are refused, or undo appends, while the
        clock is wrong date no later ones.
        """
        with self._lock:
            now = max(self._now(), self._appended)
            return max(now + 2 * self._apart, self._last_put + 1)
