"""The trace context of a request becomes headers of its messages."""

from __future__ import annotations

import pytest

from queuey.http.exchange import Call
from queuey.http.tracing import trace_of, traced_drafts, traced_headers
from queuey.model import Alike, Draft, Drafts, decode_headers, encode_headers

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = {"traceparent": PARENT.encode()}


def columns(*bodies: bytes, headers: list[bytes | None] | None = None) -> Drafts:
    count = len(bodies)
    none = Alike(None, count)
    return Drafts([1] * count, list(bodies), [60] * count, none, none, none, none, headers or none)


def shown(drafts: object) -> list[dict[str, bytes]]:
    assert isinstance(drafts, list | Drafts)
    return [decode_headers(one.headers) for one in drafts]


def test_a_request_without_a_valid_trace_has_none() -> None:
    assert trace_of(Call("POST", "/", "", {})) == trace_of(Call("POST", "/", "", {"traceparent": "x"})) == {}
    assert trace_of(Call("POST", "/", "", {"traceparent": PARENT})) == TRACE


def test_every_message_gets_it_and_keeps_its_other_headers() -> None:
    own = encode_headers({"kind": b"order"})

    assert shown(traced_drafts([Draft(1, b"a", 60, headers=own)], TRACE, 1000)) == [{"kind": b"order", **TRACE}]
    assert shown(traced_drafts(columns(b"a", b"b", headers=[own, None]), TRACE, 1000)) == [
        {"kind": b"order", **TRACE},
        TRACE,
    ]


def test_a_batch_without_headers_stays_a_column_of_one_value() -> None:
    found = traced_drafts(columns(b"a", b"b"), TRACE, 1000)

    assert isinstance(found, Drafts)
    assert found.headers == Alike(encode_headers(TRACE), 2)


@pytest.mark.parametrize(
    "own", [{"traceparent": b"mine"}, {"Traceparent": b"mine"}, {f"h{number}": b"" for number in range(64)}]
)
def test_a_message_that_has_one_or_no_room_keeps_its_own(own: dict[str, bytes]) -> None:
    encoded = encode_headers(own)

    assert traced_headers(encoded, 1, TRACE, 10_000) == encoded


def test_a_trace_makes_no_message_too_large() -> None:
    size = len(encode_headers(TRACE) or b"")
    found = traced_drafts(columns(b"a" * 100, b"a" * 101), TRACE, 100 + size)

    assert shown(found) == [TRACE, {}]
    assert traced_headers(None, 101, TRACE, 100 + size) is None
