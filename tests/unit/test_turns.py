"""Whose work is next."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from queuey.doors.turns import Line, SharedThreads, Turns
from queuey.promise import Errand, LoopInbox, Promise, give_way_to, others_turn

WAIT_SECONDS = 30


@contextmanager
def busy_with(payer: str, turns: Turns, pool: ThreadPoolExecutor, count: int) -> Iterator[None]:
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


def test_payers_take_turns_however_much_one_of_them_has() -> None:
    turns, done = Turns(1), list[str]()
    for payer in ("greedy", "greedy", "greedy", "modest", "other", "modest"):
        turns.add(payer, partial(done.append, payer))

    turns.work()

    assert done == ["greedy", "modest", "other", "greedy", "modest", "greedy"]


def test_one_payer_leaves_a_thread_to_the_others() -> None:
    turns, done = Turns(4), threading.Event()
    with ThreadPoolExecutor(4) as pool, busy_with("greedy", turns, pool, 32):
        turns.add("modest", done.set)
        pool.submit(turns.work)

        assert done.wait(WAIT_SECONDS)


def test_all_work_is_done_when_its_payer_had_as_many_threads_as_it_may() -> None:
    turns, done = Turns(3), list[int]()
    with ThreadPoolExecutor(3) as pool:
        with busy_with("greedy", turns, pool, 2):
            for number in range(100):
                turns.add("greedy", partial(done.append, number))
                pool.submit(turns.work)

    assert sorted(done) == [*range(100)]


def test_who_waits_for_a_commit_holds_no_thread() -> None:
    threads, commit, outcome, other = SharedThreads(1, "one"), Promise[int](), Promise[int](), threading.Event()

    async def append() -> int:
        return await commit + 1

    greedy = Line(threads, "greedy")
    greedy.arrives(Errand(append(), greedy, outcome.keep, outcome.fail).go_on)
    threads.add("modest", other.set)
    assert other.wait(WAIT_SECONDS)
    commit.keep(1)

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
        line.arrives(Errand(steps(), line, lambda _: inbox.arrives(done.set), print).go_on)
        await asyncio.wait_for(done.wait(), WAIT_SECONDS)
        threads.close()
        return did

    assert asyncio.run(main()) == ["the loop", "the thread"]


def test_work_that_comes_after_the_end_is_not_begun_and_harms_nobody() -> None:
    threads, done = SharedThreads(1, "one"), list[int]()
    threads.close()

    threads.add("late", partial(done.append, 1))

    assert not done
