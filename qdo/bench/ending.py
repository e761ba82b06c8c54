"""When a run is over: all has arrived and is settled, or nothing more is to be expected."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from qdo.bench.workload import Workload

QUIET_SECONDS = 3.0
"""Without a new message, beyond the time in which one may come back from a lease."""

BACKOFF = {"first": 1.0, "factor": 2.0, "most": 30.0, "jitter": 0.1}
MAX_FAILURES = 20
"""What a lease group with order by key has if it is not said. Other systems try again at once."""
MOST_PAUSE = 3600.0
"""Of a lease group without that order."""


class LoadProgress(NamedTuple):
    """Of all processes."""

    is_sending: bool
    """There is still something to be sent."""
    stored: int
    unknown: int
    """Messages whose sending had no answer: they may arrive or not."""
    distinct: int
    """Messages that were received, in all views; the second and later receipts of one do not count."""
    answers: int = 0
    """To receivers, with messages or without."""
    unsettled: int = 0
    """Messages that were received, not settled, and must come again."""
    moves: int = 0
    """Receipts of such messages."""


class RunEnd:
    """Looks at the progress of a run again and again, and says when its receivers may end.

    What was sent without an answer may arrive, and then it must not stand in for an acknowledged message that is still to
    come. So with such messages a run ends early only if each of them has arrived; otherwise it waits until nothing came for
    a while although the receivers were answered: a server that is away says nothing about what it has. What was received
    and not settled is waited for in the same way, and each time that it comes the wait begins anew: so receivers that forget
    it again and again, or a key that it closes, may take any number of leases.
    """

    def __init__(self, workload: Workload, *, is_forgetful: bool = False) -> None:
        """:param is_forgetful: receipts are falsified to look as if they were not settled, which only the wait shows."""
        own = workload.queuey
        self._views, self._receivers = workload.views, workload.consumers
        self._linger, self._drain = own.linger, own.drain
        self._quiet = quiet_seconds(workload)
        if is_forgetful:
            self._linger = max(self._linger, self._quiet)
        self._came, self._answers, self._all_answers = (-1, 0, 0), 0, -1
        self._sent_at: float | None = None
        self.changed = 0.0
        """When something new came last, or something was settled that had been open."""
        self.answered = 0.0
        """When a receiver had an answer last."""

    def is_over(self, progress: LoadProgress, now: float) -> bool:
        """Whether the run is over.

        :param now: seconds of a clock that does not jump; they rise from call to call.
        """
        came = progress.distinct, progress.moves, progress.unsettled
        if came != self._came:
            self._came, self.changed, self._answers = came, now, progress.answers
        if progress.answers != self._all_answers:
            self._all_answers, self.answered = progress.answers, now
        if progress.is_sending:
            return False
        self._sent_at = now if self._sent_at is None else self._sent_at
        if now - self._sent_at >= self._drain + self._linger:
            return True
        idle = now - max(self.changed, self._sent_at)
        if not progress.unsettled and progress.distinct >= (progress.stored + progress.unknown) * self._views:
            return idle >= self._linger
        return idle >= self._quiet and progress.answers - self._answers >= self._receivers


def quiet_seconds(workload: Workload) -> float:
    """Seconds without anything new after which nothing more is to be expected of a system that answers."""
    own = workload.queuey
    leases = 2 * own.receiving.visibility if workload.leases else 0
    tries = 0.0
    if workload.leases and own.receiving.poison and (workload.keys or waits_for_failed(workload)):
        tries = _tries(workload)
    return QUIET_SECONDS + own.delay + own.receiving.wait + leases + tries


def beyond_drain(workload: Workload) -> str:
    """What a run does not find since its ``drain`` ends it too early for that, as the end of a sentence."""
    least = quiet_seconds(workload)
    if not workload.leases or least <= workload.queuey.drain:
        return ""
    if least == inf:
        return "; what is stranded is not found, since a message that always fails closes its key for ever"
    return f"; what is stranded at the end is found only with a drain of {least:g} s"


def most_failures(workload: Workload) -> int:
    """After which a message may be a dead letter; 0 is never."""
    found: int = workload.queuey.group.get("max_failures", MAX_FAILURES)
    return found


def waits_for_failed(workload: Workload) -> bool:
    """Whether a run has the time in which a message that always fails becomes a dead letter."""
    return _tries(workload) <= workload.queuey.drain


def pause_after(workload: Workload, failures: int) -> float:
    """The most seconds that a message waits after this number of failures."""
    own = workload.queuey.group.get("backoff", {})
    backoff = {**BACKOFF, **({} if workload.keys else {"most": MOST_PAUSE}), **own}
    pause = min(backoff["most"], backoff["first"] * backoff["factor"] ** min(failures - 1, MAX_FAILURES))
    return float(pause * (1 + backoff["jitter"]))


def _tries(workload: Workload) -> float:
    """Seconds for which a message that always fails closes its key: those behind it are not lost."""
    failures = most_failures(workload)
    return sum(pause_after(workload, at) for at in range(1, min(failures, 1000))) if failures else inf
