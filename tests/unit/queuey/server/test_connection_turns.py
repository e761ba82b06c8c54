"""Connections take turns: nobody waits for another's large request, batch or wait."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any
from unittest.mock import patch

import pytest

from queuey.future import others_turn, run
from queuey.http.admission import UNREAD, Ticket
from queuey.http.face import LARGE_BYTES
from queuey.model import AppendRequest, Draft
from queuey.security.principals import STRANGERS
from queuey.server.sending import PIECE
from queuey.server.turns import UPLOADS_A_TURN
from queuey.service.queues import QueueSettings
from queuey.storage.memory import MemoryMessages
from tests.support.loop_server import PATH, House, answered, at_home, request, status_of, until
from tests.support.raw import replies, whole_replies


@pytest.mark.parametrize("asked", [b"/wide?partitions=all", b"/wide?wait=20", b"?queues=wide&limit=1000"])
def test_others_have_their_turn_while_many_partitions_are_read(asked: bytes) -> None:
    async def test(house: House) -> None:
        wide = run(house.service.queues.create("demo", "wide", QueueSettings(partitions=200)))
        drafts = [Draft(number, b"x", 3600) for number in range(1, 201) for _ in range(20)]
        run(house.service.log.append(AppendRequest(wide, drafts)))
        wire, turns = house.wire(), 0
        wire.connection.data_received(request(b"GET", b"/v1/demo" + asked, b"Connection: close"))
        while not wire.is_ending():
            await asyncio.sleep(0)
            turns += 1
        (reply,) = replies(wire.received)
        assert len(json.loads(reply.body)["messages"]) == 4000
        assert turns >= 10

    at_home(test)


@pytest.mark.parametrize("asked", [b"/q?partitions=1,2,3,4,5,6,7,8", b"?queues=q&wait=0"])
def test_what_is_read_counts_while_others_have_their_turn(asked: bytes) -> None:
    """Forty readers of 4 MiB each had all of it in memory at once, and nothing of it was counted."""

    async def test(house: House) -> None:
        queue = run(house.service.queues.update(house.find("q"), QueueSettings(partitions=8)))
        for number in range(1, 9):
            run(house.service.log.append(AppendRequest(queue, [Draft(number, b"x" * 6000, 3600)] * 100)))
        wires = [house.wire() for _ in range(40)]
        read, begun, in_memory = MemoryMessages.read, 0, 0

        def counted(*given: Any, **more: Any) -> Any:
            nonlocal begun, in_memory
            begun += 1
            in_memory = max(in_memory, begun - 8 * sum(bool(wire.received) for wire in wires))
            return read(*given, **more)

        with patch.object(MemoryMessages, "read", autospec=True, side_effect=counted):
            for wire in wires:
                wire.connection.data_received(request(b"GET", b"/v1/demo" + asked))
            while not all(wire.received for wire in wires):  # noqa: ASYNC110 - the loop has turns
                await asyncio.sleep(0)
        assert {status_of(wire) for wire in wires} == {200, 429}
        assert in_memory < 8 * len(wires) / 2, "pages that were in memory at once"

    at_home(test, limits={"max_in_flight_mb": 16})


SEVERAL = b"?queues=" + b",".join(b"n%d" % n for n in range(100))
LINES = b"Accept: application/x-ndjson"
WAITS = [
    request(b"GET", b"/v1/demo/wide?wait=20"),
    request(b"GET", b"/v1/demo/wide?follow=true", LINES),
    request(b"GET", b"/v1/demo" + SEVERAL + b"&wait=20"),
    request(b"GET", b"/v1/demo" + SEVERAL + b"&follow=true", LINES),
]
"""Long polls and streams: of a queue of 200 partitions, and of 100 queues of two."""


def waits(house: House) -> bool:
    """Whether somebody waits for messages, and looks for none."""
    return any(watch.future is not None for watch in house.service.waiters._table.watches())


def wide_house() -> House:
    house = House()
    run(house.service.queues.create("demo", "wide", QueueSettings(partitions=200)))
    for number in range(100):
        run(house.service.queues.create("demo", f"n{number}", QueueSettings(partitions=2)))
    return house


@pytest.mark.parametrize(("asked", "least"), [*zip(WAITS, (15, 10, 15, 10), strict=True)])
def test_others_have_their_turn_on_the_way_into_a_wait(asked: bytes, least: int) -> None:
    """200 partitions were looked at in one turn of the loop, for each reader that began to wait."""

    async def test(_: House) -> None:
        house, turns = wide_house(), 0
        house.wire().connection.data_received(asked)
        while not waits(house):
            await asyncio.sleep(0)
            turns += 1
        assert turns >= least
        house.close()

    at_home(test)


@pytest.mark.parametrize("asked", WAITS)
def test_what_comes_between_two_looks_ends_the_wait(asked: bytes) -> None:
    async def test(_: House) -> None:
        for turns in range(16):
            house = wide_house()
            name = "wide" if b"wide" in asked else "n7"
            queue = run(house.service.queues.find("demo", name))
            assert queue is not None
            wire = house.wire()
            wire.connection.data_received(asked)
            for _turn in range(turns):
                await asyncio.sleep(0)
            run(house.service.log.append(AppendRequest(queue, [Draft(2, b"it came", 3600)])))
            while b"it came" not in wire.received:  # noqa: ASYNC110 - whatever thread it takes
                await asyncio.sleep(0.001)
            house.close()

    at_home(test)


def test_uploads_take_turns_piece_by_piece() -> None:
    """A fast client's body was read to its end before anything else happened, and 32 of them kept the loop for 150 ms."""

    async def test(house: House) -> None:
        wires = [house.wire() for _ in range(UPLOADS_A_TURN + 2)]
        for wire in wires:
            wire.connection.data_received(request(b"POST", PATH, b"Content-Length: %d" % (3 * PIECE)))
            wire.connection.data_received(b"x" * PIECE)
        assert not any(wire.reading for wire in wires)
        for turn in (1, 2):
            await asyncio.sleep(0)
            assert [wire.reading for wire in wires] == [number < turn * UPLOADS_A_TURN for number in range(len(wires))]
        wires[1].connection.data_received(b"x" * PIECE)
        wires[1].close()
        for _ in range(3):
            await asyncio.sleep(0)
        wires[0].connection.data_received(b"x" * 2 * PIECE)
        await until(lambda: bool(wires[0].received))
        assert [reply.status for reply in replies(wires[0].received)] == [201]
        assert wires[0].reading

    at_home(test)


def test_a_large_batch_as_json_gives_way_to_others_between_its_steps() -> None:
    async def test(house: House) -> None:
        body = json.dumps({"messages": [{"body": "x" * 100} for _ in range(3000)]}).encode()
        assert len(body) > LARGE_BYTES
        wire, beats = house.wire(), 0
        head = request(b"POST", PATH, b"Content-Type: application/json", b"Content-Length: %d" % len(body))
        wire.connection.data_received(head + body)
        while not whole_replies(wire.received):
            other = house.wire()
            other.connection.data_received(request(b"GET", b"/__heartbeat__", b"Connection: close"))
            assert [reply.status for reply in replies(other.received)] == [200]
            beats += 1
            await asyncio.sleep(0)
        assert beats >= 3
        (reply,) = replies(wire.received)
        assert len(json.loads(reply.body)["messages"]) == 3000

    at_home(test)


def test_a_call_in_a_thread_gives_way_to_the_loop() -> None:
    did: list[str] = []

    async def test(house: House) -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            loop.call_soon_threadsafe(did.append, "the loop")
            run(others_turn())
            did.append("the thread")

        house.server.work.start("app:demo", work, lambda _: done.set(), print)
        await asyncio.wait_for(done.wait(), 30)

    at_home(test)

    assert did == ["the loop", "the thread"]


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST"])
def test_the_server_tells_about_itself_while_all_threads_are_busy(method: bytes) -> None:
    paths = [b"/__heartbeat__", b"/__heartbeat__/?limit=1000", b"/__heartbeat__?wait=20"]
    if method != b"POST":
        paths += [b"/__lbheartbeat__", b"/__version__", b"/metrics", b"/openapi.json"]
    released = threading.Event()

    async def test(house: House) -> None:
        house.server.work.start("strangers", released.wait, lambda _: None, lambda _: None)
        try:
            for path in paths:
                wire = house.wire()
                wire.connection.data_received(
                    request(method, path, b"Accept: application/x-ndjson", b"Connection: close")
                )
                await until(wire.is_ending)
                assert wire.received.split(b" ")[1] == (b"403" if path == b"/metrics" else b"200")
        finally:
            released.set()

    at_home(test, server={"threads": 1})


def occupy(house: House, payer: str) -> threading.Event:
    """All threads that one payer may have are at work for it, and more of its work waits, until the event is set."""
    released = threading.Event()
    for _ in range(10):
        house.server.work.start(payer, released.wait, lambda _: None, lambda _: None)
    return released


@pytest.mark.parametrize("form", [b"Accept: application/x-ndjson", b"Accept: application/vnd.apache.arrow.stream"])
def test_an_application_that_only_makes_calls_for_threads_never_stands_behind_strangers(form: bytes) -> None:
    async def test(house: House) -> None:
        released = occupy(house, STRANGERS)
        try:
            for _ in range(3):
                house.service.recent.clear()  # as each second
                wire = house.wire()
                wire.connection.data_received(request(b"GET", PATH, form, b"Connection: close"))
                await until(wire.is_ending)
                assert [reply.status for reply in replies(wire.received)] == [200]
        finally:
            released.set()

    at_home(test, server={"threads": 2})


def test_an_upload_of_an_application_begins_beside_heads_that_fill_their_share() -> None:
    async def test(house: House) -> None:
        assert Ticket(house.server.admission, (UNREAD,)).try_hold(256 << 10)
        house.service.keys._looked = float("-inf")  # an answer about its sender waits for the store
        wire = house.wire()

        wire.connection.data_received(request(b"POST", PATH, b"Content-Length: %d" % (64 << 10)) + b"x" * (32 << 10))
        wire.connection.data_received(b"x" * (32 << 10))

        assert await answered(wire) == [201]

    at_home(test, limits={"max_in_flight_mb": 1})


def test_what_an_application_sends_behind_a_request_under_way_is_its_own() -> None:
    async def test(house: House) -> None:
        assert Ticket(house.server.admission, (UNREAD,)).try_hold(256 << 10)
        released = occupy(house, "app:demo")
        wire = house.wire()
        wire.connection.data_received(request(b"GET", PATH, b"Accept: application/x-ndjson"))

        wire.connection.data_received(request(b"POST", PATH, b"Content-Length: %d" % (8 << 10)) + b"x" * (8 << 10))

        assert not wire.is_over()
        released.set()
        assert len(await answered(wire, 2)) == 2

    at_home(test, server={"threads": 2}, limits={"max_in_flight_mb": 1})


@pytest.mark.parametrize("accept", [b"application/json", b"application/x-ndjson"])
def test_one_who_waits_behind_another_request_is_heard_going_away(accept: bytes) -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        wait = request(b"GET", PATH + b"?wait=20", b"Accept: " + accept)
        wire.connection.data_received(request(b"GET", b"/v1/nobody/q") + wait)
        assert not wire.reading
        await until(lambda: wire.reading)
        wire.connection.eof_received()
        await until(wire.is_over)
        await until(lambda: house.under_way == 0)

    at_home(test)
