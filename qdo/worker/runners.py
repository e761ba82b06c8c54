"""Three ways to call a job.

It is called in the thread of the worker, on an event loop, or in another process.

Whatever a job does is at worst a failed attempt. A job that calls ``sys.exit`` ends no thread, and a job whose process
dies takes no other process along.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.util import Finalize
from queue import SimpleQueue
from typing import Any

from qdo.client.tracing import current_trace
from qdo.worker.forked import end_process, in_one_process
from qdo.worker.job import Context, Job, StopWorker
from qdo.worker.spans import continued
from qdo.worker.unread import ending_if_unread

__all__ = ["Awaited", "Direct", "InProcesses", "JobEnded", "is_async", "runner_of"]

log = logging.getLogger(__name__)

LOOP_SECONDS = 1.0
"""For which a loop is waited for that a coroutine blocks."""


class JobEnded(Exception):
    """The job tried to end more than itself."""


@contextmanager
def _ending_nothing() -> Iterator[None]:
    try:
        yield
    except SystemExit as error:
        raise JobEnded(f"it called sys.exit({error.code!r}): to end the worker, raise qdo.StopWorker") from error
    except CancelledError as error:
        raise _ended_by(error) from error
    except (Exception, GeneratorExit):  # the latter closes a coroutine that nobody waits for any more
        raise
    except BaseException as error:  # such as the panic of a library in Rust
        raise _ended_by(error) from error


def _ended_by(error: BaseException) -> JobEnded:
    said = f"it raised {type(error).__name__}: to end the worker, raise qdo.StopWorker"
    return JobEnded(f"{said} ({error})" if str(error) else said)


class Direct:
    """Calls the job in the thread that asks."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def call(self, what: Any, context: Context) -> None:
        """:raises Exception: whatever the job raises."""
        _run(self._job, what, context)

    def close(self) -> None:
        """It has nothing to let go of."""


class Awaited:
    """Runs all coroutines on one event loop, in a thread of its own.

    The calling thread waits.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="async-jobs", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closed:  # a job may stop the loop, which others use
                with suppress(SystemExit, KeyboardInterrupt):  # they go to the job as well
                    self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, what: Any, context: Context) -> None:
        """:raises Exception: whatever the job raises.
        :raises StopWorker: :meth:`close` came before.
        """
        if self._closed:
            raise StopWorker
        coroutine = self._call(what, context)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:  # the loop is closed
            coroutine.close()
            raise StopWorker from error
        future.result()

    async def _call(self, what: Any, context: Context) -> None:
        with _ending_nothing(), ending_if_unread(), in_one_process():
            await self._job(what, context)

    def close(self) -> None:
        """End the loop. It does not wait for coroutines under way, nor for one that blocks the loop."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LOOP_SECONDS)


class InProcesses:
    """Calls jobs in other processes, for jobs that compute.

    Job, messages and errors must be picklable.

    Each process is a pool of its own. If a pool of several loses a process, nobody can tell whose job ended it, and all
    jobs under way would fail.
    """

    def __init__(self, job: Job, processes: int) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._closed = False
        self._pools = {number: _new_pool() for number in range(processes)}
        self._free: SimpleQueue[int] = SimpleQueue()
        for number in self._pools:
            self._free.put(number)
        self._under_way = 0

    def call(self, what: Any, context: Context) -> None:
        """:raises Exception: whatever the job raises.
        :raises JobEnded: the process of the job died.
        :raises StopWorker: :meth:`close` came before the job began, or ended its process.
        """
        with self._one() as number:
            future = self._begun(number, what, context)
            try:
                context.take_over(future.result())
            except CancelledError as error:
                raise StopWorker from error
            except BrokenProcessPool as error:
                if self._closed:
                    raise StopWorker from error
                self._mend(number)
                raise JobEnded("its process died: was it killed, or out of memory?") from error

    @contextmanager
    def _one(self) -> Iterator[int]:
        """Wait for a process that is free."""
        number = self._free.get()
        with self._lock:
            self._under_way += 1
        try:
            yield number
        finally:
            with self._lock:
                self._under_way -= 1
            self._free.put(number)

    def _begun(self, number: int, what: Any, context: Context) -> Future[Any]:
        while True:
            try:
                return self._pools[number].submit(_there, self._job, what, context.plain(), current_trace())
            except RuntimeError as error:  # the process died while it had nothing to do, or the pool is shut
                if self._closed:
                    raise StopWorker from error
                if not isinstance(error, BrokenProcessPool):
                    raise
                self._mend(number)

    def _mend(self, number: int) -> None:
        """Replace a pool that lost its process: it takes no more jobs."""
        with self._lock:
            if not self._closed:
                log.error("a process for jobs died: another one takes its place")
                self._pools[number].shutdown(wait=False, cancel_futures=True)
                self._pools[number] = _new_pool()

    def close(self) -> None:
        """Begin no more calls.

        It does not wait for calls under way; without any it waits until the processes have ended.

        Otherwise an interpreter that ends now could trip over a pool that still ends in a thread, and print a traceback
        about a bad file descriptor.
        """
        with self._lock:
            self._closed = True
            is_idle = not self._under_way
        for pool in self._pools.values():
            pool.shutdown(wait=is_idle, cancel_futures=True)


def _new_pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin_there)


Runner = Direct | Awaited | InProcesses


def runner_of(job: Job, processes: int) -> Runner:
    """:param processes: 0 calls in this process."""
    if is_async(job):
        return Awaited(job)
    return InProcesses(job, processes) if processes else Direct(job)


def is_async(job: Job) -> bool:
    """Whether a call of the job returns a coroutine."""
    return inspect.iscoroutinefunction(job) or inspect.iscoroutinefunction(getattr(job, "__call__", None))  # noqa: B004


def _begin_there() -> None:
    """Prepare a process of the pool.

    It ends with the worker: not by the Ctrl-C that a terminal sends to all, nor by the SIGTERM that systemd and ``timeout``
    send to all, since the worker lets its job end. Threads that jobs leave do not keep it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # programs that jobs start would inherit SIG_IGN
    Finalize(None, end_process, (0,), exitpriority=-1000)
    threading.Thread(target=_end_with_the_worker, daemon=True).start()


def _end_with_the_worker() -> None:
    worker = parent_process()
    if worker is not None:
        wait([worker.sentinel])
        os._exit(1)  # also in the middle of a job: the next owner of its partition does it again


def _there(job: Job, what: Any, context: Context, trace: Mapping[str, str]) -> Any:
    """What a process of the pool does. The job's return value stays in that process, what it appends comes back."""
    with continued(trace):
        _run(job, what, context)
    return context.outcome()


def _run(job: Job, what: Any, context: Context) -> None:
    """:raises TypeError: the job only made a coroutine, which nobody would await."""
    try:
        with _ending_nothing(), ending_if_unread(), in_one_process():
            result = job(what, context)
    except GeneratorExit as error:
        raise _ended_by(error) from error
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("the job returned a coroutine that nobody awaits: declare the job itself 'async def'")
