"""When a run is over: all has arrived, or nothing more is to be expected."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from qdo.bench.workload import Workload

QUIET_SECONDS = 3.0
"""Without a new message, beyond the time in which one may come back from a lease."""

BACKOFF = {"first": 1.0, "factor": 2.0, "most": 30.0, "jitter": 0.1}
MAX_FAILURES = 20
"""What a lease group with order by key has if it is not said. Other systems try again at once."""


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


class RunEnd:
    """Looks at the progress of a run again and again, and says when its receivers may end.

    What was sent without an answer may arrive, and then it must not stand in for an acknowledged message that is still to
    come. So with such messages a run ends early only if each of them has arrived; otherwise it waits until nothing came for
    a while although the receivers were answered: a server that is away says nothing about what it has.
    """

    def __init__(self, workload: Workload) -> None:
        own = workload.queuey
        self._views, self._receivers = workload.views, workload.consumers
        self._linger, self._drain = own.linger, own.drain
        leases = 2 * own.receiving.visibility if workload.leases else 0
        self._quiet = QUIET_SECONDS + own.delay + own.receiving.wait + leases + _tries(workload)
        self._distinct, self._changed, self._answers = -1, 0.0, 0
        self._sent_at: float | None = None

    def is_over(self, progress: LoadProgress, now: float) -> bool:
        """Whether the run is over.

        :param now: seconds of a clock that does not jump; they rise from call to call.
        """
        if progress.distinct != self._distinct:
            self._distinct, self._changed, self._answers = progress.distinct, now, progress.answers
        if progress.is_sending:
            return False
        self._sent_at = now if self._sent_at is None else self._sent_at
        if now - self._sent_at >= self._drain + self._linger:
            return True
        idle = now - max(self._changed, self._sent_at)
        if progress.distinct >= (progress.stored + progress.unknown) * self._views:
            return idle >= self._linger
        return idle >= self._quiet and progress.answers - self._answers >= self._receivers


def _tries(workload: Workload) -> float:
    """Seconds for which a message that always fails closes its key: those behind it are not lost."""
    group, own = workload.queuey.group, workload.queuey.receiving
    if not (workload.keys and workload.leases and own.poison):
        return 0.0
    failures = group.get("max_failures", MAX_FAILURES)
    if not failures:
        return inf
    backoff = {**BACKOFF, **group.get("backoff", {})}
    pauses = (backoff["first"] * backoff["factor"] ** min(at, MAX_FAILURES) for at in range(failures - 1))
    return float(sum(min(backoff["most"], pause) for pause in pauses) * (1 + backoff["jitter"]))
