"""What every way to work has: its life, its figures, and the call of the job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qdo.client import Client
from qdo.client.values import Message
from qdo.worker.job import Context, Job, StopWorker
from qdo.worker.options import WorkerOptions
from qdo.worker.runners import runner_of
from qdo.worker.spans import job_span
from qdo.worker.unread import NobodyReads
from queuey.clock import SystemClock
from queuey.ids import TICKS_PER_SECOND, MessageId

__all__ = ["AnyWork", "Counts", "JobCaller", "WorkerFigures"]


@dataclass
class Counts:
    """What happened so far."""

    done: int = 0
    failed: int = 0
    """Attempts that raised."""
    dead: int = 0
    """Messages that were given up."""
    commits: int = 0
    refused: int = 0
    """Commits of partitions that came too late: somebody else owns the partition (G14)."""
    held: int = 0
    """Partitions that stand still, because their dead letter can never be stored."""
    lost: int = 0
    """Leases that ended before their messages were settled. Somebody else does these messages."""


@dataclass(frozen=True)
class WorkerFigures:
    """How a worker is doing at one moment."""

    counts: Counts = field(default_factory=Counts)
    rebalances: int = 0
    owned: int = 0
    prefetched: int = 0
    """Messages that are fetched and not finished."""
    lag_seconds: Sequence[float] = ()
    """The age of the first of these, of each partition that it owns, or of each queue that it has leased messages of."""
    connected: bool = False

    @classmethod
    def of(cls, work: AnyWork, *, connected: bool, rebalances: int = 0, owned: int = 0) -> WorkerFigures:
        """What a way to work counts now."""
        waiting, now = work.waiting(), SystemClock().now_ticks()
        lags = [0.0 if first is None else max(now - first.ticks, 0) / TICKS_PER_SECOND for _, first in waiting]
        prefetched = sum(messages for messages, _ in waiting)
        return cls(replace(work.counts), rebalances, owned, prefetched, lags, connected)


class JobCaller:
    """Calls the job, and measures the calls."""

    def __init__(self, job: Job, options: WorkerOptions) -> None:
        self._runner = runner_of(job, options.processes)
        self._batch = options.batch
        self._elapsed = (options.clock or SystemClock()).elapsed
        self.took: Callable[[float], None] | None = None
        """Gets the seconds of each call."""
        self.failed: Callable[[Sequence[Message], Context, Exception], None] | None = None
        """Gets what a call raised, before anything else does."""
        self.is_unread = False
        """Nobody reads what jobs print, and a call failed for that."""

    def call(self, messages: Sequence[Message], context: Context) -> None:
        """:raises Exception: whatever the job raises."""
        with job_span(messages, context, together=self._batch > 1):
            self._call(messages, context)

    def _call(self, messages: Sequence[Message], context: Context) -> None:
        what = messages[0] if self._batch == 1 else list(messages)
        began = 0.0 if self.took is None else self._elapsed()
        try:
            self._runner.call(what, context)
        except Exception as error:
            self.is_unread = self.is_unread or isinstance(error, NobodyReads)
            if self.failed is not None and not isinstance(error, StopWorker):
                self.failed(messages, context, error)
            raise
        finally:
            if self.took is not None:
                self.took(self._elapsed() - began)

    def close(self) -> None:
        """Let go of processes and of the event loop."""
        self._runner.close()


class AnyWork(ABC):
    """One way to get messages, to have the job called for them, and to record what became of them."""

    caller: JobCaller
    """What calls the job."""
    all_done = False
    """The end that ``exit_at_end`` asks for was reached, and everything that was there is done."""
    error: Exception | None = None
    """What ended a thread, and with it the worker."""

    @abstractmethod
    def run(self) -> None:
        """Work until something ends it.

        :raises QueueyError: what is done could not be recorded, and never will be.
        :raises Exception: whatever ``make_client`` raised in one of the threads.
        """

    @abstractmethod
    def stop(self, *, at_once: bool = False) -> None:
        """Let :meth:`run` end in order. It takes no lock, so a signal handler may call it.

        :param at_once: wait for nothing. What is not recorded will be done again.
        """

    def ending_without(self, make_client: Callable[[], Client]) -> Callable[[], Client]:
        """Have the worker end if a thread gets no client: nobody would notice that the thread is missing."""

        def made() -> Client:
            try:
                return make_client()
            except Exception as error:
                self.error = error
                self.stop()
                raise

        return made

    @property
    @abstractmethod
    def worker_name(self) -> str:
        """The name by which others know the worker; empty as long as it has none."""

    @property
    @abstractmethod
    def counts(self) -> Counts:
        """What happened so far."""

    @property
    @abstractmethod
    def requests(self) -> int:
        """Requests sent so far for messages."""

    @abstractmethod
    def waiting(self) -> list[tuple[int, MessageId | None]]:
        """How many messages are fetched and not finished, and the first of them: an entry for each partition or queue."""

    @abstractmethod
    def figures(self) -> WorkerFigures:
        """For metrics. Sends no request."""

    @abstractmethod
    def troubles(self) -> list[dict[str, Any]]:
        """What stands still and why.

        An entry has ``queue``, ``why``, and for a single partition ``partition`` and ``message_id``.
        """
