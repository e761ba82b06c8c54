"""Messages that are handed out as Arrow."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import requests

from tests.support.client import Json, Server, refused

ARROW = "application/vnd.apache.arrow.stream"


def ask(server: Server, queue: str, accept: str = ARROW, **body: Any) -> requests.Response:
    return server.call("POST", queue, "leases", "workers", json=body, headers={"Accept": accept})


def table_of(answer: requests.Response) -> tuple[list[Json], Json]:
    """The rows, and what the answer says beside them."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == ARROW
    with pa.ipc.open_stream(answer.content) as reader:
        rows = reader.read_all().to_pylist()
        metadata = reader.schema.metadata or {}
    return rows, {name.decode(): json.loads(value) for name, value in metadata.items()}


def ticks(seconds: str) -> int:
    return int(seconds.replace(".", ""))


def test_leases_are_the_same_as_in_json(server: Server) -> None:
    queue, results = server.queue(partitions=2), server.queue()
    for number in range(4):
        server.add(queue, f"job {number}", x_key=f"k{number}", content_type="text/plain", queuey_header_trace="t")
    server.add(queue, b"\xff\x00", content_type="application/octet-stream")
    (first,), _ = table_of(ask(server, queue, receive={}))
    body: dict[str, Any] = {
        "attempt": "one",
        "acknowledge": [first["receipt"]],
        "append": [{"queue": results, "messages": [{"body": "done"}]}],
        "receive": {"max": 9},
    }

    rows, beside = table_of(ask(server, queue, **body))
    shown = ask(server, queue, "application/json", **body).json()

    assert {f"queuey.{name}": value for name, value in shown.items() if name not in ("status", "messages")} == beside
    assert beside["queuey.settled"]["acknowledged"] == len(beside["queuey.appended"]) == 1
    assert len(rows) == len(shown["messages"]) == 4
    for row, entry in zip(rows, shown["messages"], strict=True):
        assert row["queue"] == queue
        assert [row[name] for name in ("message_id", "partition", "receipt", "deliveries", "failures")] == [
            entry[name] for name in ("message_id", "partition", "receipt", "deliveries", "failures")
        ]
        assert (row["key"], row["content_type"]) == (entry.get("key"), entry.get("content_type"))
        assert dict(row["headers"] or {}) == {name: value.encode() for name, value in entry.get("headers", {}).items()}
        for name in ("timestamp", "first_delivered", "visible_at"):
            assert round(row[name].timestamp() * 1e6) == ticks(entry[name]) // 10
    assert {row["body"] for row in rows} | {first["body"]} == {b"\xff\x00", *(b"job %d" % at for at in range(4))}

    again, beside = table_of(ask(server, queue, acknowledge=[row["receipt"] for row in rows]))
    assert (again, beside["queuey.settled"]["acknowledged"]) == ([], 4)


def test_popped_messages_have_no_receipts(server: Server) -> None:
    queue = server.queue()
    for number in range(300):
        server.add(queue, f"{number}")

    rows, beside = table_of(ask(server, queue, receive={"max": 1000, "pop": True}))

    assert [row["body"] for row in rows] == [b"%d" % number for number in range(300)]
    assert {(row["receipt"], row["visible_at"], row["deliveries"]) for row in rows} == {(None, None, 1)}
    assert beside == {}


def test_messages_that_come_back_have_leases_of_their_own(server: Server) -> None:
    queue = server.queue()
    for number in range(3):
        server.add(queue, f"{number}")
    (first,), _ = table_of(ask(server, queue, receive={}))
    table_of(ask(server, queue, release=[{"receipt": first["receipt"], "delay": 0}]))

    rows, _ = table_of(ask(server, queue, receive={"max": 3}))

    assert sorted((row["body"], row["deliveries"], row["failures"]) for row in rows) == [
        (b"0", 2, 1),
        (b"1", 1, 0),
        (b"2", 1, 0),
    ]


def test_a_refusal_is_json(server: Server) -> None:
    answer = ask(server, server.queue(), acknowledge=["x"])

    refused(answer, 400, "InvalidReceipt")
