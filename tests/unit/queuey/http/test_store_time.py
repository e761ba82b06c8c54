"""The time of a call in the store: what it waits for, and what it does there itself."""

from __future__ import annotations

import threading

import pytest

from queuey.future import Future, run, start
from queuey.http.store_time import StoreTime
from queuey.monitor.metrics import Monitor


@pytest.fixture
def monitor() -> Monitor:
    found = Monitor("memory")
    found.times_calls = True
    return found


def test_calls_of_the_store_in_this_thread_count(monitor: Monitor) -> None:
    async def work() -> str:
        monitor.took("read", 1.5)
        monitor.took("read", 0.25)
        return "done"

    monitor.took("read", 100.0)  # an earlier call's
    time = StoreTime(monitor)

    assert run(_awaited(time, work())) == "done"
    assert time.seconds == 1.75


async def _awaited(time: StoreTime, work: object) -> object:
    return await time.over(work)  # type: ignore[arg-type]


def test_a_wait_counts_and_another_threads_calls_do_not(monitor: Monitor) -> None:
    future: Future[int] = Future()

    async def work() -> int:
        return await future

    def elsewhere() -> None:
        monitor.took("commit", 1000.0)
        future.set_result(3)

    time = StoreTime(monitor)
    done = start(_awaited(time, work()))
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()

    assert done.result() == 3
    assert 0 < time.seconds < 1000


def test_an_error_passes_and_its_time_counts(monitor: Monitor) -> None:
    async def work() -> None:
        monitor.took("read", 2.0)
        raise KeyError("planted")

    time = StoreTime(monitor)

    with pytest.raises(KeyError, match="planted"):
        run(_awaited(time, work()))
    assert time.seconds == 2.0


def test_work_that_is_given_up_ends_in_order(monitor: Monitor) -> None:
    ended = []

    async def work() -> None:
        try:
            await Future[None]()
        finally:
            ended.append("here")

    outer = _awaited(StoreTime(monitor), work())
    outer.send(None)
    outer.close()

    assert ended == ["here"]


def test_nothing_is_kept_while_no_request_is_logged() -> None:
    monitor = Monitor("memory")

    monitor.took("read", 1.0)

    assert monitor.seconds_here == 0.0
