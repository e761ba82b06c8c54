"""Lease groups are answered alike by the shipped server and the WSGI application, both on the embedded store."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.alike import Each, Everywhere

FIXED = {"X-Request-Id": "one-request"}
WRONG = {"Authorization": "Application " + "wrong" * 8}
NOBODY = {"Authorization": ""}


@pytest.fixture
def embedded(everywhere: Everywhere) -> Everywhere:
    """Not the server over Cassandra: leases are shorter there, by the error of its clock."""
    return Everywhere([server for server in everywhere.servers if server.running.name != "cassandra"])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"receive": {}},
        {"receive": {"max": 9, "visibility": 100}},
        {"receive": {"pop": True}},
        {"receive": {"wait": 0.1, "partitions": [2]}},
        {"receive": {"max": 0}, "colour": 1, "extend": 5, "attempt": ""},
        {"extend": {"receiver": "w", "visibility": 60}},
        {"acknowledge": ["x"]},
        {"append": [{"queue": "absent", "messages": [{"body": "x"}]}]},
        {"append": [{"queue": "absent", "messages": 5}, 5]},
        [],
        None,
    ],
    ids=str,
)
def test_a_step(embedded: Everywhere, body: Any) -> None:
    name = embedded.queue(partitions=2)
    embedded.fill(name, "a", "ü", "c")

    for headers in ({}, NOBODY, WRONG):
        embedded.call("POST", name, "leases", "g", json=body, headers={**FIXED, **headers})
        embedded.call("POST", "absent", "leases", "g", json=body, headers={**FIXED, **headers})
        embedded.call("GET", name, "leases", "g", headers={**FIXED, **headers})
        embedded.call("GET", name, "leases", headers={**FIXED, **headers})


@pytest.mark.parametrize(
    "body",
    [
        {"receive": {"max": 9}},
        {"receive": {"pop": True}, "order": "first"},
        {"receive": {"wait": 0.1}, "order": "weighted"},
        {"receive": {}, "queues": {"a": 0, "b c": 1}},
        {"receive": {"partitions": [1]}, "order": "x"},
        {"queues": ["absent"]},
        {"queues": []},
        {"acknowledge": ["x"]},
        [],
        None,
    ],
    ids=str,
)
def test_a_step_of_several_queues(embedded: Everywhere, body: Any) -> None:
    names = [embedded.queue(), embedded.queue(partitions=2)]
    embedded.fill(names[1], "a", "c")
    given = {"queues": names} | body if isinstance(body, dict) else body

    for headers in ({}, NOBODY, WRONG):
        said: dict[str, Any] = {"json": given, "headers": {**FIXED, **headers}}
        embedded.call("POST", params={"receive": "g"}, **said)
        embedded.call("POST", params={"receive": "a b"}, **said)
        embedded.request("POST", "/v1/absent", params={"receive": "g"}, **said)


def test_what_becomes_of_a_lease(embedded: Everywhere) -> None:
    name = embedded.queue()
    embedded.fill(name, *"abcdef")

    def step(**body: Any) -> Each:
        return embedded.call("POST", name, "leases", "g", json={"receiver": "w", **body}, headers=FIXED)

    answers = step(receive={"max": 6}, attempt="first")
    receipts = [
        Each(one["receipt"] for one in same)
        for same in zip(*(answer.json()["messages"] for answer in answers), strict=True)
    ]
    step(receive={"max": 6}, attempt="first")
    step(receive={"max": 5}, attempt="first")
    step(
        acknowledge=[receipts[0]],
        release=[{"receipt": receipts[1], "delay": 50}],
        extend=[{"receipt": receipts[2], "visibility": 500}],
        reject=[{"receipt": receipts[3], "reason": "why not"}],
        append=[{"queue": name, "messages": [{"body": "result"}]}],
    )
    embedded.call("GET", name, "leases", "g", params={"leased": "true"}, headers=FIXED)
    embedded.call("GET", name, "leases", "g", params={"leased": "true", "offset": "x"}, headers=FIXED)
    embedded.call("GET", f"{name}-dead", params={"columns": "body,key"}, headers=FIXED)
    step(acknowledge=[receipts[0]])
    step(acknowledge=[receipts[0], receipts[4]], append=[{"queue": name, "messages": [{"body": "late"}]}])
    step(acknowledge=[receipts[4], receipts[4]])
    embedded.call("DELETE", name, "leases", "g", headers=FIXED)
    step(acknowledge=[receipts[4]])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"order": "key", "visibility": 5, "start": "end"},
        {"backoff": {"first": 2}, "dead_letter_queue": "bad"},
        {"paused_until": 4e9, "paused_reason": "maintenance"},
        {"order": "x", "k": 0, "backoff": {"first": "1"}, "start": 5, "colour": 1},
        [],
    ],
    ids=str,
)
def test_settings(embedded: Everywhere, body: Any) -> None:
    name = embedded.queue()

    for headers in (WRONG, NOBODY, {}, {}):
        embedded.call("PUT", name, "leases", "g", json=body, headers={**FIXED, **headers})
        embedded.call("GET", name, "leases", "g", headers={**FIXED, **headers})


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "ODD"])
def test_each_method_on_each_path(embedded: Everywhere, method: str) -> None:
    name = embedded.queue()

    for headers in ({}, NOBODY, WRONG):
        given: dict[str, Any] = {"headers": {**FIXED, **headers}, "data": b"x"}
        for below in ((name, "leases"), (name, "leases", "g"), ("absent", "leases", "g"), (name, "leases", "a b")):
            embedded.call(method, *below, **given)
