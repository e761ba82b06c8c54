"""Futures: done once, awaited in a thread or on a loop, and no wake-up lost in between."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, cast

import pytest

from queuey.errors import QueueNotFound, StorageFull
from queuey.future import Future, LoopInbox, LoopRunner, run, settled_together, start


def in_a_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def finish_all(futures: Iterable[Future[int]]) -> None:
    for future in futures:
        future.set_result(1)


async def total(*futures: Future[int]) -> int:
    """Work that awaits one future after the other."""
    return sum([await future for future in futures])


def test_a_done_future_has_its_value() -> None:
    future = Future[int]()
    before = future.done

    future.set_result(3)

    assert (before, future.done) == (False, True)
    assert future.result() == future.wait() == 3


def test_a_failed_future_raises_its_error() -> None:
    future = Future[int]()
    future.set_error(StorageFull())

    assert future.done
    with pytest.raises(StorageFull):
        future.result()
    with pytest.raises(StorageFull):
        future.wait()


def test_a_future_may_be_done_from_the_start() -> None:
    assert Future.of(None).done
    assert Future.of(None).result() is None
    with pytest.raises(QueueNotFound):
        Future[int].failed(QueueNotFound()).wait()


def test_a_future_is_done_once() -> None:
    for future in (Future.of(1), Future[int].failed(StorageFull())):
        with pytest.raises(AssertionError):
            future.set_result(2)
        with pytest.raises(AssertionError):
            future.set_error(StorageFull())

    assert Future.of(1).result() == 1


def test_a_callback_left_early_is_called_when_the_future_is_done() -> None:
    future, told = Future[int](), list[int]()

    future.add_done_callback(lambda done: told.append(done.result()))
    assert told == []
    future.set_result(3)

    assert told == [3]


def test_a_callback_left_late_is_called_at_once() -> None:
    told: list[int] = []

    Future.of(3).add_done_callback(lambda done: told.append(done.result()))

    assert told == [3]


def test_a_wait_ends_when_its_time_is_over_and_the_future_may_still_be_done() -> None:
    future = Future[int]()

    with pytest.raises(TimeoutError):
        future.wait(0.001)
    future.set_result(3)

    assert future.wait(0.001) == 3


def test_a_wait_ends_when_another_thread_sets_the_result() -> None:
    future = Future[int]()
    waiting = threading.Event()

    def finish() -> None:
        waiting.wait()
        future.set_result(3)

    finisher = in_a_thread(finish)
    waiting.set()

    assert future.wait(30) == 3
    finisher.join()


def test_no_wake_up_is_lost_between_asking_and_waiting() -> None:
    """Many futures that one thread finishes while another asks for each."""
    futures = [Future[int]() for _ in range(3000)]

    def finish() -> None:
        for number, future in enumerate(futures):
            future.set_result(number)

    finisher = in_a_thread(finish)

    assert [future.wait(30) for future in futures] == list(range(3000))
    finisher.join()


# In a thread that waits


def test_work_that_need_not_wait_runs_through() -> None:
    assert run(total(Future.of(1), Future.of(2))) == 3
    assert run(total()) == 0


def test_work_waits_for_each_future() -> None:
    futures = [Future[int]() for _ in range(100)]
    finisher = in_a_thread(lambda: finish_all(futures))

    assert run(total(*futures)) == 100
    finisher.join()


def test_an_error_rises_where_the_future_is_awaited() -> None:
    future = Future[int]()

    async def work() -> str:
        try:
            await future
        except StorageFull:
            return "full"
        return "stored"

    finisher = in_a_thread(lambda: future.set_error(StorageFull()))
    assert run(work()) == "full"
    finisher.join()


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

    async def work(future: Future[Outcome]) -> Outcome:
        return await future

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
        finisher = in_a_thread(lambda: fast.set_result(2))
        done = [await second]
        assert not first.done()
        slow.set_result(1)
        done.append(await first)
        finisher.join()
        return done

    assert on_a_loop(main) == [2, 1]


def test_each_link_of_a_chain_has_a_turn_of_its_own() -> None:
    async def main(driven: Driven) -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        inbox, over = LoopInbox(loop), asyncio.Event()

        def link() -> None:
            seen.append("link")
            if seen.count("link") < 3:
                loop.call_soon(seen.append, "others")
                inbox.arrives(link)
            else:
                over.set()

        inbox.arrives(link)
        await over.wait()
        return seen

    assert on_a_loop(main) == ["link", "others", "link", "others", "link"]


def test_futures_settled_together_wake_the_loop_once() -> None:
    class Loop:
        woken = 0

        def call_soon_threadsafe(self, drain: Callable[[], object]) -> None:
            self.woken += 1
            drain()  # a loop may begin at once

        call_soon = call_soon_threadsafe

    loop, seen = Loop(), list[object]()
    inbox = LoopInbox(cast(asyncio.AbstractEventLoop, loop))
    futures = [Future[int]() for _ in range(4)]
    for future in futures:
        LoopRunner(total(future), inbox, seen.append, seen.append).go_on()
    with settled_together():
        for number, future in enumerate(futures[:3]):
            future.set_result(number)
        assert loop.woken == 0
    assert (loop.woken, seen) == (1, [0, 1, 2])
    futures[3].set_result(3)
    assert (loop.woken, seen) == (2, [0, 1, 2, 3])


def test_done_futures_cost_the_loop_no_turn() -> None:
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
        future = Future[int]()
        finisher = in_a_thread(lambda: future.set_error(StorageFull()))
        with pytest.raises(StorageFull):
            await driven(total(future))
        finisher.join()

    on_a_loop(main)


def test_a_thousand_waiters_are_all_woken_by_threads_that_race() -> None:
    async def main(driven: Driven) -> int:
        futures = [[Future[int]() for _ in range(500)] for _ in range(3)]
        waiters = [driven(total(*some)) for some in zip(*futures, strict=True)]
        finishers = [in_a_thread(partial(finish_all, mine)) for mine in futures]
        woken: int = sum(await asyncio.gather(*waiters))
        for finisher in finishers:
            finisher.join()
        return woken

    assert on_a_loop(main) == 1500


def test_futures_that_gather_wake_the_loop_once() -> None:
    calls: list[Callable[[], None]] = []

    class CountingLoop(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
            calls.append(callback)
            return super().call_soon_threadsafe(callback, *args, context=context)

    loop = CountingLoop()
    driven = on_errands(LoopInbox(loop))
    futures = [Future[int]() for _ in range(50)]

    async def main() -> int:
        waiters = [driven(total(future)) for future in futures]

        def set_all() -> None:
            for future in futures:
                future.set_result(1)

        other = threading.Thread(target=set_all)
        other.start()
        other.join()
        return sum(await asyncio.gather(*waiters))

    assert loop.run_until_complete(main()) == 50
    assert len(calls) == 1
    loop.close()


def test_one_that_cannot_go_on_keeps_nobody_else_back() -> None:
    async def main(driven: Driven) -> int:
        futures = [Future[int]() for _ in range(3)]
        waiters = [driven(total(future)) for future in futures]
        waiters[1].cancel()  # nobody takes its outcome any more, which is an error there
        for future in futures:
            future.set_result(1)
        return int(await waiters[0] + await waiters[2])

    assert on_a_loop(main) == 2


def test_work_that_is_given_up_gives_back_what_it_holds_at_once_and_tells_nobody() -> None:
    held = ["a place among the requests under way"]
    told: list[object] = []

    async def work(future: Future[int]) -> None:
        try:
            await future
        finally:
            held.clear()

    async def main(driven: Driven) -> None:
        future, after = Future[int](), Future[int]()
        inbox = LoopInbox(asyncio.get_running_loop())
        runner = LoopRunner(work(future), inbox, told.append, told.append)
        runner.go_on()
        runner.give_up()
        assert held == []
        future.set_result(1)
        waiter = on_errands(inbox)(total(after))
        after.set_result(2)
        assert await waiter == 2

    on_a_loop(main)
    assert told == []


def test_a_future_done_after_the_loop_was_closed_harms_nobody() -> None:
    future = Future[int]()
    loop = asyncio.new_event_loop()
    told: list[object] = []
    LoopRunner(total(future), LoopInbox(loop), told.append, told.append).go_on()
    loop.close()

    future.set_result(1)

    assert future.result() == 1
    assert told == []
