"""A full server's quick refusals: the very bytes of those that were looked at, and nothing of the cost."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from queuey.errors import Throttled
from queuey.http.admission import Ticket
from queuey.http.cors import ANY
from queuey.monitor.exposition import text_of
from queuey.server.refused import Refusals
from tests.support.loop_server import PATH, House, Wire, answered, at_home, request, until
from tests.support.raw import replies

OURS, OTHER = "https://ours.example", "https://other.example"
HELLO = (b"X-Request-Id: mine", b"Content-Length: 5")
FORMS = {
    "an append": request(b"POST", PATH, *HELLO) + b"hello",
    "a read": request(b"GET", PATH, b"X-Request-Id: mine"),
    "a head": request(b"HEAD", PATH, b"X-Request-Id: mine"),
    "any type": request(b"POST", PATH, *HELLO, b"Accept: */*") + b"hello",
    "problems": request(b"POST", PATH, *HELLO, b"Accept: application/problem+json") + b"hello",
    "problems, at an odd path": request(
        b"GET", b'/v1/demo/"%7Bid%7D%7Bpath%7D%C3%BC%0A', b"X-Request-Id: mine", b"Accept: application/problem+json"
    ),
    "json before problems": request(
        b"GET", PATH, b"X-Request-Id: mine", b"Accept: application/json, application/problem+json;q=0.5"
    ),
    "the last": request(b"POST", PATH, *HELLO, b"Connection: close") + b"hello",
    "the last, as problems": request(b"POST", PATH, *HELLO, b"Connection: close", b"Accept: application/problem+json")
    + b"hello",
    "HTTP/1.0": request(b"GET", PATH, b"X-Request-Id: mine").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "an expectation without a body": request(b"GET", PATH, b"X-Request-Id: mine", b"Expect: 100-continue"),
}


def full(house: House) -> None:
    assert Ticket(house.server.admission).enter()
    house.server.tick()


def sent(house: House, raw: bytes) -> Wire:
    wire = house.wire()
    wire.connection.data_received(raw)
    return wire


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize("origin", [None, OURS, OTHER])
@pytest.mark.parametrize("origins", [(), (OURS,), (OURS, OTHER), (ANY,)])
def test_a_quick_refusal_has_the_bytes_of_one_that_was_looked_at(
    monkeypatch: pytest.MonkeyPatch, origins: Sequence[str], origin: str | None, stopping: bool
) -> None:
    said = b"" if origin is None else b"\r\nOrigin: " + origin.encode()

    async def test(house: House) -> None:
        full(house)
        house.server.stopping = stopping
        for form, plain in FORMS.items():
            raw = plain.replace(b"\r\nX-Request-Id", said + b"\r\nX-Request-Id")
            monkeypatch.setattr(house.server.pipeline, "open", None)
            quick = sent(house, raw)
            monkeypatch.undo()
            monkeypatch.setattr(Refusals, "fits", lambda *_: False)
            slow = sent(house, raw)
            monkeypatch.undo()
            assert quick.received == slow.received, form
            assert (quick.is_over(), quick.reading) == (slow.is_over(), slow.reading), form
            assert quick.received.startswith(b"HTTP/1.1 429 "), form
            assert quick.is_over() == (stopping or "last" in form or "1.0" in form), form
        monitor = text_of(house.service.monitor)
        assert b'queuey_throttled_total{limit="in_flight"} %d.0' % (2 * len(FORMS)) in monitor
        assert len(house.server.refusals._made) <= 2 * (len(origins) + 1)

    at_home(test, limits={"max_in_flight": 1}, server={"cors_origins": tuple(origins)})


def test_a_full_server_tells_a_browser_that_it_may_ask() -> None:
    """Else its page would hear of no refusal, but that the server is not for it."""

    async def test(house: House) -> None:
        full(house)
        asks = [b"Origin: " + OURS.encode(), b"Access-Control-Request-Method: POST"]
        assert await answered(sent(house, request(b"OPTIONS", PATH, *asks))) == [204]
        assert await answered(sent(house, request(b"OPTIONS", PATH, asks[0]))) == [429]

    at_home(test, limits={"max_in_flight": 1}, server={"cors_origins": (OURS,)})


def test_refusals_are_logged_together_however_they_were_made(caplog: pytest.LogCaptureFixture) -> None:
    async def test(house: House) -> None:
        full(house)
        house.server._timer.cancel()
        wires = [sent(house, raw) for raw in FORMS.values()]
        wire = sent(house, request(b"POST", PATH, b"Content-Length: 5", b"Expect: 100-continue"))
        assert await answered(wire) == [100]
        wire.connection.data_received(b"hello")
        await until(lambda: b"HTTP/1.1 429 " in wire.received)
        assert not caplog.records
        house.server.tick()
        house.server.tick()
        assert [record.getMessage() for record in caplog.records] == [
            f"refused {len(FORMS) + 1} calls: the server was full"
        ]
        for ended in (*wires, wire):
            ended.connection.connection_lost(None)

    with caplog.at_level(logging.INFO, "queuey"):
        at_home(test, limits={"max_in_flight": 1}, log={"requests": True})


def test_each_quick_refusal_has_an_id_of_its_own() -> None:
    async def test(house: House) -> None:
        full(house)
        raw = request(b"GET", PATH, b"X-Request-Id: {id}")
        (one,), (other,) = (replies(sent(house, raw).received) for _ in range(2))
        assert one.status == Throttled.status
        assert one.headers["x-request-id"] != other.headers["x-request-id"]
        assert one.headers["x-request-id"].encode() in one.body

    at_home(test, limits={"max_in_flight": 1})
