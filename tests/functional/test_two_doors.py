"""Two doors, one house: what one answers, the other answers, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.functional.client import Server, new_name
from tests.functional.servers import APPLICATIONS
from tests.functional.twice import Both, Pair

ABSENT_ID = "1f9f6640e56711f189bf02fc00000001"
FIXED = {"X-Request-Id": "one-request"}
JSON = {"Content-Type": "application/json"}
WRONG = {"Authorization": "Application " + "wrong" * 8}
NOBODY = {"Authorization": ""}

READS: list[dict[str, str]] = [
    {},
    {"limit": "1"},
    {"limit": "2", "order": "descending"},
    {"partitions": "all"},
    {"partitions": "2,1,2,9,0"},
    {"partitions": ""},
    {"columns": "body"},
    {"columns": "message_id,timestamp,queue"},
    {"info": "true"},
    {"since": "0"},
    {"since": "4000000000"},
    {"until": "1"},
    {"limit": "0"},
    {"limit": "x", "order": "y", "since": "z", "until": "u", "partitions": "p", "columns": "c"},
    {"cursor": "nonsense"},
    {"since": "1e309"},
]
ACCEPTS = [
    None,
    "*/*",
    "application/json",
    "application/x-ndjson",
    "application/problem+json",
    "text/html",
    "image/png",
]


@pytest.mark.parametrize("accept", ACCEPTS)
@pytest.mark.parametrize("params", READS, ids=str)
def test_a_read(both: Both, params: dict[str, str], accept: str | None) -> None:
    name = both.queue(partitions=2)
    both.fill(name, "a", "ü", "c")
    both.fill(name, "in 2", partition=2)

    both.call("GET", name, params=params, headers={**FIXED, **({"Accept": accept} if accept else {})})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-TTL": "5"},
        {"X-Partition": "2"},
        {"X-Key": "k"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Idempotency-Key": "i"},
        {"X-Deliver-At": "0"},
        {"X-Delay": "100"},
        {"X-TTL": "0", "X-Partition": "0"},
        {"X-TTL": "fred"},
        {"X-Partition": "3"},
        {"X-Key": "k", "X-Partition": "1"},
        {"X-Delay": "-1"},
        {"X-Deliver-At": "soon"},
        {"Idempotency-Key": ""},
        {"Idempotency-Key": "x" * 129},
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "identity"},
        JSON,
        WRONG,
        NOBODY,
    ],
    ids=lambda headers: str(headers)[:60],
)
@pytest.mark.parametrize("body", [b"hello", b"", b"\xff"])
def test_an_append(both: Both, headers: dict[str, str], body: bytes) -> None:
    spread = "X-Partition" not in headers and "X-Key" not in headers
    name = both.queue(partitions=1 if spread else 2)

    for _ in range(2):
        both.call("POST", name, data=body, headers={**FIXED, **headers})
    both.call("GET", name, params={"partitions": "all"}, headers=FIXED)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"body": "a"}, {"body": "b", "ttl": 5, "content_type": "text/plain", "key": "k"}]},
        {"messages": []},
        {"messages": [{"body": "a"}, {"body": ""}, {"ttl": 0}]},
        {"messages": [{"body": "/w==", "encoding": "base64"}]},
        {"messages": [{"body": "a", "idempotency_key": "k"}, {"body": "a", "idempotency_key": "k"}]},
        {"messages": [5]},
        {"messages": {}},
        [],
        {},
        None,
        "text",
    ],
    ids=str,
)
def test_a_batch(both: Both, body: Any) -> None:
    name = both.queue()

    both.call("POST", name, data=json.dumps(body), headers={**FIXED, **JSON})
    both.call("GET", name, headers=FIXED)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "ODD"])
def test_each_method_on_each_path(both: Both, method: str) -> None:
    name = both.queue()
    (ids,) = both.fill(name, "a")

    for headers in ({}, NOBODY, WRONG):
        given: dict[str, Any] = {"headers": {**FIXED, **headers}, "data": b"x"}
        both.call(method, name, ids, **given)
        both.call(method, name, ABSENT_ID, **given)
        both.call(method, name, "not-an-id", **given)
        both.call(method, "absent", **given)
        both.call(method, name, **given)
        both.call(method, "absent", ABSENT_ID, **given)
        both.request(method, "/nowhere", **given)
        both.request(method, "/v1/nobody", **given)
        both.request(method, "/v1/nobody/queue", **given)
        both.request(method, "/__heartbeat__", **given)
        both.request(method, "/__lbheartbeat__", **given)
        both.request(method, "/__version__", **given)
        both.request(method, "/openapi.json", **given)


@pytest.mark.parametrize(
    "fields",
    [
        {"queue_name": new_name()},
        {"queue_name": new_name(), "partitions": "3", "type": "public", "principles": "app:other, bid:a@b.org"},
        {},
        {"queue_name": "a/b", "partitions": "x", "type": "y", "consistency": "z", "principles": "?"},
    ],
    ids=str,
)
def test_a_creation(both: Both, fields: dict[str, str]) -> None:
    for _ in range(2):
        both.call("POST", data=fields, headers=FIXED)
    both.call("POST", data=fields, headers={**FIXED, "If-None-Match": "*"})


def test_the_list_of_queues(both: Both) -> None:
    name = both.queue(partitions=2, principles="app:mirror")
    both.fill(name, "a")

    for params in ({}, {"details": "true"}, {"include_count": "true"}, {"limit": "2"}, {"limit": "x"}, {"limit": "-1"}):
        for headers in ({}, NOBODY, WRONG):
            both.call("GET", params={"offset": name, **params}, headers={**FIXED, **headers})


@pytest.mark.parametrize(
    "fields",
    [{}, {"partitions": "5"}, {"partitions": "1"}, {"type": "public"}, {"principles": ""}, {"type": "x"}],
    ids=str,
)
def test_an_update(both: Both, fields: dict[str, str]) -> None:
    name = both.queue(partitions=2, principles="app:mirror")

    both.call("PUT", name, data=fields, headers=FIXED)


def test_messages_by_id(both: Both) -> None:
    name = both.queue(partitions=2)
    first, second = both.fill(name, "a", "b")
    both_ids = Pair(*(f"{one},1:{two},{ABSENT_ID}" for one, two in zip(first, second, strict=True)))

    both.call("GET", name, both_ids, headers=FIXED)
    both.call("GET", name, first, headers={**FIXED, "Accept": "application/octet-stream"})
    both.call("GET", name, first, params={"raw": "true"}, headers=FIXED)
    both.call("GET", name, ABSENT_ID, params={"raw": "true"}, headers=FIXED)
    both.call("PUT", name, first, data=b"new", headers={**FIXED, "Content-Type": "text/plain"})
    both.call("PUT", name, first, data=b"", headers=FIXED)
    both.call("PUT", name, Pair(*(f"3:{one}" for one in first)), data=b"x", headers=FIXED)
    both.call("GET", name, both_ids, headers=FIXED)
    both.call("DELETE", name, second, headers=FIXED)
    both.call("GET", name, both_ids, headers=FIXED)
    both.call("DELETE", name, headers=FIXED)
    both.call("GET", name, both_ids, headers=FIXED)


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
def test_reading_on_by_cursor(both: Both, accept: str) -> None:
    name = both.queue(partitions=2)
    for partition in (1, 2):
        both.fill(name, *(str(number) for number in range(7)), partition=partition)
    headers = {**FIXED, "Accept": accept}

    answers = both.call("GET", name, params={"partitions": "all", "limit": "3"}, headers=headers)
    for _ in range(3):
        cursors = Pair(*(_cursor(answer) for answer in answers))
        answers = both.call("GET", name, params={"cursor": cursors, "limit": "3"}, headers=headers)


def _cursor(answer: Any) -> str:
    if "Queuey-Cursor" in answer.headers:
        return str(answer.headers["Queuey-Cursor"])
    return str(json.loads(answer.content.splitlines()[-1])["end"]["cursor"])


def test_a_public_queue_read_by_nobody(both: Both) -> None:
    name = both.queue(type="public")
    both.fill(name, "a")

    for headers in (NOBODY, WRONG, {"Authorization": f"Application {APPLICATIONS['other'][0]}"}):
        both.call("GET", name, headers={**FIXED, **headers})
        both.call("POST", name, data=b"x", headers={**FIXED, **headers})


@pytest.mark.parametrize("size", [(1 << 20) + 1, (8 << 20) + 1])
def test_a_body_that_is_too_large(both: Both, size: int) -> None:
    name = both.queue()

    both.call("POST", name, data=b"x" * size, headers=FIXED)
    both.call("POST", name, data=b"x" * size, headers={**FIXED, **JSON})


def test_arrow(both: Both) -> None:
    name = both.queue(partitions=2)
    both.fill(name, *(str(number) for number in range(300)), partition=2)
    tables = []

    for server in both.servers:
        answer = server.call(
            "GET",
            name,
            params={"partitions": "all", "columns": "queue,partition,content_type,key,body"},
            headers={"Accept": "application/vnd.apache.arrow.stream"},
        )
        tables.append(pa.ipc.open_stream(answer.content).read_all())

    assert tables[0].num_rows == 300
    assert tables[0].equals(tables[1], check_metadata=True)


TEXTS = st.sampled_from(
    ["", "0", "1", "-1", "2", "1000", "1001", "x", "all", "1,2", "ascending", "true", "+1", "1.5", "ü", "%", "a b"]
)


@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    below=st.sampled_from([[], ["Q"], ["Q", ABSENT_ID], ["absent"], ["Q", "x"]]),
    params=st.dictionaries(
        st.sampled_from(["limit", "order", "since", "until", "partitions", "columns", "details", "raw", "cursor"]),
        TEXTS,
    ),
    headers=st.dictionaries(
        st.sampled_from(
            ["X-TTL", "X-Partition", "X-Key", "X-Delay", "X-Deliver-At", "Idempotency-Key", "Accept", "If-None-Match"]
        ),
        st.sampled_from(["", "0", "1", "2", "x", "*", "1.5", "application/x-ndjson"]),
    ),
    body=st.sampled_from([b"", b"x", b"partitions=2", b'{"messages":[{"body":"x"}]}', b"\xff", b"type=odd"]),
    content_type=st.sampled_from([None, "application/json", "application/x-www-form-urlencoded", "text/plain"]),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
def test_any_request(
    both_fresh: Both,
    method: str,
    below: list[str],
    params: dict[str, str],
    headers: dict[str, str],
    body: bytes,
    content_type: str | None,
) -> None:
    """Requests that nobody thought of; the queue has one partition, so that chance chooses nothing."""
    queue = "any-request"
    for server in both_fresh.servers:
        _begin_with(server, queue)
    sent = {**FIXED, **headers, **({"Content-Type": content_type} if content_type else {})}

    both_fresh.call(method, *(queue if part == "Q" else part for part in below), params=params, headers=sent, data=body)


def _begin_with(server: Server, queue: str) -> None:
    """One queue, empty, with one partition, at both doors alike."""
    for found in server.call("GET").json()["queues"]:
        server.call("DELETE", found["queue_name"])
    assert server.create(queue).status_code == 201
