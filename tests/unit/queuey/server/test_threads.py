"""Whose work is next."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
import uvloop

from queuey.future import Future, LoopInbox, LoopRunner, give_way_to, others_turn
from queuey.server.threads import Line, PayerTurns, SharedThreads
from tests.support.servers import eventually

WAIT_SECONDS = 30


@contextmanager
def busy_with(payer: str, turns: PayerTurns, pool: ThreadPoolExecutor, count: int) -> Iterator[None]:
    """As many threads as may are at work for one payer while the block runs."""
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        begun.release()
        go_on.wait(WAIT_SECONDS)

    for _ in range(count):
        turns.add(payer, work)
        pool.submit(turns.work)
    assert begun.acquire(timeout=WAIT_SECONDS)
    try:
        yield
    finally:
        go_on.set()


@contextmanager
def threads_stopped(threads: SharedThreads) -> Iterator[None]:
    """The only thread does nothing while the block runs."""
    go_on, stopped = threading.Event(), threading.Event()

    def stop() -> None:
        stopped.set()
        go_on.wait(WAIT_SECONDS)

    threads.add("nobody", stop)
    assert stopped.wait(WAIT_SECONDS)
    yield
    go_on.set()


def test_payers_take_turns_however_much_one_of_them_has() -> None:
    turns, done = PayerTurns(1), list[str]()
    for payer in ("greedy", "greedy", "greedy", "modest", "other", "modest"):
        turns.add(payer, partial(done.append, payer))

    turns.work()

    assert done == ["greedy", "modest", "other", "greedy", "modest", "greedy"]


def test_one_payer_leaves_a_thread_to_the_others() -> None:
    turns, done = PayerTurns(4), threading.Event()
    with ThreadPoolExecutor(4) as pool, busy_with("greedy", turns, pool, 32):
        turns.add("modest", done.set)
        pool.submit(turns.work)

        assert done.wait(WAIT_SECONDS)


def test_all_work_is_done_when_its_payer_had_as_many_threads_as_it_may() -> None:
    turns, done = PayerTurns(3), list[int]()
    with ThreadPoolExecutor(3) as pool:
        with busy_with("greedy", turns, pool, 2):
            for number in range(100):
                turns.add("greedy", partial(done.append, number))
                pool.submit(turns.work)

    assert sorted(done) == [*range(100)]


def test_who_waits_for_a_commit_holds_no_thread() -> None:
    threads, commit, outcome, other = SharedThreads(1, "one"), Future[int](), Future[int](), threading.Event()

    async def append() -> int:
        return await commit + 1

    greedy = Line(threads, "greedy")
    greedy.arrives(LoopRunner(append(), greedy, outcome.set_result, outcome.set_error).go_on)
    threads.add("modest", other.set)
    assert other.wait(WAIT_SECONDS)
    commit.set_result(1)

    assert outcome.wait(WAIT_SECONDS) == 2
    threads.close()


def test_a_thread_that_gives_way_goes_on_when_the_loop_has_had_its_turn() -> None:
    async def main() -> list[str]:
        loop, did = asyncio.get_running_loop(), list[str]()
        inbox, done = LoopInbox(loop), asyncio.Event()
        threads = SharedThreads(1, "one", partial(give_way_to, inbox))

        async def steps() -> None:
            loop.call_soon_threadsafe(did.append, "the loop")
            await others_turn()
            did.append("the thread")

        line = Line(threads, "payer")
        line.arrives(LoopRunner(steps(), line, lambda _: inbox.arrives(done.set), print).go_on)
        await asyncio.wait_for(done.wait(), WAIT_SECONDS)
        threads.close()
        return did

    assert asyncio.run(main()) == ["the loop", "the thread"]


def test_the_next_coroutine_begins_when_the_one_before_ends_or_waits_for_a_commit() -> None:
    """Otherwise all batches that came would be under way at once, and in memory."""
    did, commits = list[str](), [Future[None]() for _ in range(3)]

    async def main() -> None:
        inbox = LoopInbox(asyncio.get_running_loop())
        ended = threading.Semaphore(0)
        threads = SharedThreads(1, "one", partial(give_way_to, inbox))

        async def batch(number: int) -> None:
            for step in range(3):
                did.append(f"{number}.{step}")
                await others_turn()
            await commits[number]
            did.append(f"{number} answers")

        def begin(number: int) -> None:
            line = Line(threads, "payer")
            line.arrives(LoopRunner(batch(number), line, lambda _: ended.release(), print).go_on)

        begin(0)
        begin(1)
        await asyncio.to_thread(eventually, lambda: did[-1:] == ["1.2"])
        with threads_stopped(threads):
            begin(2)
            commits[0].set_result(None)
        commits[1].set_result(None)
        commits[2].set_result(None)
        for _ in range(3):
            assert await asyncio.to_thread(ended.acquire, timeout=WAIT_SECONDS)
        threads.close()

    uvloop.run(main())

    assert did[:6] == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert did.index("0 answers") < did.index("2.0")


def test_a_thread_waits_for_no_turn_of_a_loop_that_has_ended() -> None:
    async def main() -> list[str]:
        loop, did = asyncio.get_running_loop(), list[str]()
        inbox = LoopInbox(loop)
        threads = SharedThreads(1, "one", partial(give_way_to, inbox))

        async def steps() -> None:
            did.append("begun")
            await others_turn()
            did.append("ended")

        line = Line(threads, "payer")
        line.arrives(LoopRunner(steps(), line, print, print).go_on)
        inbox.closed = True
        threads.close()  # keeps the loop from having a turn
        return did

    assert asyncio.run(main()) == ["begun", "ended"]


def test_work_that_comes_after_the_end_is_not_begun_and_harms_nobody() -> None:
    threads, done = SharedThreads(1, "one"), list[int]()
    threads.close()

    threads.add("late", partial(done.append, 1))

    assert not done


def test_a_payer_whose_work_fails_keeps_its_threads(caplog: pytest.LogCaptureFixture) -> None:
    """Each failure had taken one of them for ever."""
    turns, done = PayerTurns(2), list[str]()
    for work in (lambda: 1 / 0, partial(done.append, "next")):
        turns.add("payer", work)

    turns.work()

    assert done == ["next"]
    assert "ZeroDivisionError" in caplog.text
