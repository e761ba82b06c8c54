"""Coroutines without an event loop."""

from __future__ import annotations

import asyncio

import pytest

from qdo.bench.clock import SECOND, MonotonicClock
from qdo.bench.pace import at_once, task_sleep, thread_sleep
from tests.support.bench_by_clock import CountingClock


def test_a_thread_sleeps_by_its_clock() -> None:
    clock = CountingClock()
    moment = clock.now() + 1000 * SECOND

    at_once(thread_sleep(clock)(moment))

    assert clock.now() > moment


def test_what_waits_for_an_event_loop_is_refused_in_a_thread() -> None:
    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="a coroutine of a thread waits for an event loop"):
        at_once(waits())


def test_a_task_that_sleeps_lets_others_go_on() -> None:
    clock, seen = MonotonicClock(), list[str]()

    async def first() -> None:
        await task_sleep(clock)(clock.now() - SECOND)
        seen.append("first")

    async def second() -> None:
        seen.append("second")

    async def both() -> None:
        await asyncio.gather(first(), second())

    asyncio.run(both())

    assert seen == ["second", "first"]
