"""A connection fed by hand: however the bytes are cut, the answers are the same; and nobody is waited for too long."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.future import Future, others_turn, run
from queuey.http.admission import UNREAD, Admission, Ticket
from queuey.http.face import LARGE_BYTES
from queuey.http.pipeline import SMALL
from queuey.model import AppendRequest, ApplicationKey, Draft
from queuey.monitor.metrics import BYTES_IN_FLIGHT, WAITERS
from queuey.security.app_keys import digest_of
from queuey.security.principals import STRANGERS, payers
from queuey.server.sending import PIECE
from queuey.server.turns import UPLOADS_A_TURN
from queuey.service.keys import Keys
from queuey.service.queues import QueueSettings
from queuey.storage.memory import MemoryMessages
from tests.support.loop_server import KEY, MIB, PATH, WHOLE, House, Wire, answered, at_home, request, until
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
        with patch.object(MemoryMessages, "read", autospec=True, side_effect=MemoryMessages.read) as read:
            for wire in wires:
                wire.connection.data_received(request(b"GET", b"/v1/demo" + asked))
            while not all(wire.received for wire in wires):  # noqa: ASYNC110 - the loop has turns
                await asyncio.sleep(0)
        assert {status_of(wire) for wire in wires} == {200, 429}
        assert read.call_count < 8 * len(wires) / 2

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
    return any(watch.promise is not None for place in house.service.live._places.values() for watch in place.watches)


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
        while not wire.received:
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
        await until(lambda: len(replies(wire.received)) == 2)

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


def test_what_is_sent_while_an_answer_is_made_stays_where_it_is() -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        wire.connection.data_received(request(b"GET", b"/v1/demo"))
        wire.connection.data_received(request(b"GET", b"/v1/demo"))
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


# The caller is known before anything is spent


HALF = request(b"POST", PATH, b"Content-Length: 10") + b"hello"


def test_bodies_that_do_not_come_take_no_place() -> None:
    async def test(house: House) -> None:
        slow = [house.wire() for _ in range(3)]
        for wire in slow:
            wire.connection.data_received(HALF)
        assert house.under_way == 0

        other = house.wire()
        other.connection.data_received(STREAM[: STREAM.index(b"hello") + 5])
        assert await answered(other) == [201]
        slow[0].connection.data_received(b"later")
        assert await answered(slow[0]) == [201]

    at_home(test, limits={"max_in_flight": 2})


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /v1/demo/q HTTP/1.1\r\nHost: q\r\nContent-Length: 9000\r\n\r\n", 403),
        (request(b"POST", PATH, b"Content-Length: 9000").replace(KEY.encode(), b"wrong" * 6), 401),
        (request(b"POST", b"/v1/demo/absent", b"Content-Length: 9000"), 404),
        (request(b"POST", b"/v1/nobody", b"Content-Length: 9000"), 404),
        (request(b"POST", PATH, b"Content-Length: 9000", b"Expect: 100-continue"), 100),
    ],
    ids=["nobody", "a wrong key", "no queue", "no application", "who may is asked to go on"],
)
def test_who_may_not_is_refused_before_the_body(head: bytes, status: int) -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        wire.connection.data_received(head)
        assert await answered(wire) == [status]

    at_home(test)


def test_a_query_is_not_taken_apart_without_bound() -> None:
    async def test(house: House) -> None:
        for count, status in ((100, 200), (101, 400)):
            wire = house.wire()
            wire.connection.data_received(request(b"GET", PATH + b"?" + b"&".join([b"a"] * count)))
            assert await answered(wire) == [status]

    at_home(test)


def test_what_changes_while_a_body_comes_counts() -> None:
    """Permission is asked for the body, and again for the whole request."""

    async def test(house: House) -> None:
        wire = house.wire()
        wire.connection.data_received(HALF)
        queue = house.find("q")
        run(house.service.queues.delete(queue))
        wire.connection.data_received(b"later")
        assert await answered(wire) == [404]

    at_home(test)


@pytest.mark.parametrize("size", [SMALL, SMALL + 1])
def test_a_body_that_comes_with_its_head_is_counted_unless_it_is_small(size: int, tmp_path: Path) -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        wire.connection.data_received(request(b"POST", PATH, b"Content-Length: %d" % size) + b"x" * size)
        assert house.service.monitor.value(BYTES_IN_FLIGHT) == (size if size > SMALL else 0)
        assert await answered(wire) == [201]
        assert house.service.monitor.value(BYTES_IN_FLIGHT) == 0

    at_home(test, storage={"backend": "sqlite"}, server={"data": str(tmp_path)})


def test_a_key_that_is_removed_while_the_keys_are_looked_up_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(house: House) -> None:
        looked_up: Future[list[ApplicationKey]] = Future()
        monkeypatch.setattr(house.service.stores.metadata, "keys", lambda: looked_up)
        monkeypatch.setattr(Keys, "stale", True)
        first, meanwhile, later = house.wire(), house.wire(), house.wire()
        first.connection.data_received(request(b"GET", PATH))
        monkeypatch.setattr(Keys, "stale", False)
        meanwhile.connection.data_received(request(b"GET", PATH))
        assert await answered(meanwhile) == [200]

        looked_up.set_result([ApplicationKey("demo", digest_of("c" * 32), "other", 0)])
        assert await answered(first) == [401]
        later.connection.data_received(request(b"GET", PATH))
        assert await answered(later) == [401]

    at_home(test)


def test_bytes_of_one_application_leave_room_for_others() -> None:
    async def test(house: House) -> None:
        wires = [house.wire() for _ in range(2)]
        for wire in wires:
            wire.connection.data_received(request(b"POST", PATH, b"Content-Length: %d" % MIB))
            wire.connection.data_received(b"x" * (300 << 10))
        assert (wires[0].received, await answered(wires[1])) == (b"", [429])
        assert Ticket(house.server.admission, ("app:other",)).try_hold(512 << 10)

    at_home(test, limits={"max_in_flight_mb": 1})


def test_strangers_and_users_take_a_quarter_together() -> None:
    gate = Admission(10, 1600)
    joe, ann = payers(frozenset({"bid:joe"})), payers(frozenset({"bid:ann"}))
    assert all(Ticket(gate, by).try_hold(100) for by in (joe, ann, payers(frozenset()), payers(frozenset())))

    assert not Ticket(gate, joe).try_hold(1)
    assert not Ticket(gate, payers(frozenset())).try_hold(1)
    assert Ticket(gate, ("app:a",)).try_hold(800)
    assert not Ticket(gate, ("app:a",)).try_hold(1)
    assert Ticket(gate, ("app:b",)).try_hold(400)
    assert not Ticket(gate, ("app:c",)).try_hold(1)
    assert gate.bytes == 1600


def test_a_call_that_is_alone_finds_room_and_gives_it_back() -> None:
    gate = Admission(10, 100)
    ticket = Ticket(gate)
    assert ticket.try_hold(500)
    assert ticket.try_hold(500)
    assert not Ticket(gate, ("app:b",)).try_hold(1)

    ticket.close()
    ticket.close()

    assert (gate.bytes, gate.room) == (0, 10)


def test_a_client_that_does_not_take_its_answer_takes_no_place() -> None:
    """Only its bytes count, and they come back."""

    async def test(house: House) -> None:
        wire = await reading(house, b"application/json")
        assert house.under_way == 0
        assert house.service.monitor.value(BYTES_IN_FLIGHT) >= 1 << 20
        small = house.wire()
        small.room = 0
        small.connection.data_received(request(b"GET", b"/openapi.json", b"Connection: close"))
        page = len(small.received)
        await until(lambda: house.service.monitor.value(BYTES_IN_FLIGHT) > (1 << 20) + page // 2)
        for each in (wire, small):
            each.connection.connection_lost(None)
        await until(lambda: house.service.monitor.value(BYTES_IN_FLIGHT) == 0)

    at_home(test)


# What comes before its turn


@pytest.mark.parametrize("piece", [b"\r\n", b"\n\r"])
def test_empty_lines_before_a_request_do_not_buy_time(piece: bytes) -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        wire.connection.data_received(b"\r")
        wire.connection.data_received(piece)
        for _ in range(4):
            await house.pass_time(3)
            if not wire.is_ending():
                wire.connection.data_received(piece)
        assert wire.is_ending()

    at_home(test)


@pytest.mark.parametrize("target", [b"?follow=true", b"?wait=20"])
def test_a_client_that_goes_on_sending_while_it_waits_is_ended(target: bytes) -> None:
    async def test(house: House) -> None:
        wire = house.wire()
        wire.connection.data_received(request(b"GET", PATH + target, b"Accept: application/x-ndjson"))
        await until(lambda: house.service.monitor.value(WAITERS) == 1 and house.under_way == 0)
        for _ in range(3):
            wire.connection.data_received(b"x" * 1000)
        await until(wire.is_over)
        await until(lambda: house.service.monitor.value(WAITERS) == 0)

    at_home(test)


def test_what_comes_before_its_turn_is_counted_and_given_back() -> None:
    """More than a little of it: of a head that is not whole, and behind a request that is answered."""
    early = request(b"GET", PATH, b"X-Long: " + b"x" * 10_000)

    async def test(house: House) -> None:
        held = partial(house.service.monitor.value, BYTES_IN_FLIGHT)
        wire, other = house.wire(), house.wire()
        wire.connection.data_received(early[:-1])
        assert held() > 10_000
        other.connection.data_received(request(b"GET", b"/__heartbeat__") + early)
        assert held() > 20_000
        other.connection.connection_lost(None)
        wire.connection.data_received(early[-1:])
        assert await answered(wire) == [200]
        await until(lambda: held() == 0)

    at_home(test)


def test_all_clients_together_send_a_bounded_part_before_their_turn() -> None:
    async def test(house: House) -> None:
        held = partial(house.service.monitor.value, BYTES_IN_FLIGHT)
        wires = [house.wire() for _ in range(12)]
        for wire in wires:
            wire.connection.data_received(b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 30_000)
        assert held() <= 256 << 10
        assert {status_of(wire) for wire in wires} == {None, 429}

    at_home(test, limits={"max_in_flight_mb": 1})


def status_of(wire: Wire) -> int | None:
    return replies(wire.received)[0].status if wire.received else None


# When the server is full


def test_a_full_server_refuses_at_once_and_serves_its_own_pages() -> None:
    async def test(house: House) -> None:
        taken = Ticket(house.server.admission)
        assert taken.enter()
        wire = house.wire()
        wire.connection.data_received(WHOLE)

        (one,) = replies(wire.received)
        assert (one.status, one.headers["x-request-id"], one.headers["retry-after"]) == (429, "mine", "1")
        beat = house.wire()
        beat.connection.data_received(request(b"GET", b"/__lbheartbeat__"))
        assert await answered(beat) == [200]
        counted = house.service.monitor.exposition()
        assert b'queuey_throttled_total{limit="in_flight"} 1.0' in counted

    at_home(test, limits={"max_in_flight": 1})


def test_a_full_server_leaves_the_connection_to_a_client_that_asks_before_it_sends_a_body() -> None:
    """The answer that is the same for all closed it, and did not say so."""

    async def test(house: House) -> None:
        assert Ticket(house.server.admission).enter()
        wire = house.wire()
        wire.connection.data_received(request(b"POST", PATH, b"Content-Length: 5", b"Expect: 100-continue"))
        assert await answered(wire) == [100]
        wire.connection.data_received(b"hello")
        await until(lambda: b"HTTP/1.1 429 " in wire.received)
        assert not wire.is_ending()
        wire.connection.connection_lost(None)

    at_home(test, limits={"max_in_flight": 1})


def test_a_client_that_was_refused_is_not_read_until_there_is_room_and_the_first_one_comes_first() -> None:
    async def test(house: House) -> None:
        ticket = Ticket(house.server.admission)
        assert ticket.enter()
        wires = [house.wire() for _ in range(3)]
        for wire in wires:
            wire.connection.data_received(WHOLE)
        assert [wire.reading for wire in wires] == [False] * 3

        ticket.close()
        other = house.wire()
        other.connection.data_received(request(b"GET", PATH))
        assert await answered(other) == [200]
        await until(lambda: wires[0].reading)
        assert [wire.reading for wire in wires] == [True, False, False]
        wires[0].connection.data_received(WHOLE)
        assert await answered(wires[0], 2) == [429, 201]
        await until(lambda: wires[1].reading)

    at_home(test, limits={"max_in_flight": 1})


def test_a_client_that_was_refused_is_read_again_after_the_time_it_was_told() -> None:
    async def test(house: House) -> None:
        assert Ticket(house.server.admission).enter()
        wire = house.wire()
        wire.connection.data_received(WHOLE * 2)
        assert await answered(wire, 2) == [429, 429]
        wire.connection.connection_lost(None)

    at_home(test, limits={"max_in_flight": 1})


def test_one_timer_ends_all_pauses_however_often_they_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pause that began when no client waited had left a timer that ran until none did: thousands in a second."""

    async def test(house: House) -> None:
        timers: list[Callable[[], object]] = []
        monkeypatch.setattr(house.server._loop, "call_later", lambda _, callback: timers.append(callback))
        ticket = Ticket(house.server.admission)
        wire = house.wire()
        for _ in range(20):
            assert ticket.enter()
            wire.connection.data_received(WHOLE)
            assert not wire.reading
            ticket.close()
            other = house.wire()
            other.connection.data_received(request(b"GET", PATH))
            for _ in range(3):
                await asyncio.sleep(0)
            assert wire.reading
        assert ticket.enter()
        wire.connection.data_received(WHOLE)
        assert len(timers) == 1

        timers.pop()()
        assert len(timers) == 1
        ticket.close()

    at_home(test, limits={"max_in_flight": 1})
