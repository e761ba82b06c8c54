"""Threads for calls that the event loop does not serve; one parses batches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from queuey.future import LoopInbox, LoopRunner, give_way_to, run
from queuey.http.exchange import Answer, Call
from queuey.http.face import Operation, Runs
from queuey.http.pipeline import Pipeline
from queuey.server.threads import Line, SharedThreads

__all__ = ["Work"]

Done = Callable[[Any], object]
Failed = Callable[[BaseException], object]

HURRIED_SECONDS = 0.0005
"""Seconds that the loop waits for a busy thread at each socket event while large batches are under way. Otherwise it is
ten times as long."""


class Work:
    """Where calls are served, and the threads for those that the loop does not serve."""

    def __init__(self, pipeline: Pipeline, threads: int) -> None:
        """:param threads: the number of threads that may block."""
        self._pipeline = pipeline
        self._reads_elsewhere = pipeline.service.log.reads_elsewhere
        self._threads = SharedThreads(threads, "call", self._give_way)
        self._batches = SharedThreads(1, "batch", self._give_way)
        self._batches_under_way = 0
        self._switch_seconds = sys.getswitchinterval()
        self.inbox: LoopInbox
        """Where the loop goes on with the results of threads."""

    def open(self, inbox: LoopInbox) -> None:
        """Start to serve."""
        self.inbox = inbox

    def close(self) -> None:
        """Stop serving; calls under way in threads end first."""
        self._threads.close()
        self._batches.close()
        sys.setswitchinterval(self._switch_seconds)

    def on_loop(self, operation: Operation, call: Call) -> bool:
        """Whether the event loop serves this call; see :class:`~queuey.http.face.Runs`."""
        runs = operation.runs
        if runs is Runs.LOOP or (runs is Runs.BATCH and call.length <= operation.loop_bytes):
            return True
        if runs is Runs.READER and self._reads_elsewhere:
            return True
        return operation.is_light is not None and operation.is_light(self._pipeline.service, call)

    def start(self, payer: str, work: Callable[[], Any], done: Done, failed: Failed) -> None:
        """Do ``work`` in a thread that may block, then call back on the loop.

        ``done`` gets its result, or ``failed`` its error.

        :param payer: an application, or all other callers together: payers share the threads.
        """

        def carry() -> None:
            try:
                made = work()
            except BaseException as error:  # noqa: BLE001 - it belongs to whatever waits for this work
                self.inbox.arrives(partial(failed, error))
            else:
                self.inbox.arrives(partial(done, made))

        self._threads.add(payer, carry)

    def serve(
        self, operation: Operation, call: Call, payer: str, done: Callable[[Answer], object], failed: Failed
    ) -> None:
        """Serve a call away from the loop; the callbacks are those of :meth:`start`.

        One thread parses JSON batches. It gives way to the loop between its steps, and takes the next batch while a
        commit is under way. Several such threads would keep the loop from the interpreter for all their turns.
        """
        if operation.runs is not Runs.BATCH:
            self.start(payer, lambda: run(self._pipeline.answer(operation, call)), done, failed)
            return

        def back(go_on: Done, made: Any) -> None:
            self.inbox.arrives(partial(self._large_batches, -1))
            self.inbox.arrives(partial(go_on, made))

        self._large_batches(+1)
        line = Line(self._batches, payer)
        line.arrives(
            LoopRunner(self._pipeline.answer(operation, call), line, partial(back, done), partial(back, failed)).go_on
        )

    def _give_way(self) -> None:
        give_way_to(self.inbox)

    def _large_batches(self, more: int) -> None:
        """Count large batches under way.

        While there are any, threads yield to the loop sooner.

        That costs all threads a few percent.
        """
        self._batches_under_way += more
        if not self.inbox.closed:
            sys.setswitchinterval(HURRIED_SECONDS if self._batches_under_way else self._switch_seconds)
