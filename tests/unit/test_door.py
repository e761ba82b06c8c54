"""What the connections of one server share: its second, and the turns in which they are read."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

import pytest

from queuey.doors.connection import Connection
from queuey.doors.delivery import PIECE
from queuey.doors.loop import REFUSED_UPLOADS_A_TURN, UPLOADS_A_TURN, LoopDoor
from queuey.service.gate import Ticket
from tests.functional.raw import replies
from tests.unit.test_connection import PATH, WHOLE, House, Wire, answered, at_home, request

STRANGER = b"POST /v1/demo/q HTTP/1.1\r\nHost: q\r\nContent-Length: %d\r\n\r\n"


class Failing(Connection):
    """Whatever the door tells it fails, since somebody made a mistake."""

    def fail(self) -> NoReturn:
        raise RuntimeError("planted")

    late = stop = go_on_after_pause = read_next_piece = fail


def failing(house: House) -> Wire:
    return Wire(Failing(house.door))


# Time


def test_a_connection_whose_end_fails_is_ended_and_the_second_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """No client was ever given up again, and Date stood still until a restart."""

    async def test(house: House) -> None:
        wires = [failing(house), *(house.wire() for _ in range(20))]
        for _ in range(11):
            timer = house.door._timer
            house.door._watch()
            timer.cancel()
            assert house.door._timer is not timer
            assert not house.door._timer.cancelled()
        assert all(wire.is_over() for wire in wires)
        assert "planted" in caplog.text

    at_home(test)


def test_the_next_second_comes_whatever_becomes_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(house: House) -> None:
        timer = house.door._timer
        monkeypatch.setattr(LoopDoor, "tick", Failing.fail)
        with pytest.raises(RuntimeError):
            house.door._watch()
        timer.cancel()
        assert house.door._timer is not timer

    at_home(test)


def test_one_that_fails_keeps_no_other_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    """All uploads stood still for ever, all refused clients, and a stop."""

    async def test(house: House) -> None:
        ticket = Ticket(house.door.gate)
        assert ticket.enter()
        wires = [failing(house), house.wire()]
        for wire in wires:
            wire.connection.data_received(WHOLE)
        ticket.close()
        house.door._fill_room()
        house.door._fill_room()
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
        house.door._end_resting()
        assert [wire.is_over() for wire in wires] == [True, True]
        assert caplog.text.count("RuntimeError: planted") == 3

    with caplog.at_level(logging.ERROR):
        at_home(test, limits_max_in_flight=1)


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
        assert len(house.door._refused_uploads) >= 2 * REFUSED_UPLOADS_A_TURN
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
        assert not house.door._refused_uploads

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
