"""A client that goes away while its request is carried out: what becomes of the messages that nobody gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from queuey.future import Future
from queuey.model.lease_steps import LeaseOutcome, LeaseStep
from queuey.server.connection import Connection
from tests.support.loop_server import House, Wire, answered, at_home, request, until

LEASES = b"/v1/demo/q/leases/g"


def _post(path: bytes, document: Any) -> bytes:
    body = orjson.dumps(document)
    return request(b"POST", path, b"Content-Type: application/json", b"Content-Length: %d" % len(body)) + body


async def _received(house: House, **how: Any) -> list[dict[str, Any]]:
    """What a client that stays gets."""
    wire = house.wire()
    wire.connection.data_received(_post(LEASES, {"receive": {"max": 9}, **how}))
    assert await answered(wire) == [200]
    await until(lambda: wire.received.endswith(b"}"))
    found: list[dict[str, Any]] = orjson.loads(wire.received.partition(b"\r\n\r\n")[2])["messages"]
    return found


async def _appended(house: House) -> None:
    wire = house.wire()
    wire.connection.data_received(_post(b"/v1/demo/q", {"messages": [{"body": "one"}, {"body": "two"}]}))
    assert await answered(wire) == [201]


def _while_handed_out(house: House, does: Callable[[], object]) -> None:
    """Do this once, when the store has handed messages out and before the server hears of it."""
    leases = house.service.leases
    original = leases._store.step

    def stepped(step: LeaseStep) -> Future[LeaseOutcome]:
        found = original(step)
        if found.done and found.result().handed:
            leases._store.step = original  # type: ignore[method-assign]
            does()
        return found

    leases._store.step = stepped  # type: ignore[method-assign]


async def _ask(house: House, document: Any, leaving: Callable[[Connection], object]) -> Wire:
    """Ask, and leave while the messages are handed out."""
    wire = house.wire()
    _while_handed_out(house, lambda: leaving(wire.connection))
    wire.connection.data_received(_post(LEASES, document))
    if document["receive"].get("wait"):
        await _appended(house)
    await until(lambda: house.under_way == 0)
    return wire


def _gone(connection: Connection) -> None:
    connection.connection_lost(None)


@pytest.mark.parametrize("wait", [0, 20])
def test_what_was_handed_to_a_client_that_has_gone_is_given_back_without_a_failure(wait: int) -> None:
    async def test(house: House) -> None:
        if not wait:
            await _appended(house)
        await _ask(house, {"receive": {"max": 9, "wait": wait}}, _gone)

        found = await _received(house)
        assert [(one["body"], one["failures"]) for one in found] == [("one", 0), ("two", 0)]

    at_home(test)


def test_a_client_that_has_closed_its_sending_half_gets_its_messages() -> None:
    async def test(house: House) -> None:
        await _appended(house)
        wire = await _ask(house, {"receive": {"max": 9}}, lambda connection: connection.eof_received())

        assert b'"one"' in wire.received
        assert b'"two"' in wire.received
        assert await _received(house) == []

    at_home(test)


def test_a_client_that_has_gone_and_named_its_attempt_gets_the_same_again() -> None:
    async def test(house: House) -> None:
        await _appended(house)
        await _ask(house, {"receive": {"max": 9}, "attempt": "a"}, _gone)

        assert await _received(house) == []
        assert [one["body"] for one in await _received(house, attempt="a")] == ["one", "two"]

    at_home(test)


def test_what_a_client_popped_and_did_not_get_is_gone() -> None:
    async def test(house: House) -> None:
        await _appended(house)
        await _ask(house, {"receive": {"max": 9, "pop": True}}, _gone)

        assert await _received(house) == []

    at_home(test)
