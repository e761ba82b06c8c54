"""The threads that run jobs of leased messages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from qdo.worker.job import FailedMessages, RejectMessage, RetryLater, StopWorker
from qdo.worker.leases.buffer import LeaseBuffer
from qdo.worker.leases.context import LeaseContext, by_queue
from qdo.worker.leases.values import Ended, HeldMessage, JobOutcome, Turn, lease_until
from qdo.worker.options import WorkerOptions
from qdo.worker.work import JobCaller
from queuey.clock import Clock
from queuey.tracebacks import bounded

__all__ = ["LeaseThreads"]

log = logging.getLogger(__name__)

MOST_TRACEBACK = 4000
"""Characters of a traceback that go with a dead letter."""


class LeaseThreads:
    """Runs jobs in ``options.threads`` threads. A job is called once for each delivery: the group decides about retries."""

    def __init__(
        self, caller: JobCaller, options: WorkerOptions, buffer: LeaseBuffer, clock: Clock, stop: Callable[[], None]
    ) -> None:
        """:param stop: called when a job asks for the end of the worker."""
        self.caller = caller
        self._options = options
        self._buffer = buffer
        self._clock = clock
        self._stop = stop
        self.member = ""

    def start(self, member: str) -> None:
        self.member = member
        for number in range(self._options.threads):
            threading.Thread(target=self._run, args=(number,), name=f"job-{number}", daemon=True).start()

    def _run(self, number: int) -> None:
        context = LeaseContext(self._options, self.member, self._clock)
        while (turn := self._buffer.take(number)) is not None:
            ended: list[Ended] = []
            try:
                self._work(turn, context, ended)
            except BaseException:  # a thread that ended nobody would miss
                log.exception("a worker's thread failed")
                if turn.current:
                    ended.append(Ended(turn.current, JobOutcome.FAILED))
                    turn.current = ()
            finally:
                if turn.current:
                    ended.append(Ended(turn.current, JobOutcome.GIVEN_BACK))
                self._buffer.end(number, ended)

    def _work(self, turn: Turn, context: LeaseContext, ended: list[Ended]) -> None:
        """Make the calls of a turn, and note how they end."""
        done: list[HeldMessage] = []
        try:
            self._make_calls(turn, context, ended, done)
        finally:
            if done:
                ended.append(Ended(done, JobOutcome.DONE))

    def _make_calls(self, turn: Turn, context: LeaseContext, ended: list[Ended], done: list[HeldMessage]) -> None:
        """:param done: gets the messages of calls that returned, and left no results."""
        elapsed, holdings = self._clock.elapsed, self._buffer.holdings
        now = elapsed()
        while not holdings.has_ended and turn.begin_next(now):
            held = turn.current
            if lease_until(held) <= now:  # somebody else may have it, or gets it sooner so
                ended.append(Ended(held, JobOutcome.GIVEN_BACK))
                turn.current = ()
                continue
            context.begin(held)
            try:
                one = self._attempt(held, context)
            except StopWorker:
                self._buffer.stop()  # before this thread, or another one, begins a job
                self._stop()
                break
            if one is None:
                done.extend(held)
            else:
                ended.append(one)
            turn.current = ()
            now = elapsed()

    def _attempt(self, held: Sequence[HeldMessage], context: LeaseContext) -> Ended | None:
        """Call the job once.

        :returns: None if it returned, and left no results.
        """
        messages = [one.delivery for one in held]
        try:
            self.caller.call(messages, context)
        except StopWorker:
            raise
        except RejectMessage as error:
            failed = FailedMessages(context.queue, messages, context.attempt, error)
            log.warning(
                "%s is rejected after attempt %d: %s",
                *(failed.subject(context.queue), context.attempt, failed.reason),
                exc_info=failed.shown,
            )
            traceback = bounded(failed.traceback, MOST_TRACEBACK) if failed.has_traceback else ""
            return Ended(held, JobOutcome.REJECTED, failed.reason, traceback, results=by_queue(error.results))
        except Exception as error:
            failed = FailedMessages(context.queue, messages, context.attempt, error)
            delay = error.seconds if isinstance(error, RetryLater) else None
            log.warning(
                "%s: attempt %d failed%s: %s",
                failed.subject(context.queue),
                context.attempt,
                "" if delay is None else f", again in {delay:g} s",
                failed.reason,
                exc_info=failed.shown,
            )
            return Ended(held, JobOutcome.FAILED, delay=delay)
        if context.is_lost:
            log.warning("the lease of %s in %s ended before its job did", messages[0].id.hex, context.queue)
        if not context.results:
            return None
        return Ended(held, JobOutcome.DONE, results=context.results, instead=context.instead)
