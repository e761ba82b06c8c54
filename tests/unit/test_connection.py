"""A connection fed by hand: however the bytes are cut, the answers are the same; and nobody is waited for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.api.serve import Desk
from queuey.doors.connection import Connection
from queuey.doors.delivery import PIECE
from queuey.doors.loop import LoopDoor
from queuey.promise import run
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.settings import Settings, load_settings
from tests.functional.raw import Reply, replies

T = TypeVar("T")
KEY = "b" * 32
PATH = b"/v1/demo/q"
MIB = 1 << 20


class Wire(asyncio.Transport):
    """The client's side: what it was sent, and how much of it it takes."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.received = b""
        self.room = 1 << 30
        self.reading = True
        self.half_closed = False
        self._over = False
        connection.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.half_closed
        self.received += bytes(data)
        self.room -= len(data)
        if self.room < 0 and self.connection.flowing:
            self.connection.pause_writing()

    def takes(self, size: int) -> None:
        """The client takes so much more."""
        self.room += size
        if self.room >= 0 and not self.connection.flowing:
            self.connection.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Of :attr:`room` alone."""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write_eof(self) -> None:
        self.half_closed = True

    def is_over(self) -> bool:
        """The server has closed it."""
        return self._over

    def is_ending(self) -> bool:
        """The server sends nothing more."""
        return self._over or self.half_closed

    def close(self) -> None:
        if not self._over:
            self._over = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = close


class House:
    """A door over a store in memory, in this process."""

    def __init__(self, **given: Any) -> None:
        self.settings: Settings = load_settings(None, {}, {"storage_backend": "memory", **given})
        self.service = Service.open(self.settings)
        run(self.service.start(KEY))
        run(self.service.queues.create("demo", "q", QueueSettings()))
        self.door = LoopDoor(Desk(self.service))
        self.door.open(asyncio.get_running_loop())

    def wire(self) -> Wire:
        return Wire(self.door.connection())

    async def pass_time(self, seconds: int) -> None:
        """So many of the door's seconds pass at once, and what comes of it happens."""
        for _ in range(seconds + 1):
            self.door.tick()
            await asyncio.sleep(0)

    @property
    def under_way(self) -> float:
        return self.service.monitor.under_way()

    def close(self) -> None:
        self.door.close()
        self.service.close()


def at_home(test: Callable[[House], Coroutine[Any, Any, T]], **given: Any) -> T:
    """Run a test on a loop of its own, with a queue ``q`` at hand."""

    async def main() -> T:
        house = House(**given)
        try:
            return await asyncio.wait_for(test(house), 20)
        finally:
            house.close()

    return asyncio.run(main())


def request(method: bytes, path: bytes, *headers: bytes) -> bytes:
    key = b"Authorization: Application " + KEY.encode()
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", b"Host: q", key, *headers]) + b"\r\n\r\n"


async def until(look: Callable[[], bool]) -> None:
    while not look():  # noqa: ASYNC110 - it is other threads that are waited for
        await asyncio.sleep(0.001)


STREAM = (
    request(b"POST", PATH, b"Content-Length: 5")
    + b"hello"
    + b"\r\n"
    + request(b"POST", PATH, b"Content-Length: 2")
    + b"\r\n"
    + request(b"PATCH", PATH, b"Content-Length: 3")
    + b"GET"
    + request(b"GET", b"/v1/nobody/q")
    + request(b"POST", PATH, b"Content-Length: 9", b"Connection: close")
    + b"the last."
    + b"and what is behind it"
)
ANSWERS = [201, 201, 405, 404, 201]


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=12, unique=True).map(sorted))
@settings(max_examples=60, deadline=None)
def test_however_requests_are_cut_their_answers_are_the_same(cuts: list[int]) -> None:
    async def test(house: House) -> list[Reply]:
        wire = house.wire()
        for start, end in zip([0, *cuts], [*cuts, len(STREAM)], strict=True):
            await until(lambda: wire.reading or wire.is_ending())
            if not wire.is_ending():
                wire.connection.data_received(STREAM[start:end])
        await until(wire.is_ending)
        assert house.under_way == 0
        return replies(wire.received)

    assert [reply.status for reply in at_home(test)] == ANSWERS


def test_byte_by_byte_is_as_good_as_at_once() -> None:
    async def test(house: House) -> list[int]:
        wire = house.wire()
        for at in range(len(STREAM)):
            await until(lambda: wire.reading)
            if wire.is_ending():
                break
            wire.connection.data_received(STREAM[at : at + 1])
        return [reply.status for reply in replies(wire.received)]

    assert at_home(test) == ANSWERS


def test_what_comes_while_a_request_waits_for_its_turn_is_behind_it() -> None:
    refused = request(b"PATCH", PATH, b"Content-Length: 3") + b"GET"

    async def test(house: House) -> None:
        wire = house.wire()
        wire.connection.data_received(refused * 3)
        for _ in range(20):
            if wire.reading:
                wire.connection.data_received(refused)
            await asyncio.sleep(0)
        await until(lambda: wire.reading)
        statuses = [reply.status for reply in replies(wire.received)]
        assert len(statuses) > 3
        assert set(statuses) == {405}

    at_home(test)


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


def test_what_is_sent_while_an_answer_is_made_stays_where_it_is() -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        wire.connection.data_received(request(b"GET", b"/__heartbeat__"))
        wire.connection.data_received(request(b"GET", b"/__heartbeat__"))
        assert not wire.reading
        await until(lambda: len(replies(wire.received)) == 2)
        await until(lambda: wire.reading)

    at_home(test)


@pytest.mark.parametrize(
    ("sent", "seconds", "said"),
    [
        (b"", 10, []),
        (b"GET / HT", 10, []),
        (request(b"GET", b"/v1/nobody/q"), 75, [404]),
        (request(b"GET", b"/v1/nobody/q") + b"GET", 10, [404]),
        (request(b"GET", b"/v1/nobody/q") + b"\r\n", 75, [404]),
        (request(b"POST", PATH, b"Content-Length: 5") + b"hell", 15, [400]),
        (request(b"PATCH", PATH, b"Content-Length: 5") + b"hell", 15, [405]),
    ],
    ids=[
        "nothing",
        "half a head",
        "a rest",
        "half a head after a rest",
        "an end of line",
        "half a body",
        "half a body nobody reads",
    ],
)
def test_a_client_that_takes_too_long_is_given_up(sent: bytes, seconds: int, said: list[int]) -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        if sent:
            wire.connection.data_received(sent)
            await asyncio.sleep(0)
        await house.pass_time(seconds - 1)
        assert not wire.is_ending()
        await house.pass_time(1)
        assert wire.is_ending()
        await house.pass_time(16)
        assert wire.is_over()
        assert [reply.status for reply in replies(wire.received)] == said
        assert house.under_way == 0

    at_home(test)


def test_a_head_that_comes_slowly_has_one_time_for_all_of_it() -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        for byte in b"GET / HTTP":
            wire.connection.data_received(bytes([byte]))
            await house.pass_time(0)
        assert not wire.is_over()
        await house.pass_time(1)
        assert wire.is_over()

    at_home(test)


LARGE = 8


async def reading(house: House, accept: bytes) -> Wire:
    """A client that asks for eight messages of a MiB each, and takes nothing of the answer yet."""
    for _ in range(LARGE):
        wire = house.wire()
        wire.connection.data_received(request(b"POST", PATH, b"Content-Length: %d" % MIB) + b"x" * MIB)
        await until(lambda wire=wire: b"201 Created" in wire.received)  # type: ignore[misc]
        wire.connection.connection_lost(None)
    wire = house.wire()
    wire.room = 0
    wire.connection.data_received(request(b"GET", PATH, b"Accept: " + accept, b"Connection: close"))
    await until(lambda: wire.room < 0)
    return wire


@pytest.mark.parametrize("accept", [b"application/json", b"application/x-ndjson"])
def test_a_large_answer_is_sent_as_the_client_takes_it(accept: bytes) -> None:
    async def test(house: House) -> None:
        wire = await reading(house, accept)
        while not wire.is_over():
            before = len(wire.received)
            assert wire.room >= -2 * PIECE
            wire.takes(PIECE)
            await house.pass_time(5)
            await until(lambda before=before: len(wire.received) > before or wire.is_over() or wire.room > 0)  # type: ignore[misc]
        (reply,) = replies(wire.received)
        assert reply.body.count(b"x" * (1 << 16)) == LARGE * (MIB >> 16)

    at_home(test, limits_max_answer_bytes=LARGE * MIB)


@pytest.mark.parametrize("accept", [b"application/json", b"application/x-ndjson"])
def test_a_client_that_stops_taking_is_given_up(accept: bytes) -> None:
    async def test(house: House) -> None:
        wire = await reading(house, accept)
        wire.takes(PIECE)
        await until(lambda: wire.room < 0)
        await house.pass_time(14)
        assert not wire.is_over()
        await house.pass_time(1)
        assert wire.is_over()
        await until(lambda: house.under_way == 0)
        assert len(wire.received) < 4 * PIECE

    at_home(test)


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    async def test(house: House) -> None:
        for sent in (STREAM[:-40], request(b"POST", PATH, b"Content-Length: 5"), request(b"GET", PATH)):
            wire = house.wire()
            wire.connection.data_received(sent)
            wire.connection.connection_lost(None)
        await until(lambda: house.under_way == 0)

    at_home(test)
