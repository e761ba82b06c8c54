"""What the shipped server answers over the embedded store, it answers over Cassandra and the WSGI application too, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.alike import Each, Everywhere
from tests.support.client import new_name
from tests.support.servers import APPLICATIONS

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
def test_a_read(everywhere: Everywhere, filled: str, params: dict[str, str], accept: str | None) -> None:
    everywhere.call("GET", filled, params=params, headers={**FIXED, **({"Accept": accept} if accept else {})})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-TTL": "500"},
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
def test_an_append(everywhere: Everywhere, headers: dict[str, str], body: bytes) -> None:
    spread = "X-Partition" not in headers and "X-Key" not in headers
    name = everywhere.queue(partitions=1 if spread else 2)

    for _ in range(2):
        everywhere.call("POST", name, data=body, headers={**FIXED, **headers})
    everywhere.call("GET", name, params={"partitions": "all"}, headers=FIXED)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"body": "a"}, {"body": "b", "ttl": 500, "content_type": "text/plain", "key": "k"}]},
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
def test_a_batch(everywhere: Everywhere, body: Any) -> None:
    name = everywhere.queue()

    everywhere.call("POST", name, data=json.dumps(body), headers={**FIXED, **JSON})
    everywhere.call("GET", name, headers=FIXED)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "ODD"])
def test_each_method_on_each_path(everywhere: Everywhere, method: str) -> None:
    name = everywhere.queue()
    (ids,) = everywhere.fill(name, "a")

    for headers in ({}, NOBODY, WRONG):
        given: dict[str, Any] = {"headers": {**FIXED, **headers}, "data": b"x"}
        everywhere.call(method, name, ids, **given)
        everywhere.call(method, name, ABSENT_ID, **given)
        everywhere.call(method, name, "not-an-id", **given)
        everywhere.call(method, name, "offsets", **given)
        everywhere.call(method, name, "offsets", "mail", **given)
        everywhere.call(method, "absent", "offsets", "mail", **given)
        everywhere.call(method, "absent", **given)
        everywhere.call(method, name, **given)
        everywhere.call(method, "absent", ABSENT_ID, **given)
        everywhere.request(method, "/nowhere", **given)
        everywhere.request(method, "/v1/nobody", **given)
        everywhere.request(method, "/v1/nobody/queue", **given)
        everywhere.request(method, "/__heartbeat__", **given)
        everywhere.request(method, "/__lbheartbeat__", **given)
        everywhere.request(method, "/__version__", **given)
        everywhere.request(method, "/openapi.json", **given)


def test_head_has_the_headers_of_get(everywhere: Everywhere) -> None:
    name = everywhere.queue(partitions=2)
    (ids,) = everywhere.fill(name, "a")
    lines = {"Accept": "application/x-ndjson"}
    asked: list[tuple[tuple[Any, ...], dict[str, str], dict[str, str]]] = [
        ((name, ids), {}, {}),
        ((name, ids), {"raw": "true"}, {}),
        ((name, "absent"), {}, {}),
        ((name,), {}, {}),
        ((name,), {"info": "true"}, {}),
        ((name,), {"survey": "true"}, {}),
        ((name,), {}, lines),
        ((name, "offsets"), {}, {}),
        ((name, "offsets", "mail"), {}, {}),
        ((), {}, {}),
    ]
    everywhere.call("GET", name, params={"info": "true"}, headers=FIXED)  # from now on its appends are counted
    for below, params, headers in asked:
        got = everywhere.call("GET", *below, params=params, headers={**FIXED, **headers})
        head = everywhere.call("HEAD", *below, params=params, headers={**FIXED, **headers})
        for one, other in zip(got, head, strict=True):
            assert framing(other) == framing(one), (below, params)
    for path in ("/__heartbeat__", "/__lbheartbeat__", "/__version__", "/openapi.json"):
        for one, other in zip(
            everywhere.request("GET", path, headers=FIXED), everywhere.request("HEAD", path, headers=FIXED), strict=True
        ):
            assert framing(other) == framing(one), path


def framing(answer: Any) -> tuple[int, Any, Any]:
    return answer.status_code, answer.headers.get("Content-Length"), answer.headers.get("Transfer-Encoding")


@pytest.mark.parametrize(
    "fields",
    [
        {"queue_name": new_name()},
        {"queue_name": new_name(), "partitions": "3", "type": "public", "principles": "app:other, bid:a@b.org"},
        {},
        {"queue_name": "a/b", "partitions": "x", "type": "y", "consistency": "z", "principles": "?"},
    ],
    ids=["only a name", "all there is", "nothing", "all of it wrong"],
)
def test_a_creation(everywhere: Everywhere, fields: dict[str, str]) -> None:
    for _ in range(2):
        everywhere.call("POST", data=fields, headers=FIXED)
    everywhere.call("POST", data=fields, headers={**FIXED, "If-None-Match": "*"})


def test_the_list_of_queues(everywhere: Everywhere) -> None:
    name = everywhere.queue(partitions=2, principles="app:mirror")
    everywhere.fill(name, "a")

    for params in ({}, {"details": "true"}, {"include_count": "true"}, {"limit": "2"}, {"limit": "x"}, {"limit": "-1"}):
        for headers in ({}, NOBODY, WRONG):
            everywhere.call("GET", params={"offset": name, **params}, headers={**FIXED, **headers})


@pytest.mark.parametrize(
    "fields",
    [{}, {"partitions": "5"}, {"partitions": "1"}, {"type": "public"}, {"principles": ""}, {"type": "x"}],
    ids=str,
)
def test_an_update(everywhere: Everywhere, fields: dict[str, str]) -> None:
    name = everywhere.queue(partitions=2, principles="app:mirror")

    everywhere.call("PUT", name, data=fields, headers=FIXED)


def test_messages_by_id(everywhere: Everywhere) -> None:
    name = everywhere.queue(partitions=2)
    first, second = everywhere.fill(name, "a", "b")
    ids = Each(f"{one},1:{two},{ABSENT_ID}" for one, two in zip(first, second, strict=True))

    everywhere.call("GET", name, ids, headers=FIXED)
    everywhere.call("GET", name, first, headers={**FIXED, "Accept": "application/octet-stream"})
    everywhere.call("GET", name, first, params={"raw": "true"}, headers=FIXED)
    everywhere.call("GET", name, ABSENT_ID, params={"raw": "true"}, headers=FIXED)
    everywhere.call("PUT", name, first, data=b"new", headers={**FIXED, "Content-Type": "text/plain"})
    everywhere.call("PUT", name, first, data=b"", headers=FIXED)
    everywhere.call("PUT", name, Each(f"3:{one}" for one in first), data=b"x", headers=FIXED)
    everywhere.call("GET", name, ids, headers=FIXED)
    everywhere.call("DELETE", name, second, headers=FIXED)
    everywhere.call("GET", name, ids, headers=FIXED)
    everywhere.call("DELETE", name, headers=FIXED)
    everywhere.call("GET", name, ids, headers=FIXED)


@pytest.mark.parametrize(
    "body",
    [
        {"offsets": [{"partition": 2}], "generation": 4},
        {"offsets": [{"partition": 1, "message_id": ABSENT_ID}], "generation": 3},
        {"offsets": [{"partition": 1, "message_id": ABSENT_ID}], "generation": 2},
        {"offsets": [{"partition": 1, "message_id": ABSENT_ID.replace("6", "5", 1)}], "generation": 3},
        {"offsets": [{"partition": 1}, {"partition": 3}, 5, {"partition": 1, "message_id": "x"}], "generation": -1},
        {"reset": True, "to": "beginning"},
        {"reset": True, "to": "end", "preview": True},
        {"reset": True, "to": "middle", "partitions": [0], "preview": "yes"},
        {"these": 1, "members": 2, "nobody": 3, "knows": 4, "here": 5},
        {},
        [],
    ],
    ids=str,
)
def test_offsets(everywhere: Everywhere, body: Any) -> None:
    name = everywhere.queue(partitions=2)
    everywhere.fill(name, "a", "b")
    there = {"offsets": [{"partition": 1, "message_id": ABSENT_ID}], "generation": 3}
    everywhere.call("PUT", name, "offsets", "mail", json=there, headers=FIXED)

    for headers in ({}, NOBODY, WRONG):
        everywhere.call("PUT", name, "offsets", "mail", json=body, headers={**FIXED, **headers})
        everywhere.call("GET", name, "offsets", "mail", headers={**FIXED, **headers})
        everywhere.call("GET", name, "offsets", headers={**FIXED, **headers})
    everywhere.call("GET", name, "offsets", "a b", headers=FIXED)
    for _ in range(2):
        everywhere.call("DELETE", name, "offsets", "mail", headers=FIXED)
    everywhere.call("GET", name, "offsets", params={"limit": "x"}, headers=FIXED)


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
def test_reading_on_by_cursor(everywhere: Everywhere, accept: str) -> None:
    name = everywhere.queue(partitions=2)
    for partition in (1, 2):
        everywhere.fill(name, *(str(number) for number in range(7)), partition=partition)
    headers = {**FIXED, "Accept": accept}

    answers = everywhere.call("GET", name, params={"partitions": "all", "limit": "3"}, headers=headers)
    for _ in range(3):
        cursors = Each(_cursor(answer) for answer in answers)
        answers = everywhere.call("GET", name, params={"cursor": cursors, "limit": "3"}, headers=headers)


def _cursor(answer: Any) -> str:
    if "Queuey-Cursor" in answer.headers:
        return str(answer.headers["Queuey-Cursor"])
    return str(json.loads(answer.content.splitlines()[-1])["end"]["cursor"])


def test_a_public_queue_read_by_nobody(everywhere: Everywhere) -> None:
    name = everywhere.queue(type="public")
    everywhere.fill(name, "a")

    for headers in (NOBODY, WRONG, {"Authorization": f"Application {APPLICATIONS['other'][0]}"}):
        everywhere.call("GET", name, headers={**FIXED, **headers})
        everywhere.call("POST", name, data=b"x", headers={**FIXED, **headers})


@pytest.mark.parametrize("size", [(1 << 20) + 1, (8 << 20) + 1])
def test_a_body_that_is_too_large(everywhere: Everywhere, size: int) -> None:
    name = everywhere.queue()

    everywhere.call("POST", name, data=b"x" * size, headers=FIXED)
    everywhere.call("POST", name, data=b"x" * size, headers={**FIXED, **JSON})


@pytest.mark.parametrize(
    "path",
    [
        "/v1/mirror/%ff",
        "/v1/mirror/%C3%28",
        "/v1/mirror/q%",
        "/v1/mirror/%zz",
        "/v1/mirror/%00",
        "/v1/mirror/a%2Fb",
        "/v1/mirror/%3Cscript%3E",
        "/v1/mirror/%C3%BC",
        "/v1/mirror//x",
        "/v1/mirror/",
        "/v1/mirror/../other",
        "/v1/mirror/absent/" + "1" * 3000,
        "/v1/mirror/absent?limit=%ff",
        "/v1/mirror/absent?" + "limit=1&" * 200,
    ],
    ids=lambda path: str(path)[:30],
)
def test_an_odd_path(everywhere: Everywhere, path: str) -> None:
    """A WSGI server hands on a path that it has decoded; the shipped server decodes it itself."""
    for method in ("GET", "POST", "DELETE"):
        everywhere.request(method, path, headers=FIXED, data=b"x")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Basic cXVldWV5OnB3"},
        {"Authorization": "Application"},
        {"Authorization": "Application " + "f" * 8000},
        {"Authorization": b"Application \xff\xfe"},
        {"Authorization": f"Application {APPLICATIONS['mirror'][0]};Application {'f' * 40}"},
        {"Authorization": f"application   {APPLICATIONS['mirror'][0]}"},
        {"Authorization": "Bearer x.y.z"},
        {"Authorization": "BrowserID x~y"},
        {"X-Key": "schlüssel".encode()},
        {"X-Key": b"\xff"},
        {"Content-Type": b"text/\xff"},
        {"Accept": "," * 3000},
        {"Origin": "https://app.example.org"},
    ],
    ids=lambda headers: str(headers)[:40],
)
def test_an_odd_header(everywhere: Everywhere, headers: dict[str, str]) -> None:
    name = everywhere.queue()

    everywhere.call("POST", name, data=b"x", headers={**FIXED, **headers})
    everywhere.call("GET", name, headers={**FIXED, **headers})
    everywhere.call("OPTIONS", name, headers={**FIXED, **headers})


def test_a_read_of_what_the_reader_has(everywhere: Everywhere) -> None:
    name = everywhere.queue()
    everywhere.fill(name, "a")
    tags = Each(answer.headers["ETag"] for answer in everywhere.call("GET", name, headers=FIXED))

    for asked in (tags, "*", '"another"'):
        everywhere.call("GET", name, headers={**FIXED, "If-None-Match": asked})
        everywhere.call("HEAD", name, headers={**FIXED, "If-None-Match": asked})
    everywhere.fill(name, "b")
    everywhere.call("GET", name, headers={**FIXED, "If-None-Match": tags})


POLLS: list[tuple[str, dict[str, str]]] = [
    ("application/json", {"wait": "0"}),
    ("application/json", {"wait": "1"}),
    ("application/json", {"wait": "21"}),
    ("application/json", {"wait": "1", "limit": "101"}),
    ("application/json", {"follow": "true"}),
    # Lines that wait longer have keepalives behind a WSGI server, whose threads must find out that a reader has gone.
    ("application/x-ndjson", {"follow": "false", "wait": "0"}),
    ("application/x-ndjson", {"follow": "true", "wait": "1"}),
    ("text/event-stream", {"wait": "1"}),
]


@pytest.mark.parametrize(("accept", "params"), POLLS, ids=str)
def test_a_poll(everywhere: Everywhere, accept: str, params: dict[str, str]) -> None:
    name = everywhere.queue(partitions=2)
    headers = {**FIXED, "Accept": accept}

    everywhere.call("GET", name, params=params, headers=headers)
    everywhere.fill(name, "a")
    everywhere.call("GET", name, params=params, headers=headers)


@pytest.mark.parametrize("path", ["/console", "/console/a/mirror?limit=1"])
def test_a_page_that_sends_to_the_sign_in(everywhere: Everywhere, path: str) -> None:
    """By its path alone: what a WSGI server takes for scheme and host may not be the browser's."""
    for method in ("GET", "HEAD"):
        (answer, *_) = everywhere.request(method, path, headers=FIXED)
        assert (answer.status_code, answer.headers["Location"][:17]) == (303, "/console/sign-in?")


def test_several_queues(everywhere: Everywhere) -> None:
    one, two = everywhere.queue(), everywhere.queue(partitions=2)
    everywhere.fill(one, "a", "b")

    for asked in (f"{one},{two}", f"{two},absent", "absent", "a b", ""):
        for headers in ({}, NOBODY, WRONG):
            everywhere.call("GET", params={"queues": asked, "limit": "1"}, headers={**FIXED, **headers})


def test_a_survey(everywhere: Everywhere) -> None:
    name = everywhere.queue(partitions=2)
    everywhere.fill(name, "a", "b")

    for more in ({}, {"partitions": "all"}, {"partitions": "3"}, {"since": "1e309"}, {"until": "1"}):
        everywhere.call("GET", name, params={"survey": "true", **more}, headers=FIXED)


def test_an_arrow_batch(everywhere: Everywhere) -> None:
    name = everywhere.queue()
    table = pa.table({"body": [b"a", b"\xff", b"c"], "ttl": [60, None, 3600]})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    data = bytes(out.getvalue())

    for sent in (data, data[:-20], b"", b"x"):
        headers = {**FIXED, "Content-Type": "application/vnd.apache.arrow.stream"}
        everywhere.call("POST", name, params={"batch": "true"}, data=sent, headers=headers)
    everywhere.call("GET", name, headers=FIXED)


def test_arrow(everywhere: Everywhere) -> None:
    name = everywhere.queue(partitions=2)
    everywhere.fill(name, *(str(number) for number in range(300)), partition=2)
    tables = []

    for server in everywhere.servers:
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


COMMIT = b'{"offsets":[{"partition":1}],"generation":2}'


@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    below=st.sampled_from(
        [
            [],
            ["Q"],
            ["Q", ABSENT_ID],
            ["absent"],
            ["Q", "x"],
            ["Q", "offsets"],
            ["Q", "offsets", "g"],
            ["Q", "offsets", ""],
        ]
    ),
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
    body=st.sampled_from([b"", b"x", b"partitions=2", b'{"messages":[{"body":"x"}]}', b"\xff", b"type=odd", COMMIT]),
    content_type=st.sampled_from([None, "application/json", "application/x-www-form-urlencoded", "text/plain"]),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
def test_any_request(
    everywhere_fresh: Everywhere,
    method: str,
    below: list[str],
    params: dict[str, str],
    headers: dict[str, str],
    body: bytes,
    content_type: str | None,
) -> None:
    """Requests that nobody thought of; the queue has one partition, so that chance chooses nothing."""
    queue = everywhere_fresh.queue()
    sent = {**FIXED, **headers, **({"Content-Type": content_type} if content_type else {})}

    everywhere_fresh.call(
        method, *(queue if part == "Q" else part for part in below), params=params, headers=sent, data=body
    )
