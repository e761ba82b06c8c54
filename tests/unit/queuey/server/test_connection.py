"""A connection fed by hand: however the bytes are cut, the answers are the same; and nobody is waited for too long."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.future import run
from queuey.model import AppendRequest, Draft
from queuey.server.sending import PIECE
from queuey.service.queues import QueueSettings
from tests.support.loop_server import LARGE, MIB, PATH, House, answered, at_home, reading, request, until
from tests.support.raw import Reply, replies

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
        await until(wire.is_ending)
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


@pytest.mark.parametrize("size", [20_000, 100_000, MIB])
def test_an_answer_counts_until_the_client_has_taken_it(size: int) -> None:
    async def test(house: House) -> None:
        queue = run(house.service.queues.create("demo", "q", QueueSettings()))
        draft = Draft(1, b"x" * size, 3600)
        ((_, id_),) = run(house.service.log.append(AppendRequest(queue, [draft]))).placed
        wire, gate = house.wire(), house.server.admission
        wire.room = size - 10_000
        wire.connection.data_received(request(b"GET", PATH + b"/" + id_.hex.encode() + b"?raw=true"))
        await until(lambda: not wire.connection.flowing)
        for _ in range(20):
            await asyncio.sleep(0)

        assert gate.bytes == size
        wire.takes(20_000)
        await until(lambda: gate.bytes == 0)

    at_home(test)


def test_what_is_sent_while_an_answer_is_made_stays_where_it_is() -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        wire.connection.data_received(request(b"GET", b"/v1/demo"))
        wire.connection.data_received(request(b"GET", b"/v1/demo"))
        assert not wire.reading
        assert len(await answered(wire, 2)) == 2
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


@pytest.mark.parametrize("first", [b"G", b"\r\n", b"\r\nG"])
def test_the_time_of_the_first_head_begins_with_the_connection(first: bytes) -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        await house.pass_time(9)
        wire.connection.data_received(first)
        assert not wire.is_over()
        await house.pass_time(1)
        assert wire.is_over()

    at_home(test)


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

    at_home(test, limits={"max_answer_bytes": LARGE * MIB + PIECE})


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
