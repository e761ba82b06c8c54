"""The client for asyncio against the real server: what only it does. The rest is in the tests of the blocking client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from qdo.aio import AsyncClient, AsyncDelivery
from qdo.client import NewMessage, Receive, Settle
from queuey.errors import ConfigurationError, StaleReceipt
from queuey.ids import MessageId
from tests.support.cancelling import each_await
from tests.support.client import new_name
from tests.support.servers import APPLICATIONS, RunningServer

Scenario = Callable[[AsyncClient, str], Awaitable[None]]
KEY = APPLICATIONS["queuey"][0]
LONG_SECONDS = 3600
"""A lease that is left behind is found: its message does not come again in the time of a test."""


@asynccontextmanager
async def connected(running: RunningServer) -> AsyncIterator[tuple[AsyncClient, str]]:
    """A client, and a new queue."""
    async with AsyncClient(running.url, "queuey", KEY) as client:
        yield client, (await client.create_queue(new_name(), partitions=2)).name


def run(running: RunningServer, scenario: Scenario) -> None:
    async def whole() -> None:
        async with connected(running) as (client, queue):
            await scenario(client, queue)

    asyncio.run(asyncio.wait_for(whole(), 90))


async def settled_down(client: AsyncClient) -> None:
    """What cancelled calls left in the background is done."""
    await asyncio.gather(*client._background._tasks)


# Cancellation.


@pytest.mark.parametrize("wait", [0, 20])
def test_a_receive_that_is_cancelled_anywhere_gives_its_message_back(
    shipped_server: RunningServer, wait: float
) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        await client.append(queue, "x")

        async def receive() -> None:
            (found,) = await client.receive(queue, "g", visibility=LONG_SECONDS, wait=wait)
            await found.release(count=False)

        places = 0
        async for _ in each_await(receive):
            places += 1
            await settled_down(client)
            (again,) = await client.receive(queue, "g", visibility=LONG_SECONDS)
            assert again.failures == 0
            await again.release(count=False)
        assert places >= 4
        assert [one.state async for one in client.leases(queue, "g") if one.state == "leased"] == []

    run(shipped_server, scenario)


def test_a_receive_from_several_queues_is_cancelled_anywhere(shipped_server: RunningServer) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        queues = [(await client.create_queue(new_name())).name, queue]
        await client.append(queue, "x")

        async def receive() -> None:
            (found,) = await client.receive(queues, "g", visibility=LONG_SECONDS, wait=20)
            await found.release(count=False)

        async for _ in each_await(receive):
            await settled_down(client)
            (again,) = await client.receive(queue, "g", visibility=LONG_SECONDS)
            await again.release(count=False)

    run(shipped_server, scenario)


def test_a_pop_that_is_cancelled_anywhere_loses_nothing(shipped_server: RunningServer) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        sent = {(await client.append(queue, str(number))).id for number in range(60)}
        found: list[Any] = []

        async def pop() -> None:
            found.extend(await client.receive(queue, "g", 2, pop=True))

        async for _ in each_await(pop):
            await settled_down(client)
        while popped := await client.receive(queue, "g", pop=True):
            found += popped

        assert len(found) == len(sent)
        assert {one.id for one in found} == sent

    run(shipped_server, scenario)


def test_a_settle_that_is_cancelled_anywhere_is_whole_or_not_at_all(shipped_server: RunningServer) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        results = (await client.create_queue(new_name())).name
        held: list[AsyncDelivery] = []

        async def settle() -> None:
            what = Settle(acknowledge=held[:1], append={results: [held[0].text]}, receive=Receive(1))
            assert (await client.settle(queue, "g", what)).messages == ()

        async def next_one(number: int) -> None:
            held[:] = []
            await client.append(queue, str(number))
            held.extend(await client.receive(queue, "g", visibility=LONG_SECONDS))

        await next_one(0)
        number = 0
        async for _ in each_await(settle):
            await settled_down(client)
            stored = [one.text async for one in client.iterate(results)].count(str(number))
            done = not [one async for one in client.leases(queue, "g")]
            assert stored == done
            if not done:
                await held[0].acknowledge()
            number += 1
            await next_one(number)
        assert number >= 4

    run(shipped_server, scenario)


def test_a_cancelled_receiver_waits_no_more_and_takes_nothing_from_others(shipped_server: RunningServer) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        gone = [asyncio.create_task(client.receive(queue, "g", wait=60)) for _ in range(3)]
        stays = asyncio.create_task(client.receive(queue, "g", wait=60))
        await asyncio.sleep(0.5)  # by then they mostly wait; whenever they are cancelled, the outcome is the same
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
        await settled_down(client)
        await client.append(queue, "x")

        (found,) = await stays

        assert (found.text, found.deliveries) == ("x", 1)

    run(shipped_server, scenario)


def test_a_timeout_says_that_the_outcome_is_not_known(shipped_server: RunningServer) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0):
                await client.append(queue, "x")
        cancelled = caught.value.__cause__ or caught.value.__context__  # before CPython 3.11.4 it was not the cause
        assert cancelled is not None
        assert f"POST {shipped_server.url}/v1/queuey/{queue} may be done or not" in cancelled.__notes__

    run(shipped_server, scenario)


def test_a_receive_with_an_attempt_of_its_own_is_repeated_by_its_caller(shipped_server: RunningServer) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        await client.append(queue, "x")

        async def pop() -> list[AsyncDelivery]:
            return await client.receive(queue, "g", pop=True, attempt="mine")

        async for _ in each_await(pop):
            assert not client._background._tasks
            (found,) = await pop()
            assert found.text == "x"

    run(shipped_server, scenario)


# Blocks.


def test_a_block_that_is_cancelled_releases_without_a_failure(shipped_server: RunningServer) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        await client.append(queue, "x")
        begun = asyncio.Event()

        async def work() -> None:
            async with client.receive_one(queue, "g", visibility=LONG_SECONDS):
                begun.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])

        assert task.cancelled()
        (again,) = await client.receive(queue, "g")
        assert (again.deliveries, again.failures) == (2, 0)

    run(shipped_server, scenario)


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_a_block_is_reached_wherever_it_is_cancelled(shipped_server: RunningServer, fails: bool) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        await client.set_lease_group(queue, "g", backoff={"first": LONG_SECONDS})
        number = 0

        async def block() -> None:
            async with found[0]:
                if fails:
                    raise ZeroDivisionError

        async def ended() -> None:
            try:
                await block()
            except ZeroDivisionError:
                """It went through."""

        await client.append(queue, "0")
        found = await client.receive(queue, "g", visibility=LONG_SECONDS)
        async for _ in each_await(ended):
            await settled_down(client)
            held = [(one.state, one.failures) async for one in client.leases(queue, "g")]
            assert held == [("waits", 1)] * (number + 1) * fails
            number += 1
            await client.append(queue, str(number))
            found = await client.receive(queue, "g", visibility=LONG_SECONDS)
        assert number >= 2

    run(shipped_server, scenario)


def test_blocks_of_many_tasks_are_extended_together(shipped_server: RunningServer) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        await client.append_batch(queue, [NewMessage(str(number), partition=number % 2 + 1) for number in range(20)])

        all_begun, extended = asyncio.Barrier(21), asyncio.Event()

        async def work() -> str:
            async with client.receive_one(queue, "g", visibility=4.5) as delivery:
                assert delivery is not None
                await all_begun.wait()
                await extended.wait()
                return delivery.text

        async def until_extended() -> None:
            first: dict[MessageId, str] = {}
            await all_begun.wait()
            while not extended.is_set():
                now = {one.id: one.visible_at async for one in client.leases(queue, "g")}
                first = now | first
                if len(now) == 20 and all(float(now[id_]) > float(first[id_]) for id_ in now):
                    extended.set()

        *texts, _ = await asyncio.gather(*(work() for _ in range(20)), until_extended())

        assert sorted(map(str, texts), key=int) == [str(number) for number in range(20)]
        assert [one async for one in client.leases(queue, "g")] == []

    run(shipped_server, scenario)


def test_a_block_whose_lease_had_ended_says_so(shipped_server: RunningServer) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        await client.append(queue, "x")

        async def work() -> None:
            async with client.receive_one(queue, "g") as delivery:
                assert delivery is not None
                await client.settle(queue, "g", Settle(acknowledge=[str(delivery.receipt)]))

        with pytest.raises(StaleReceipt):
            await work()

    run(shipped_server, scenario)


# One pool.


def test_receivers_that_wait_hold_up_nothing(shipped_server: RunningServer) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        waiting = [asyncio.create_task(client.receive(queue, "g", wait=60)) for _ in range(120)]
        followed = asyncio.create_task(anext(client.follow([queue])))
        await asyncio.gather(*(client.append(queue, str(number)) for number in range(120)))

        found = [one for some in await asyncio.gather(*waiting) for one in some]
        await asyncio.gather(*(one.acknowledge() for one in found))

        assert sorted(int(one.text) for one in found) == [*range(120)]
        assert (await followed).queue == queue

    run(shipped_server, scenario)


def test_a_client_belongs_to_one_event_loop(shipped_server: RunningServer) -> None:
    client = AsyncClient(shipped_server.url, "queuey", KEY)

    async def look() -> object:
        return await client.find_queue("none")

    async def again() -> None:
        with pytest.raises(ConfigurationError, match="event loop"):
            await look()

    with asyncio.Runner() as runner, asyncio.Runner() as other:
        runner.run(look())
        other.run(again())
        runner.run(client.aclose())
        other.run(look())
        other.run(client.aclose())


def test_a_stream_that_is_left_early_ends_its_connection(shipped_server: RunningServer) -> None:
    async def scenario(client: AsyncClient, queue: str) -> None:
        await client.append_batch(queue, ["x" * 1000] * 5000)
        async with await client.stream_ndjson(queue) as lines:
            await anext(lines)
        async with await client.read_arrow(queue) as batches:
            await anext(batches)
        task = asyncio.create_task(_all_of(client.read_arrow(queue)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert sum([len(page.messages) async for page in client.pages(queue, limit=1000)]) == 5000

    run(shipped_server, scenario)


async def _all_of(stream: Coroutine[Any, Any, Any]) -> None:
    async with await stream as batches:
        async for _ in batches:
            """Read it all."""
