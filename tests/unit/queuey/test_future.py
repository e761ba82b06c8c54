"""Promises: kept once, awaited in a thread or on a loop, and no wake-up lost in between."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

import pytest

from queuey.errors import QueueNotFound, StorageFull
from queuey.future import Future, LoopInbox, LoopRunner, run, start


def in_a_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def keep_all(promises: Iterable[Future[int]]) -> None:
    for promise in promises:
        promise.set_result(1)


async def total(*promises: Future[int]) -> int:
    """Work that awaits one promise after the other."""
    return sum([await promise for promise in promises])


def test_a_kept_promise_has_its_value() -> None:
    promise = Future[int]()
    before = promise.done

    promise.set_result(3)

    assert (before, promise.done) == (False, True)
    assert promise.result() == promise.wait() == 3


def test_a_broken_promise_raises_its_error() -> None:
    promise = Future[int]()
    promise.set_error(StorageFull())

    assert promise.done
    with pytest.raises(StorageFull):
        promise.result()
    with pytest.raises(StorageFull):
        promise.wait()


def test_a_promise_may_be_settled_from_the_start() -> None:
    assert Future.of(None).done
    assert Future.of(None).result() is None
    with pytest.raises(QueueNotFound):
        Future[int].failed(QueueNotFound()).wait()


def test_a_promise_is_kept_once() -> None:
    for promise in (Future.of(1), Future[int].failed(StorageFull())):
        with pytest.raises(AssertionError):
            promise.set_result(2)
        with pytest.raises(AssertionError):
            promise.set_error(StorageFull())

    assert Future.of(1).result() == 1


def test_who_asks_early_is_told_when_it_is_kept() -> None:
    promise, told = Future[int](), list[int]()

    promise.add_done_callback(lambda kept: told.append(kept.result()))
    assert told == []
    promise.set_result(3)

    assert told == [3]


def test_who_asks_late_is_told_at_once() -> None:
    told: list[int] = []

    Future.of(3).add_done_callback(lambda kept: told.append(kept.result()))

    assert told == [3]


def test_a_wait_ends_when_its_time_is_over_and_the_promise_may_still_be_kept() -> None:
    promise = Future[int]()

    with pytest.raises(TimeoutError):
        promise.wait(0.001)
    promise.set_result(3)

    assert promise.wait(0.001) == 3


def test_a_wait_ends_when_another_thread_keeps_the_promise() -> None:
    promise = Future[int]()
    waiting = threading.Event()

    def keep() -> None:
        waiting.wait()
        promise.set_result(3)

    keeper = in_a_thread(keep)
    waiting.set()

    assert promise.wait(30) == 3
    keeper.join()


def test_no_wake_up_is_lost_between_asking_and_waiting() -> None:
    """Many promises kept by one thread while another asks for each."""
    promises = [Future[int]() for _ in range(3000)]

    def keep() -> None:
        for number, promise in enumerate(promises):
            promise.set_result(number)

    keeper = in_a_thread(keep)

    assert [promise.wait(30) for promise in promises] == list(range(3000))
    keeper.join()


# In a thread that waits


def test_work_that_need_not_wait_runs_through() -> None:
    assert run(total(Future.of(1), Future.of(2))) == 3
    assert run(total()) == 0


def test_work_waits_for_each_promise() -> None:
    promises = [Future[int]() for _ in range(100)]
    keeper = in_a_thread(lambda: keep_all(promises))

    assert run(total(*promises)) == 100
    keeper.join()


def test_an_error_rises_where_the_promise_is_awaited() -> None:
    promise = Future[int]()

    async def work() -> str:
        try:
            await promise
        except StorageFull:
            return "full"
        return "stored"

    keeper = in_a_thread(lambda: promise.set_error(StorageFull()))
    assert run(work()) == "full"
    keeper.join()


def test_an_error_of_the_work_rises_from_the_run() -> None:
    async def work() -> None:
        await Future.of(1)
        raise QueueNotFound

    with pytest.raises(QueueNotFound):
        run(work())


def test_work_may_call_work() -> None:
    async def outer() -> int:
        return await total(Future.of(1)) + await total(Future.of(2))

    assert run(outer()) == 3


# Begun, and left to itself


class Outcome:
    """Something large."""


def test_what_begun_work_made_is_gone_with_the_last_who_has_it() -> None:
    """Else a stream's pages stay until somebody collects garbage: gigabytes, where hardly anything else is made."""
    gone: list[str] = []

    async def work(promise: Future[Outcome]) -> Outcome:
        return await promise

    gc.disable()
    try:
        for made in (Future.of(Outcome()), Future[Outcome]()):
            begun = start(work(made))
            if not made.done:
                made.set_result(Outcome())
            weakref.finalize(begun.wait(30), gone.append, "gone")
            del made, begun
        assert gone == ["gone", "gone"]
    finally:
        gc.enable()


# On an event loop


Driven = Callable[[Coroutine[Any, Any, Any]], "asyncio.Future[Any]"]


def on_errands(inbox: LoopInbox) -> Driven:
    """What drives work on the loop of this inbox, and tells its outcome."""

    def driven(work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        outcome = asyncio.get_running_loop().create_future()
        LoopRunner(work, inbox, outcome.set_result, outcome.set_exception).go_on()
        return outcome

    return driven


def on_a_loop(make: Callable[[Driven], Coroutine[Any, Any, Any]]) -> Any:
    """Run ``make(driven)`` on a loop of its own, where ``driven`` drives work there."""

    async def main() -> Any:
        return await asyncio.wait_for(make(on_errands(LoopInbox(asyncio.get_running_loop()))), 90)

    return asyncio.run(main())


def test_a_loop_goes_on_while_work_waits() -> None:
    async def main(driven: Driven) -> list[int]:
        slow, fast = Future[int](), Future[int]()
        first, second = driven(total(slow)), driven(total(fast))
        keeper = in_a_thread(lambda: fast.set_result(2))
        done = [await second]
        assert not first.done()
        slow.set_result(1)
        done.append(await first)
        keeper.join()
        return done

    assert on_a_loop(main) == [2, 1]


def test_kept_promises_cost_the_loop_no_turn() -> None:
    async def main(driven: Driven) -> list[str]:
        order: list[str] = []
        asyncio.get_running_loop().call_soon(order.append, "the loop's next turn")
        if driven(total(Future.of(1), Future.of(2))).done():
            order.append("done")
        await asyncio.sleep(0)
        return order

    assert on_a_loop(main) == ["done", "the loop's next turn"]


def test_errors_rise_on_a_loop_as_in_a_thread() -> None:
    async def main(driven: Driven) -> None:
        promise = Future[int]()
        keeper = in_a_thread(lambda: promise.set_error(StorageFull()))
        with pytest.raises(StorageFull):
            await driven(total(promise))
        keeper.join()

    on_a_loop(main)


def test_a_thousand_waiters_are_all_woken_by_threads_that_race() -> None:
    async def main(driven: Driven) -> int:
        promises = [[Future[int]() for _ in range(500)] for _ in range(3)]
        waiters = [driven(total(*some)) for some in zip(*promises, strict=True)]
        keepers = [in_a_thread(partial(keep_all, mine)) for mine in promises]
        woken: int = sum(await asyncio.gather(*waiters))
        for keeper in keepers:
            keeper.join()
        return woken

    assert on_a_loop(main) == 1500


def test_promises_that_gather_wake_the_loop_once() -> None:
    calls: list[Callable[[], None]] = []

    class CountingLoop(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            calls.append(callback)
            return super().call_soon_threadsafe(callback, *args, context=context)

    loop = CountingLoop()
    driven = on_errands(LoopInbox(loop))
    promises = [Future[int]() for _ in range(50)]

    async def main() -> int:
        waiters = [driven(total(promise)) for promise in promises]
        for promise in promises:
            promise.set_result(1)
        return sum(await asyncio.gather(*waiters))

    assert loop.run_until_complete(main()) == 50
    assert len(calls) == 1
    loop.close()


def test_one_that_cannot_go_on_keeps_nobody_else_back() -> None:
    async def main(driven: Driven) -> int:
        promises = [Future[int]() for _ in range(3)]
        waiters = [driven(total(promise)) for promise in promises]
        waiters[1].cancel()  # nobody takes its outcome any more, which is an error there
        for promise in promises:
            promise.set_result(1)
        return int(await waiters[0] + await waiters[2])

    assert on_a_loop(main) == 2


def test_work_that_is_given_up_gives_back_what_it_holds_at_once_and_tells_nobody() -> None:
    held = ["a place among the requests under way"]
    told: list[object] = []

    async def work(promise: Future[int]) -> None:
        try:
            await promise
        finally:
            held.clear()

    async def main(driven: Driven) -> None:
        promise, after = Future[int](), Future[int]()
        inbox = LoopInbox(asyncio.get_running_loop())
        runner = LoopRunner(work(promise), inbox, told.append, told.append)
        runner.go_on()
        runner.give_up()
        assert held == []
        promise.set_result(1)
        waiter = on_errands(inbox)(total(after))
        after.set_result(2)
        assert await waiter == 2

    on_a_loop(main)
    assert told == []


def test_a_promise_kept_after_the_loop_was_closed_harms_nobody() -> None:
    promise = Future[int]()
    loop = asyncio.new_event_loop()
    told: list[object] = []
    LoopRunner(total(promise), LoopInbox(loop), told.append, told.append).go_on()
    loop.close()

    promise.set_result(1)

    assert promise.result() == 1
    assert told == []
