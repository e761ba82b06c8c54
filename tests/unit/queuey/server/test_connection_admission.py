"""What a connection may spend: the caller is known first, and what comes early or in excess is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from queuey.future import Future, run
from queuey.http.admission import Admission, Ticket
from queuey.http.pipeline import SMALL
from queuey.model import PrincipalKey
from queuey.monitor.exposition import text_of
from queuey.monitor.metrics import BYTES_IN_FLIGHT, WAITERS
from queuey.security.app_keys import digest_of
from queuey.security.principals import payers
from queuey.service.keys import Keys
from tests.support.loop_server import (
    KEY,
    MIB,
    PATH,
    WHOLE,
    House,
    answered,
    at_home,
    reading,
    request,
    status_of,
    until,
)
from tests.support.raw import replies

# The caller is known before anything is spent


HALF = request(b"POST", PATH, b"Content-Length: 10") + b"hello"


def test_bodies_that_do_not_come_take_no_place() -> None:
    async def test(house: House) -> None:
        slow = [house.wire() for _ in range(3)]
        for wire in slow:
            wire.connection.data_received(HALF)
        assert house.under_way == 0

        other = house.wire()
        other.connection.data_received(request(b"POST", PATH, b"Content-Length: 5") + b"hello")
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
    ids=["nobody", "a wrong key", "no queue", "no application", "a caller that may is asked to go on"],
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
        looked_up: Future[list[PrincipalKey]] = Future()
        monkeypatch.setattr(house.service.stores.metadata, "keys", lambda: looked_up)
        monkeypatch.setattr(Keys, "stale", True)
        first, meanwhile, later = house.wire(), house.wire(), house.wire()
        first.connection.data_received(request(b"GET", PATH))
        monkeypatch.setattr(Keys, "stale", False)
        meanwhile.connection.data_received(request(b"GET", PATH))
        assert await answered(meanwhile) == [200]

        looked_up.set_result([PrincipalKey("app:demo", digest_of("c" * 32), "other", 0)])
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
        counted = text_of(house.service.monitor)
        assert b'queuey_throttled_total{limit="in_flight"} 1.0' in counted

    at_home(test, limits={"max_in_flight": 1})


def test_a_body_that_finds_no_room_before_its_caller_is_known_is_refused_as_its_call() -> None:
    """Not as bytes that are no call: an SQS client got v1's form, and no caller its own request id."""

    async def test(house: House) -> None:
        Ticket(house.server.admission, ("app:other",)).hold(MIB, owed=True)
        wire = house.wire()
        head = (b"X-Amz-Target: AmazonSQS.ListQueues", b"X-Request-Id: mine", b"Content-Length: 9000")
        wire.connection.data_received(request(b"POST", b"/", *head) + b"x" * 8000)

        (one,) = replies(wire.received)
        assert (one.status, one.headers["x-request-id"], one.headers["connection"]) == (403, "mine", "close")
        assert b"#RequestThrottled" in one.body
        assert b'queuey_throttled_total{limit="in_flight"} 1.0' in text_of(house.service.monitor)
        wire.connection.connection_lost(None)

    at_home(test, limits={"max_in_flight_mb": 1})


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
        house.server.pauses._seconds = 3600.0
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
