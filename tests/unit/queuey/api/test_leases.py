"""The room of an answer with leases: what it counts, and gives back."""

from __future__ import annotations

import pytest

from queuey.api.lease_requests import LEAST_ROOM
from queuey.errors import Throttled
from queuey.http.admission import Admission, Ticket
from queuey.http.answer_room import CountedRoom
from queuey.model.lease_requests import ReceiveRequest

SHARE = 1 << 20
"""Bytes that a stranger may hold."""


def room_of(max_bytes: int) -> tuple[Admission, CountedRoom]:
    admission = Admission(10, 4 * SHARE)
    Ticket(admission).hold(1)  # a call that is alone always finds room
    return admission, CountedRoom(Ticket(admission), ReceiveRequest(max_bytes=max_bytes))


def test_a_small_answer_is_not_counted() -> None:
    admission, room = room_of(LEAST_ROOM)

    with room:
        assert (room.bytes, admission.bytes) == (LEAST_ROOM, 1)


def test_a_large_answer_is_counted_as_json_until_it_is_made() -> None:
    admission, room = room_of(LEAST_ROOM + 1000)

    with room:
        assert (room.bytes, admission.bytes) == (LEAST_ROOM + 1000, 6001)
        assert room.grow(500)
        assert (room.bytes, admission.bytes) == (LEAST_ROOM + 1500, 9001)
    assert admission.bytes == 1


def test_a_receiver_that_waits_holds_nothing_and_takes_its_room_again() -> None:
    admission, room = room_of(LEAST_ROOM + 1000)

    with room:
        with room.waiting():
            assert (room.bytes, admission.bytes) == (0, 1)
        assert (room.bytes, admission.bytes) == (LEAST_ROOM + 1000, 6001)
    assert admission.bytes == 1


def test_a_receiver_that_has_waited_goes_on_with_the_least_room_if_there_is_no_more() -> None:
    """It was admitted already, and an empty answer would say that there is no message."""
    admission, room = room_of(LEAST_ROOM + 1000)

    with room:
        with room.waiting():
            Ticket(admission).hold(SHARE - 1)
        assert (room.bytes, admission.bytes) == (LEAST_ROOM, SHARE)


def test_without_room_nothing_is_held() -> None:
    admission, room = room_of(LEAST_ROOM + SHARE)

    with pytest.raises(Throttled), room:
        pass
    assert admission.bytes == 1

    _, small = room_of(LEAST_ROOM)
    with small:
        assert not small.grow(SHARE)
        assert small.bytes == LEAST_ROOM
