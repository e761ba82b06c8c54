"""Headers of messages, in every form of writing and of reading."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pytest
import requests

from tests.support.client import BATCH, Server, refused

ARROW = "application/vnd.apache.arrow.stream"
SHOWN = {"Kind": "order", "trace": {"base64": base64.b64encode(b"\xff\0").decode()}}


def stored(server: Server) -> str:
    """A queue with one message, which has headers."""
    name = server.queue()
    body = json.dumps({"messages": [{"body": "two chairs", "headers": SHOWN}]})
    assert server.post(name, body, content_type=BATCH).status_code == 201
    return name


def test_a_raw_message_has_the_headers_it_was_sent_with(server: Server) -> None:
    name = server.queue()
    given = {"Queuey-Header-kind": "order", "Queuey-Header64-trace": "/wA="}

    assert server.call("POST", name, data=b"x", headers=given).status_code == 201

    (message,) = server.read(name)
    assert message["headers"] == {"kind": "order", "trace": SHOWN["trace"]}


def test_a_message_without_headers_has_no_such_member(server: Server) -> None:
    name = server.queue()
    server.post(name, "x")

    assert "headers" not in server.read(name)[0]


def test_a_page_lines_and_arrow_have_them(server: Server) -> None:
    name = stored(server)

    assert server.read(name)[0]["headers"] == SHOWN
    lines = server.call("GET", name, headers={"Accept": "application/x-ndjson"}).text.splitlines()
    assert json.loads(lines[0])["headers"] == SHOWN
    answer = server.call("GET", name, params={"columns": "body,headers"}, headers={"Accept": ARROW})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.to_pylist() == [{"body": b"two chairs", "headers": [("Kind", b"order"), ("trace", b"\xff\0")]}]


def test_columns_choose_them(server: Server) -> None:
    name = stored(server)

    assert server.read(name, columns="headers") == [{"headers": SHOWN}]
    assert "headers" not in server.read(name, columns="body")[0]


def test_a_raw_answer_has_them_as_http_headers(server: Server) -> None:
    name = stored(server)
    id_ = server.read(name)[0]["message_id"]

    answer = server.call("GET", name, id_, params={"raw": "true"})

    assert answer.content == b"two chairs"
    assert (answer.headers["Queuey-Header-Kind"], answer.headers["Queuey-Header64-trace"]) == ("order", "/wA=")


def post_arrow(server: Server, name: str, headers: list[list[tuple[str, bytes]] | None]) -> requests.Response:
    """Send a message for each entry, with those headers, as one Arrow batch."""
    rows = {"body": [b"x"] * len(headers), "headers": pa.array(headers, pa.map_(pa.string(), pa.binary()))}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.table(rows).schema) as writer:
        writer.write_table(pa.table(rows))
    data = sink.getvalue().to_pybytes()
    return server.call("POST", name, params={"batch": "true"}, data=data, headers={"Content-Type": ARROW})


def test_a_batch_as_arrow_has_them(server: Server) -> None:
    name = server.queue()

    answer = post_arrow(server, name, [[("Kind", b"order")], None])

    assert answer.status_code == 201
    assert [message.get("headers") for message in server.read(name)] == [{"Kind": "order"}, None]


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ([(f"h{number}", b"x") for number in range(65)], "65 headers: a message has at most 64"),
        ([("a", b"1"), ("a", b"2")], "has a name that stands twice"),
        ([("a b", b"1")], "'a b' is no name of a header"),
    ],
)
def test_bad_headers_of_an_arrow_batch_are_named(server: Server, pairs: list[tuple[str, bytes]], problem: str) -> None:
    name = server.queue()

    answer = post_arrow(server, name, [None, pairs])

    refused(answer, 400, "1.headers")
    assert problem in answer.text
    assert server.read(name) == []


def test_a_message_that_is_written_by_id_has_the_new_ones(server: Server) -> None:
    name = stored(server)
    id_ = server.read(name)[0]["message_id"]

    server.call("PUT", name, id_, data=b"new", headers={"Queuey-Header-state": "paid"})

    assert server.read(name)[0]["headers"] == {"state": "paid"}


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"a b": "x"}, "0.headers"),
        ({"": "x"}, "0.headers"),
        ({"n" * 129: "x"}, "0.headers"),
        ({f"h{number}": "x" for number in range(65)}, "0.headers"),
        ({"large": "x" * (64 << 10)}, "0.headers"),
        ({"number": 1}, "0.headers.number"),
        ({"bytes": {"base64": "!"}}, "0.headers.bytes"),
        ({"bytes": {"base64": "eA==", "more": 1}}, "0.headers.bytes"),
        (["a"], "0.headers"),
    ],
)
def test_bad_headers_of_a_batch_are_named(server: Server, headers: object, field: str) -> None:
    name = server.queue()

    answer = server.post(name, json.dumps({"messages": [{"body": "x", "headers": headers}]}), content_type=BATCH)

    refused(answer, 400, field)
    assert server.read(name) == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"Queuey-Header64-a": "!"}, "headers.a"),
        ({"Queuey-Header-a": "x", "Queuey-Header64-a": "eA=="}, "headers.a"),
        ({"Queuey-Header-": "x"}, "headers"),
    ],
)
def test_bad_headers_of_a_raw_message_are_named(server: Server, given: dict[str, str], field: str) -> None:
    name = server.queue()

    refused(server.call("POST", name, data=b"x", headers=given), 400, field)
    assert server.read(name) == []


def test_headers_and_body_have_one_limit_together(server: Server) -> None:
    name = server.queue()
    body = "x" * ((1 << 20) - 100)

    answer = server.post(
        name, json.dumps({"messages": [{"body": body, "headers": {"a": "y" * 200}}]}), content_type=BATCH
    )

    refused(answer, 413, "MessageTooLarge")


def test_other_headers_under_one_idempotency_key_are_another_request(server: Server) -> None:
    name, key = server.queue(), {"Idempotency-Key": "k"}

    server.call("POST", name, data=b"x", headers={**key, "Queuey-Header-a": "1"})
    repeated = server.call("POST", name, data=b"x", headers={**key, "Queuey-Header-a": "1"})
    other = server.call("POST", name, data=b"x", headers={**key, "Queuey-Header-a": "2"})

    assert repeated.headers["Idempotency-Replayed"] == "true"
    refused(other, 422, "KeyReused")
