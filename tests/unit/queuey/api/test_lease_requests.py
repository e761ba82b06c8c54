"""Requests of lease groups: the short way of most of them says what the long way says."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson
import pytest

from queuey.api import lease_requests
from queuey.api.lease_requests import asked_of
from queuey.errors import QueueyError
from queuey.future import run
from queuey.http.exchange import Call
from queuey.ids import MessageId
from queuey.model import Queue
from queuey.model.receipts import Receipt
from tests.support.live_readers import House

QUEUE = Queue("demo", "q", UUID(int=1), 0, 3)
ID = MessageId.parse("1f9f6640e56711f189bf02fc00000001")
ONE, OTHER = (Receipt(QUEUE.uuid, 7, number, ID, 1).text() for number in (1, 2))
ACK, RECEIVE = {"acknowledge": [ONE]}, {"receive": {"max": 2, "wait": 3}}
BODIES: list[bytes] = [
    orjson.dumps(body)
    for body in (
        {},
        RECEIVE,
        ACK,
        {"acknowledge": [ONE, OTHER], **RECEIVE},
        {**ACK, **RECEIVE, "attempt": "a1"},
        {**RECEIVE, "attempt": "a1", "receiver": "w 1"},
        {**RECEIVE, "receiver": "ü"},
        {"receive": {"partitions": [2, 1, 2]}},
        {"receive": {"partitions": [[1]]}},
        {"receive": {"partitions": [{}]}, **ACK},
        {"receive": {"partitions": [True]}},
        {"attempt": "alone"},
        {"attempt": ""},
        {"attempt": None, **RECEIVE},
        {"attempt": 5, **RECEIVE},
        {"attempt": "x" * 129, **RECEIVE},
        {"attempt": "a\nb", **RECEIVE},
        {"receiver": "", **ACK},
        {"attempt": 'a"b', **ACK},
        {"receive": {"pop": True}, "attempt": "a"},
        {"receive": {"max": 0}, "attempt": "a"},
        {"acknowledge": [ONE, ONE], "attempt": "a"},
        {"acknowledge": ["x"], "attempt": "a"},
    )
] + [b'{"attempt":"a","attempt":"b"}', b'{"receive":{},"attempt":"a","receiver":"r","receiver":"s"}', b"[]", b""]


@pytest.fixture(scope="module")
def house() -> House:
    return House()


def _said(house: House, body: bytes) -> Any:
    call = Call("POST", "/v1/demo/q/leases/g", "", {})
    call.body, call.application, call.queue = body, "demo", "q"
    try:
        step, receipts, waiting, _ = run(asked_of(house.service, call, "g", QUEUE))
    except QueueyError as error:
        return error.code, str(error), getattr(error, "problems", None)
    one = step.groups[0]
    settles = {number: [*map(tuple, some)] for number, some in one.settles.items()}
    groups = one.queue, one.name, one.new is None, one.token, settles, [*one.renewals], [*one.receive_from]
    return groups, [*step.appends], step[2:], [*receipts], waiting and waiting[:3]


@pytest.mark.parametrize("body", BODIES, ids=bytes.decode)
def test_the_short_way_says_what_the_long_way_says(house: House, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _said(house, body)

    monkeypatch.setattr(lease_requests, "_plainly_asked", lambda *asked: None)
    assert found == _said(house, body)


@pytest.mark.parametrize("numbers", ["[[1]]", "[{}]", "[1.0]", "[true]", "[0]", "[4]", '["1"]', "[null]"])
def test_what_is_no_partition_is_named(house: House, numbers: str) -> None:
    said = _said(house, b'{"receive":{"partitions":%b}}' % numbers.encode())

    assert said[2] == {"receive.partitions": "must be whole numbers from 1 to 3"}
