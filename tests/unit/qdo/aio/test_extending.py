"""Leases that a task extends. The times are those of :class:`HeldLeases`, which the blocking client has as well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from math import inf

from qdo.aio.extending import AsyncExtender
from qdo.client.extending import HeldLease
from queuey.errors import ServerUnreachable


class Sent:
    """What an extender sends."""

    def __init__(self) -> None:
        self.receipts: asyncio.Queue[list[str]] = asyncio.Queue()
        self.stale: set[str] = set()
        self.fails = False

    async def extend(self, leases: Sequence[HeldLease]) -> set[str]:
        self.receipts.put_nowait(sorted(lease.receipt for lease in leases))
        if self.fails:
            raise ServerUnreachable
        return self.stale


def lease(receipt: str, seconds: float = 3000, *, group: str = "g", due: float = 0.0) -> HeldLease:
    """One that is due, and then not for a long time."""
    return HeldLease("q", group, receipt, seconds, due or time.monotonic())


def run(scenario: Callable[[Sent, AsyncExtender], Awaitable[None]]) -> None:
    async def whole() -> None:
        sent = Sent()
        extender = AsyncExtender(sent.extend)
        async with asyncio.timeout(90):
            await scenario(sent, extender)
        await extender.aclose()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(whole())


def test_leases_that_are_due_go_in_one_request_for_each_group() -> None:
    async def scenario(sent: Sent, extender: AsyncExtender) -> None:
        soon = time.monotonic() + 0.1
        for receipt, group in (("a", "g"), ("b", "h"), ("c", "g")):
            extender.keep(lease(receipt, group=group, due=soon))
        extender.keep(lease("d", due=soon + 3600))
        assert sorted([await sent.receipts.get(), await sent.receipts.get()]) == [["a", "c"], ["b"]]

    run(scenario)


def test_a_lease_that_is_due_earlier_wakes_the_task() -> None:
    async def scenario(sent: Sent, extender: AsyncExtender) -> None:
        extender.keep(lease("late", due=time.monotonic() + 3600))
        await asyncio.sleep(0)
        extender.keep(lease("early"))
        assert await sent.receipts.get() == ["early"]

    run(scenario)


def test_a_lease_that_failed_is_tried_again_and_one_that_is_stale_is_lost() -> None:
    async def scenario(sent: Sent, extender: AsyncExtender) -> None:
        sent.fails = True
        one = lease("a", 1)
        extender.keep(one)
        assert await sent.receipts.get() == ["a"]
        sent.fails, sent.stale = False, {"a"}
        assert await sent.receipts.get() == ["a"]
        await asyncio.sleep(0)
        assert one.is_lost

    run(scenario)


def test_a_request_that_takes_long_delays_no_other_group() -> None:
    """Its own leases may last for an hour, and those of the others for seconds."""

    async def scenario(sent: Sent, extender: AsyncExtender) -> None:
        answered = asyncio.Event()

        async def extend(leases: Sequence[HeldLease]) -> set[str]:
            found = await sent.extend(leases)
            if leases[0].group == "slow":
                await answered.wait()
            return found

        extender._extend = extend
        slow = lease("slow", 30, group="slow")
        extender.keep(slow)
        assert await sent.receipts.get() == ["slow"]
        extender.keep(lease("a", group="g"))
        assert await sent.receipts.get() == ["a"]
        assert sent.receipts.empty()

        extender.keep(lease("b", group="g"))
        assert await sent.receipts.get() == ["b"]
        assert slow.due == inf
        requests = [*extender._sent]
        answered.set()
        await asyncio.wait(requests)
        assert slow.due < inf

    run(scenario)


def test_the_task_ends_with_the_last_lease_and_begins_again() -> None:
    async def scenario(sent: Sent, extender: AsyncExtender) -> None:
        for receipt in "ab":
            one = lease(receipt)
            extender.keep(one)
            assert await sent.receipts.get() == [receipt]
            one.is_over = True
            other = lease("x", due=time.monotonic() + 0.01)  # wakes it, so that it sees that there is nothing
            extender.keep(other)
            extender.drop(other)
            assert extender._task is not None
            await asyncio.wait([extender._task])

    run(scenario)


def test_an_answer_that_is_none_leaves_the_leases_to_the_next_try() -> None:
    """The task would have ended, and every lease with it."""

    async def scenario(sent: Sent, extender: AsyncExtender) -> None:
        async def none(leases: Sequence[HeldLease]) -> set[str]:
            raise KeyError(await sent.extend(leases))

        extender._extend = none
        one = lease("a", 1)
        extender.keep(one)
        assert await sent.receipts.get() == ["a"]
        extender._extend = sent.extend
        assert await sent.receipts.get() == ["a"]
        assert not one.is_lost

    run(scenario)


def test_leases_are_extended_in_a_second_event_loop() -> None:
    sent: list[asyncio.Event] = []

    async def extend(leases: Sequence[HeldLease]) -> set[str]:
        sent[-1].set()
        return set()

    extender = AsyncExtender(extend)

    async def once() -> None:
        sent.append(asyncio.Event())
        extender.keep(lease("a", due=time.monotonic() + 0.01))
        async with asyncio.timeout(90):
            await sent[-1].wait()
        await extender.aclose()

    asyncio.run(once())
    asyncio.run(once())
