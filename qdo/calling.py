"""Three ways to call a job: in the worker's own thread, awaited on an event loop, or in another process."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from qdo.job import Context, Job

__all__ = ["Awaited", "Direct", "InProcesses", "caller_of", "is_async"]


class Direct:
    """In the thread that asks."""

    def __init__(self, job: Job) -> None:
        self.call = job

    def close(self) -> None:
        """Nothing was begun."""


class Awaited:
    """All coroutines on one event loop, in a thread of its own; who asks waits."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="async-jobs", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, what: Any, context: Context) -> None:
        """:raises Exception: whatever the job raises."""
        asyncio.run_coroutine_threadsafe(self._job(what, context), self._loop).result()

    def close(self) -> None:
        """End the loop; what it has not finished is not waited for."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class InProcesses:
    """In a pool of processes, for jobs that compute; job, messages and what it raises must be picklable."""

    def __init__(self, job: Job, processes: int) -> None:
        self._job = job
        # A terminal sends Ctrl-C to all of its processes: those of the jobs end when the worker says so.
        self._pool = ProcessPoolExecutor(
            processes,
            mp_context=get_context("spawn"),
            initializer=signal.signal,
            initargs=(signal.SIGINT, signal.SIG_IGN),
        )

    def call(self, what: Any, context: Context) -> None:
        """:raises Exception: whatever the job raises."""
        self._pool.submit(_there, self._job, what, context.plain()).result()

    def close(self) -> None:
        """Begin no more calls; those under way are not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


Caller = Direct | Awaited | InProcesses


def caller_of(job: Job, processes: int) -> Caller:
    """:param processes: 0 calls in this process."""
    if is_async(job):
        return Awaited(job)
    return InProcesses(job, processes) if processes else Direct(job)


def is_async(job: Job) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(job) or inspect.iscoroutinefunction(getattr(job, "__call__", None))  # noqa: B004


def _there(job: Job, what: Any, context: Context) -> None:
    """What a process of the pool does; what a job returns stays there."""
    job(what, context)
