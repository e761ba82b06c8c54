"""The time limit of an attempt, in the main thread and in others."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path

import pytest

from qdo.tasks.timing import TaskTimeout, awaited, within


def endless() -> None:
    while True:
        try:
            time.sleep(0.001)
        except Exception:  # noqa: BLE001, S112 - as careless code does
            continue


def in_a_thread(function: Callable[[], object]) -> BaseException | None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def limited() -> None:
    within(0.05, endless)


def test_a_thread_is_interrupted() -> None:
    assert str(in_a_thread(limited)) == "it took longer than 0.05 s"


def test_the_main_thread_is_interrupted_while_it_waits() -> None:
    with pytest.raises(TaskTimeout):
        within(0.05, lambda: threading.Event().wait(60))


async def exits() -> None:
    sys.exit(3)


async def waits_for_one_that_exits() -> None:
    await asyncio.create_task(exits())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ends", [exits, waits_for_one_that_exits])
def test_a_coroutine_that_exits_ends_no_other_one(ends: Callable[[], Coroutine[None, None, None]]) -> None:
    async def answer() -> int:
        return 7

    for _ in range(2):
        with pytest.raises(SystemExit):
            awaited(ends, None)
    assert awaited(answer, None) == 7


async def endless_and_async() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("limited", "where"),
    [(lambda: within(0.05, endless), "endless"), (lambda: awaited(endless_and_async, 0.05), "endless_and_async")],
)
def test_the_traceback_says_where_it_was(limited: Callable[[], object], where: str) -> None:
    error = in_a_thread(limited)

    assert error is not None
    frames = traceback.extract_tb(error.__traceback__)
    assert where in [frame.name for frame in frames]
    assert not {"contextlib.py", "_base.py"} & {Path(frame.filename).name for frame in frames}


def test_a_limit_that_is_over_interrupts_nothing() -> None:
    def again_and_again() -> None:
        for _ in range(200):
            with suppress(TaskTimeout):
                within(0.0005, lambda: sum(range(2000)))
            sum(range(500))

    assert in_a_thread(again_and_again) is None


LIMITED_THEN_TRACED = """
import sys, threading, time
from qdo.tasks.timing import TaskTimeout, within

def limited():
    for _ in range(50):
        try:
            within(0.001, lambda: time.sleep(0.001))
        except TaskTimeout:
            pass

thread = threading.Thread(target=limited)
thread.start()
thread.join()
sys.settrace(lambda *_: None)
(lambda: print("traced"))()
"""


def test_limits_leave_nothing_to_look_for_in_the_interpreter() -> None:
    """Or CPython 3.11 would be slower at each call, and begin no function under a debugger."""
    command = [sys.executable, "-c", LIMITED_THEN_TRACED]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "traced\n"


def test_without_a_limit_there_is_none() -> None:
    assert within(None, threading.active_count) >= 1
