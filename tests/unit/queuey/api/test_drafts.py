"""Drafts of raw messages: the short way of most of them says what the long way says."""

from __future__ import annotations

from uuid import UUID

import pytest

from queuey.api import drafts
from queuey.api.drafts import raw_draft
from queuey.errors import QueueyError
from queuey.http.exchange import Call
from queuey.model import Draft, Queue
from queuey.settings import Settings

QUEUE = Queue("demo", "q", UUID(int=1), 0)
HEADERS: list[dict[str, str]] = [
    {},
    {"x-ttl": "60"},
    {"x-ttl": " 60 ", "content-type": "text/plain; charset=utf-8"},
    {"x-ttl": ""},
    {"x-ttl": "0"},
    {"x-ttl": "sixty"},
    {"x-ttl": "0" * 101},
    {"content-type": ""},
    {"content-type": "Application/X-WWW-Form-Urlencoded; charset=utf-8"},
    {"content-type": "text/" + "p" * 200},
    {"content-type": "text/" + "p" * 300},
    {"content-type": "text/ü"},
    {"x-partition": "1"},
    {"x-key": "k"},
    {"x-delay": "5"},
    {"queuey-header-a": "b"},
    {"traceparent": "00-1", "x-ttl": "7"},
    {"idempotency-key": "once", "x-ttl": "7"},
]


def _said(headers: dict[str, str], body: bytes, query: str) -> Draft | tuple[str, object]:
    call = Call("POST", "/v1/demo/q", query, headers)
    call.body = body
    try:
        return raw_draft(call, QUEUE, Settings(), 0)
    except QueueyError as error:
        return error.code, getattr(error, "problems", None)


@pytest.mark.parametrize("headers", HEADERS, ids=str)
@pytest.mark.parametrize(("body", "query"), [(b"hello", ""), (b"", ""), (b"hello", "key=k")])
def test_the_short_way_says_what_the_long_way_says(
    headers: dict[str, str], body: bytes, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [_said(headers, body, query) for _ in range(2)]

    monkeypatch.setattr(drafts, "_PLAIN", frozenset())
    if headers:
        assert found == [_said(headers, body, query)] * 2
    assert found[0] == found[1]


def test_a_body_that_is_too_large_is_refused_by_both() -> None:
    most = Settings().limits.max_body_bytes

    assert isinstance(_said({}, bytes(most), ""), Draft)
    assert _said({}, bytes(most + 1), "")[0] == "MessageTooLarge"
