"""The time limit of an attempt, in the main thread and in others."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from qdo.tasks.timing import TaskTimeout, time_limit


def endless() -> None:
    while True:
        try:
            time.sleep(0.001)
        except Exception:  # noqa: BLE001, S112 - as careless code does
            continue


def in_a_thread(function: Callable[[], None]) -> BaseException | None:
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
    with time_limit(0.05):
        endless()


def test_a_thread_is_interrupted() -> None:
    assert str(in_a_thread(limited)) == "it took longer than 0.05 s"


def test_the_main_thread_is_interrupted_while_it_waits() -> None:
    with pytest.raises(TaskTimeout), time_limit(0.05):
        threading.Event().wait(60)


def test_a_limit_that_is_over_interrupts_nothing() -> None:
    def again_and_again() -> None:
        for _ in range(200):
            try:
                with time_limit(0.0005):
                    sum(range(2000))
            except TaskTimeout:
                pass
            sum(range(500))

    assert in_a_thread(again_and_again) is None


LIMITED_THEN_TRACED = """
import sys, threading, time
from qdo.tasks.timing import TaskTimeout, time_limit

def limited():
    for _ in range(50):
        try:
            with time_limit(0.001):
                time.sleep(0.001)
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
    with time_limit(None):
        assert threading.active_count() >= 1
