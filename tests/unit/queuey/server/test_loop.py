"""What the connections of one server share: its second, and the turns in which they are read."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

import pytest

from queuey.http.admission import Ticket
from queuey.security.principals import STRANGERS
from queuey.server.connection import Connection
from queuey.server.loop import LoopServer
from queuey.server.sending import PIECE
from queuey.server.turns import REFUSED_UPLOADS_A_TURN, UPLOADS_A_TURN
from tests.support.loop_server import MIB, PATH, WHOLE, House, Wire, answered, at_home, request
from tests.support.raw import replies

STRANGER = b"POST /v1/demo/q HTTP/1.1\r\nHost: q\r\nContent-Length: %d\r\n\r\n"


class Failing(Connection):
    """Whatever the server tells it fails, since somebody made a mistake."""

    def fail(self) -> NoReturn:
        raise RuntimeError("planted")

    late = stop = go_on_after_pause = read_next_piece = fail


def failing(house: House) -> Wire:
    return Wire(Failing(house.server))


# Time


def test_a_connection_whose_end_fails_is_ended_and_the_second_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """No client was ever given up again, and Date stood still until a restart."""

    async def test(house: House) -> None:
        wires = [failing(house), *(house.wire() for _ in range(20))]
        for _ in range(11):
            timer = house.server._timer
            house.server._watch()
            timer.cancel()
            assert house.server._timer is not timer
            assert not house.server._timer.cancelled()
        assert all(wire.is_over() for wire in wires)
        assert "planted" in caplog.text

    at_home(test)


def test_the_next_second_comes_whatever_becomes_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(house: House) -> None:
        timer = house.server._timer
        monkeypatch.setattr(LoopServer, "tick", Failing.fail)
        with pytest.raises(RuntimeError):
            house.server._watch()
        timer.cancel()
        assert house.server._timer is not timer

    at_home(test)


def test_one_that_fails_keeps_no_other_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    """All uploads stood still for ever, all refused clients, and a stop."""

    async def test(house: House) -> None:
        ticket = Ticket(house.server.admission)
        assert ticket.enter()
        wires = [failing(house), house.wire()]
        for wire in wires:
            wire.connection.data_received(WHOLE)
        ticket.close()
        house.server.pauses._fill_room()
        house.server.pauses._fill_room()
        assert [wire.is_over() for wire in wires] == [True, False]
        assert wires[1].reading

        wires = [failing(house), house.wire()]
        for wire in wires:
            wire.connection.data_received(request(b"POST", PATH, b"Content-Length: %d" % (3 * PIECE)))
            wire.connection.data_received(b"x" * PIECE)
        await asyncio.sleep(0)
        assert [wire.is_over() for wire in wires] == [True, False]
        assert wires[1].reading

        await asyncio.sleep(0)
        wires = [failing(house), house.wire()]
        house.server._end_resting()
        assert [wire.is_over() for wire in wires] == [True, True]
        assert caplog.text.count("RuntimeError: planted") == 3

    with caplog.at_level(logging.ERROR):
        at_home(test, limits={"max_in_flight": 1})


class Unlooked(Wire):
    """TLS to a client that does not look: a close waits for its side, and it does not end that."""

    def close(self) -> None:
        pass


def test_a_stop_waits_for_no_client_at_rest() -> None:
    """Over TLS it took 15 seconds if one client kept its connection: as long as requests under way may take."""

    async def test(house: House) -> None:
        house.server.is_tls = True
        wire = Unlooked(Connection(house.server))
        wire.connection.data_received(request(b"GET", PATH))
        assert await answered(wire) == [200]

        stopping = asyncio.create_task(house.server.stop())
        await asyncio.sleep(0)
        house.server._end_resting()
        assert not wire.is_over(), "what says the end must reach a client that looks"
        await house.pass_time(1)

        assert wire.is_over()
        await stopping

    at_home(test)


# Bodies that are refused


def test_an_upload_that_is_refused_takes_turns_behind_those_that_are_not() -> None:
    """Of a client without a credential the loop read 8 MiB in one turn, until its deadline; and of thousands of them."""

    async def test(house: House) -> None:
        strangers = [house.wire() for _ in range(3 * REFUSED_UPLOADS_A_TURN)]
        for wire in strangers:
            wire.connection.data_received(STRANGER % (10 * PIECE))
            assert await answered(wire) == [403]
            wire.connection.data_received(b"x" * PIECE)
        uploads = [house.wire() for _ in range(UPLOADS_A_TURN)]
        for wire in uploads:
            wire.connection.data_received(request(b"POST", PATH, b"Content-Length: %d" % (3 * PIECE)))
            wire.connection.data_received(b"x" * PIECE)
        assert not any(wire.reading for wire in strangers[1:] + uploads)
        assert len(house.server.uploads._refused) >= 2 * REFUSED_UPLOADS_A_TURN
        await asyncio.sleep(0)
        assert all(wire.reading for wire in uploads)
        assert not strangers[-1].reading
        for _ in range(3):
            await asyncio.sleep(0)
        assert all(wire.reading for wire in strangers)
        assert not any(wire.is_over() for wire in strangers)

    at_home(test)


def test_those_that_have_gone_keep_no_other_from_its_turn() -> None:
    async def test(house: House) -> None:
        wires = [house.wire() for _ in range(20 * REFUSED_UPLOADS_A_TURN)]
        for wire in wires:
            wire.connection.data_received(b"no request\r\n\r\n")
            wire.connection.data_received(b"x" * PIECE)
        for wire in wires[:-1]:
            wire.connection.connection_lost(None)
        await asyncio.sleep(0)
        assert wires[-1].reading
        assert not house.server.uploads._refused

    at_home(test)


def test_a_client_that_sends_more_than_it_announced_is_not_read_on() -> None:
    """What it announced is taken, or a reset could overtake its answer."""

    async def test(house: House) -> None:
        wire = house.wire()
        wire.connection.data_received(STRANGER % (3 * PIECE))
        assert await answered(wire) == [403]
        for _ in range(3):
            wire.connection.data_received(b"x" * PIECE)
        wire.connection.data_received(request(b"GET", PATH))
        assert not wire.is_over()
        wire.connection.data_received(b"x" * PIECE)
        assert wire.is_over()
        assert [reply.status for reply in replies(wire.received)] == [403]

    at_home(test)


# Bodies in a crowd

TURNS_A_SECOND = 30
"""Of a server that is busy."""
STRANGERS_BATCH = STRANGER.replace(b"Host: q", b"Host: q\r\nContent-Type: application/json")
BATCH = request(b"POST", PATH, b"Content-Type: application/json", b"Content-Length: %d")
MESSAGE = request(b"POST", PATH, b"Content-Type: text/plain", b"Content-Length: %d")


async def send_all(house: House, wires: list[Wire], size: int) -> None:
    """All send this number of bytes, as fast as the server reads them, until the server cuts them off."""
    house.server._timer.cancel()
    left, turn = dict.fromkeys(wires, size), 0
    while left:
        for wire in [one for one in left if one.reading and not one.is_over()]:
            piece = min(PIECE, left[wire])
            left[wire] -= piece
            wire.connection.data_received(b"x" * piece)
        left = {wire: more for wire, more in left.items() if more and not wire.is_over()}
        turn += 1
        if turn % TURNS_A_SECOND == 0:
            house.server.tick()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("head", "size", "status"),
    [
        (BATCH, 8 * MIB, 429),
        (STRANGERS_BATCH, 8 * MIB, 429),
        (STRANGERS_BATCH, 8 * MIB, 403),
        (BATCH, 9 * MIB, 413),
        (MESSAGE, MIB, 201),
    ],
    ids=["no room", "no room to ask", "not allowed", "too large", "wanted"],
)
def test_clients_that_wait_for_their_turn_are_not_late(head: bytes, size: int, status: int) -> None:
    """Those at the end of the line were reset after 15 s, which can overtake the answer, or were told that they had been too slow."""

    async def test(house: House) -> None:
        if status == 429:
            assert Ticket(house.server.admission, (STRANGERS,)).try_hold(500 * MIB)
        wires = [house.wire() for _ in range(200 if status == 201 else 20)]
        for wire in wires:
            wire.connection.data_received(head % size + b"x" * PIECE)
        await send_all(house, wires, size - PIECE)
        assert [await answered(wire) for wire in wires] == [[status]] * len(wires)
        assert not any(wire.is_over() for wire in wires)

    at_home(test, limits={"max_in_flight_mb": 500})


@pytest.mark.parametrize(
    ("sent", "said"),
    [(b"no request\r\n\r\n", 400), (STRANGER % 10**15, 413)],
    ids=["nobody knows its length", "endless"],
)
def test_a_body_beyond_all_bounds_has_its_time_whether_it_waits_or_not(sent: bytes, said: int) -> None:
    """Else a stranger could keep its connection for ever."""

    async def test(house: House) -> None:
        wires = [house.wire() for _ in range(20)]
        for wire in wires:
            wire.connection.data_received(sent)
            assert await answered(wire) == [said]
        await send_all(house, wires, 10**15)
        assert all(wire.is_over() for wire in wires)

    at_home(test)


def test_a_client_that_pauses_gains_nothing_by_its_turns() -> None:
    async def test(house: House) -> None:
        house.server._timer.cancel()
        wire = house.wire()
        wire.connection.data_received(STRANGERS_BATCH % (8 * MIB))
        assert await answered(wire) == [403]
        for _ in range(15):
            house.server.tick()
            wire.connection.data_received(b"x" * PIECE)
            await asyncio.sleep(0)
            assert wire.reading
        assert not wire.is_over()
        house.server.tick()
        assert wire.is_over()

    at_home(test)
