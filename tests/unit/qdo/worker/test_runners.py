"""Jobs in other processes, when the worker ends."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from qdo import Context, StopWorker
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim
from qdo.worker.runners import Awaited, Direct, InProcesses, JobEnded
from queuey.clock import ManualClock
from tests.support.servers import eventually

WAIT_SECONDS = 30


def until_it_is_there(folder: Path, context: Context) -> None:
    """A job that says that it has begun, and goes on when it may."""
    (folder / "begun").touch()
    eventually((folder / "go on").exists)


def raises(error: type[BaseException], context: Context) -> None:
    raise error


async def raises_in_a_loop(error: type[BaseException], context: Context) -> None:
    raise error


@pytest.fixture
def context() -> Context:
    return Context(Claim(Partition("q", 1), 1), member="m", group="g", clock=ManualClock(), value=None)


@pytest.mark.parametrize("killed", [False, True])
def test_a_job_that_a_closed_pool_does_not_run_to_its_end_has_not_failed(
    tmp_path: Path, context: Context, killed: bool
) -> None:
    """A failed attempt may be the last one, and then the message would become a dead letter."""
    caller = InProcesses(until_it_is_there, 1)
    with ThreadPoolExecutor(2) as threads:
        calls: list[Future[Any]] = [threads.submit(caller.call, tmp_path, context)]
        eventually((tmp_path / "begun").exists)
        calls.append(threads.submit(caller.call, tmp_path, context))
        caller.close()
        if killed:
            for child in active_children():
                child.terminate()
        (tmp_path / "go on").touch()
        ends = [type(call.exception(WAIT_SECONDS)) for call in calls]

    assert ends[1] is StopWorker
    assert killed or ends[0] is type(None)
    assert ends[0] in (StopWorker, type(None))


class Panic(BaseException):
    """As libraries in Rust raise it: no Exception."""


@pytest.mark.parametrize("error", [CancelledError, asyncio.CancelledError, KeyboardInterrupt, Panic])
def test_what_a_job_raises_ends_neither_its_thread_nor_the_worker(context: Context, error: type[BaseException]) -> None:
    """In a process it would have said that the job never began, and the worker would have ended as if it had been told to."""
    for caller in (Direct(raises), InProcesses(raises, 1), Awaited(raises_in_a_loop)):
        try:
            with pytest.raises(JobEnded, match=f"raised {error.__name__}"):
                caller.call(error, context)
        finally:
            caller.close()


def test_a_job_that_raises_what_closes_generators_has_failed(context: Context) -> None:
    for caller in (Direct(raises), InProcesses(raises, 1)):
        try:
            with pytest.raises(JobEnded, match="raised GeneratorExit"):
                caller.call(GeneratorExit, context)
        finally:
            caller.close()


async def stops_its_loop(what: str, context: Context) -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


@pytest.mark.timeout(60)
def test_a_job_that_stops_its_event_loop_stops_no_other_job(context: Context) -> None:
    caller = Awaited(stops_its_loop)
    try:
        for _ in range(3):
            caller.call("any", context)
    finally:
        caller.close()


async def waits_for_one_that_exits(what: str, context: Context) -> None:
    async def exits() -> None:
        sys.exit(3)

    await asyncio.create_task(exits())


@pytest.mark.timeout(60)
def test_a_job_that_waits_for_one_that_exits_stops_no_other_job(context: Context) -> None:
    caller = Awaited(waits_for_one_that_exits)
    try:
        for _ in range(3):
            with pytest.raises(JobEnded, match=r"sys.exit\(3\)"):
                caller.call("any", context)
    finally:
        caller.close()


def test_a_job_that_comes_when_its_event_loop_has_ended_has_not_failed(context: Context) -> None:
    """As :func:`test_a_job_that_a_closed_pool_does_not_run_to_its_end_has_not_failed`."""
    caller = Awaited(raises_in_a_loop)
    caller.close()

    with pytest.raises(StopWorker):
        caller.call(ValueError, context)


def test_a_coroutine_that_is_closed_in_the_middle_just_ends(context: Context) -> None:
    """As those that hang when their worker ends. Python would print whatever they raised then."""

    async def hangs(message: object, context: Context) -> None:
        await asyncio.Event().wait()

    async def begun() -> None:
        call = caller._call(None, context)
        call.send(None)
        call.close()

    caller = Awaited(hangs)
    try:
        asyncio.run(begun())
    finally:
        caller.close()
