"""The table "Bad input: what it must get" of the guarantees, row by row.

What only a raw socket can send (cut uploads, two lengths, bad headers) is in ``test_raw_http.py``.
Storage that refuses is in the fault tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests

from tests.support import raw
from tests.support.client import BATCH, Server, refused
from tests.support.servers import APPLICATIONS, RunningServer

ABSENT_ID = "1f9f6640e56711f189bf02fc00000001"
KEY, OTHER_KEY = APPLICATIONS["queuey"][0], APPLICATIONS["other"][0]


@pytest.fixture
def running(shipped_server: RunningServer) -> RunningServer:
    """The embedded store alone: what is refused before a store is asked is refused over any."""
    return shipped_server


@dataclass(frozen=True)
class Case:
    """One input: how it is sent to a queue of two partitions, and what it must get."""

    row: str
    send: Callable[[Server, str], requests.Response]
    status: int
    keys: tuple[str, ...]


def post(body: bytes | str = b"hello", **headers: Any) -> Callable[[Server, str], requests.Response]:
    return lambda server, queue: server.post(queue, body, **headers)


def batch(text: str | bytes) -> Callable[[Server, str], requests.Response]:
    return post(text, content_type=BATCH)


def entry(**members: Any) -> Callable[[Server, str], requests.Response]:
    return batch(json.dumps({"messages": [{"body": "good"}, {"body": "bad", **members}]}))


def read(**params: Any) -> Callable[[Server, str], requests.Response]:
    return lambda server, queue: server.get(queue, **params)


def another(name: str) -> Callable[[Server, str], requests.Response]:
    return lambda server, _: server.get(name)


def create(**fields: Any) -> Callable[[Server, str], requests.Response]:
    return lambda server, _: server.call("POST", data=fields)


def update(**fields: Any) -> Callable[[Server, str], requests.Response]:
    return lambda server, queue: server.call("PUT", queue, data=fields)


def by_id(method: str, ids: str) -> Callable[[Server, str], requests.Response]:
    return lambda server, queue: server.call(method, queue, ids, data=b"x" if method == "PUT" else None)


def with_header(value: str) -> Callable[[Server, str], requests.Response]:
    return lambda server, queue: server.call("GET", queue, headers={"Authorization": value})


def deep(levels: int) -> str:
    return '{"messages": [], "x": ' + "[" * levels + "]" * levels + "}"


def identity_cases() -> Iterator[Case]:
    own = APPLICATIONS["queuey"][0]
    for row, value, status, key in (
        ("no credentials", "", 403, "Forbidden"),
        ("unknown scheme only", "Basic cXVldWV5OnB3", 403, "Forbidden"),
        ("wrong credential", "Application " + "f" * 40, 401, "InvalidApplicationKey"),
        ("malformed credential", "Application", 401, "InvalidApplicationKey"),
        ("over-long credential", "Application " + "f" * 8200, 401, "InvalidApplicationKey"),
        ("one bad among several", f"Application {own};Application {'f' * 40}", 401, "InvalidApplicationKey"),
        ("valid identity, other's path", f"Application {OTHER_KEY}", 403, "Forbidden"),
    ):
        yield Case(row, with_header(value), status, (key,))


def path_cases() -> Iterator[Case]:
    unknown = ("ApplicationNotFound",)
    yield Case("unknown application", lambda server, _: server.request("GET", "/v1/nobody/queue"), 404, unknown)
    yield Case("method not offered", lambda server, queue: server.call("PATCH", queue), 405, ("MethodNotAllowed",))
    yield Case("unknown path", lambda server, _: server.request("GET", "/v3/queuey"), 404, ("NotFound",))
    for name in ("x" * 51, "a:b", "a,b", "a\x01b", "a\x7fb", "a b"):
        yield Case(f"name on access {name!r:.20}", another(name), 404, ("InvalidQueueName",))
    for name in ("x" * 51, "a/b", "a:b", "a,b", "a\x01b", ".", "..", "a b", "ä", "a\n", "\n", "a\x00"):
        yield Case(f"name at creation {name!r:.20}", create(queue_name=name), 400, ("queue_name",))
    for ids in ("x", ABSENT_ID[:-1], ABSENT_ID + "0", "0" * 32, "f" * 32, *(f"{n}:{ABSENT_ID}" for n in (0, 201, "x"))):
        for method in ("GET", "PUT", "DELETE"):
            yield Case(f"{method} id {ids}", by_id(method, ids), 400, ("InvalidMessageID",))
    yield Case("over 100 ids", by_id("GET", ",".join([ABSENT_ID] * 101)), 400, ("InvalidMessageID",))


def body_cases() -> Iterator[Case]:
    yield Case("empty body", post(b""), 400, ("body",))
    yield Case("batch message without body", batch('{"messages": [{"body": "a"}, {}]}'), 400, ("1.body",))
    yield Case("body over 1 MiB", post(b"x" * ((1 << 20) + 1)), 413, ("MessageTooLarge",))
    yield Case("request over 8 MiB", batch(b" " * ((8 << 20) + 1)), 413, ("MessageTooLarge",))
    for coding in ("gzip", "br", "deflate"):
        yield Case(f"Content-Encoding {coding}", post(content_encoding=coding), 415, ("UnsupportedEncoding",))


def json_cases() -> Iterator[Case]:
    too_many = '{"messages": [' + '{"body":"x"},' * 10_000 + '{"body":"x"}]}'
    for title, text in {
        "broken": '{"messages": [',
        "empty": "",
        "not an object": "[]",
        "no messages": "{}",
        "messages not a list": '{"messages": {}}',
        "duplicate keys": '{"messages": [], "messages": []}',
        "duplicate keys of a message": '{"messages": [{"body": "a", "body": "b"}]}',
        "NaN": '{"messages": [{"body": "a", "ttl": NaN}]}',
        "NaN outside": '{"messages": [], "x": NaN}',
        "Infinity": '{"messages": [], "x": Infinity}',
        "depth over 32": deep(33),
        "depth far over 32": deep(100_000),
        "10,001 entries": too_many,
        "three million objects beside messages": '{"messages": [{"body":"a"}], "x": [' + "{}," * 2_700_000 + "{}]}",
        "three million objects as messages": '{"messages": [' + "{}," * 2_700_000 + "{}]}",
        "many lists in an entry": '{"messages": [{"body":"a","x":[' + "[]," * 200_000 + "[]]}]}",
        "lone surrogate": '{"messages": [{"body": "\\ud800"}]}',
        "lone surrogate in a key": '{"messages": [], "\\udfff": 1}',
        "trailing text": '{"messages": []} x',
    }.items():
        yield Case(f"JSON: {title}", batch(text), 400, ("InvalidParameter",))
    for title, text_bytes in {
        "not UTF-8": b'{"messages": [{"body": "\xff"}]}',
        "UTF-16": '{"messages": []}'.encode("utf-16"),
        "encoded surrogate": b'{"messages": [{"body": "\xed\xa0\x80"}]}',
    }.items():
        yield Case(f"JSON: {title}", batch(text_bytes), 400, ("InvalidParameter",))
    messages: list[Any] = ["text", None, 5, []]
    for message in messages:
        yield Case(f"JSON: a message that is {message!r}", batch(json.dumps({"messages": [message]})), 400, ())


def number_cases() -> Iterator[Case]:
    for ttl in ("x", "0", "-1", "33554433", "1.5", "9" * 30, "\N{ARABIC-INDIC DIGIT THREE}"):
        yield Case(f"ttl {ttl}", post(x_ttl=ttl.encode()), 400, ("ttl",))
        yield Case(f"ttl {ttl} in a batch", entry(ttl=ttl), 400, ("1.ttl",))
    numbers: list[Any] = [0, -1, 33554433, 1.5, True, [], {}]
    for number in numbers:
        yield Case(f"ttl {number!r} in a batch", entry(ttl=number), 400, ("1.ttl",))
    for partition in ("0", "3", "x", "-1", "1.5", "9" * 30):
        yield Case(f"partition {partition}", post(x_partition=partition), 400, ("partition",))
        yield Case(f"partition {partition} in a batch", entry(partition=partition), 400, ("1.partition",))
    for partitions in ("0", "201", "x", "-1", "1.5"):
        yield Case(f"partitions {partitions} at creation", create(partitions=partitions), 400, ("partitions",))
        yield Case(f"partitions {partitions} in an update", update(partitions=partitions), 400, ("partitions",))
    yield Case("fewer than now", update(partitions="1"), 400, ("InvalidUpdate",))


def read_cases() -> Iterator[Case]:
    for limit in ("0", "1001", "x", "-1", "1.5", "9" * 30):
        yield Case(f"limit {limit}", read(limit=limit), 400, ("limit",))
    yield Case("order unknown", read(order="upwards"), 400, ("order",))
    arabic = "\N{ARABIC-INDIC DIGIT ONE}"
    for since in (
        "x",
        "NaN",
        "nan",
        "1e309",
        "1e9",
        "-1",
        "inf",
        arabic,
        "9" * 31,
        ABSENT_ID[:-1] + "g",
        "1.2.3",
        "0x1",
    ):
        yield Case(f"since {since}", read(since=since), 400, ("since",))
    yield Case("since later than all", read(since="4000000000"), 200, ())
    yield Case("unknown query parameter", read(colour="blue"), 200, ())
    yield Case("cursor altered", read(cursor="A" * 60), 400, ("cursor",))


def header_cases() -> Iterator[Case]:
    """Values that are not ASCII are refused and not overlooked."""
    beyond = "ü1".encode()
    for header, field in (
        ("x_ttl", "ttl"),
        ("x_partition", "partition"),
        ("x_key", "key"),
        ("x_delay", "delay"),
        ("x_deliver_at", "deliver_at"),
        ("idempotency_key", "Idempotency-Key"),
        ("content_type", "content_type"),
    ):
        yield Case(f"{header} not ASCII", post(**{header: beyond}), 400, (field,))


def text_cases() -> Iterator[Case]:
    newline = ("app:a\n", "bid:joe@example.com\n", "bid:joe@\nexample.com", "\n", "app:a\x00")
    for principles in (*newline, "joe", "app:", "bid:joe", "app:ä", "app:" + "a" * 251, ",".join(["app:a"] * 101)):
        yield Case(f"principals {principles!r:.30}", create(principles=principles), 400, ("principles",))
    for key in ("", "k" * 129):
        yield Case(f"Idempotency-Key {key:.5}", post(idempotency_key=key), 400, ("Idempotency-Key",))
    for key in ("", "k" * 129, "a\x01b", "a\nb"):
        yield Case(f"idempotency_key {key!r:.8}", entry(idempotency_key=key), 400, ("1.idempotency_key",))
    for field in ("delay", "deliver_at"):
        header = f"x_{field}"
        for value in ("-1", "x", "NaN", "1e3", "4000000000", "366 days"):
            yield Case(f"{field} {value}", post(**{header: value}), 400, (field,))
            yield Case(f"{field} {value} in a batch", entry(**{field: value}), 400, (f"1.{field}",))
    yield Case("delay of 366 days and a second", post(x_delay=366 * 86400 + 1), 400, ("delay",))


def lease(method: str = "POST", group: str = "g", **given: Any) -> Callable[[Server, str], requests.Response]:
    return lambda server, queue: server.call(method, queue, "leases", group, **given)


def lease_cases() -> Iterator[Case]:
    receipt = "A" * 60
    members: list[tuple[str, Any, str]] = [
        ("colour", 1, "colour"),
        ("receive", None, "receive"),
        ("receive", [], "receive"),
        ("receive", {"colour": 1}, "receive.colour"),
        *(("receive", {"max": number}, "receive.max") for number in (0, 1001, 1.5, "1", True, 10**30)),
        *(("receive", {"visibility": seconds}, "receive.visibility") for seconds in (-1, 43_201, "1", True)),
        *(("receive", {"wait": seconds}, "receive.wait") for seconds in (-1, 61, "1")),
        ("receive", {"pop": 1}, "receive.pop"),
        *(("receive", {"partitions": given}, "receive.partitions") for given in ([0], [3], ["1"], [True], 1, [1] * 9)),
        *((name, text, name) for name in ("attempt", "receiver") for text in ("", "a" * 129, "a\n", 1, None)),
        *((name, 1, name) for name in ("acknowledge", "release", "extend", "reject", "append")),
        ("acknowledge", [1], "acknowledge.0"),
        ("acknowledge", [receipt] * 1001, "acknowledge"),
        ("release", [receipt], "release.0"),
        ("release", [{}], "release.0"),
        ("release", [{"receipt": receipt, "delay": -1}], "release.0.delay"),
        ("release", [{"receipt": receipt, "delay": 43_201}], "release.0.delay"),
        ("release", [{"receipt": receipt, "count": 0}], "release.0.count"),
        ("release", [{"receipt": receipt, "reason": "x"}], "release.0.reason"),
        ("extend", [{"receipt": receipt}], "extend.0.visibility"),
        ("extend", {"visibility": 1}, "extend.receiver"),
        ("extend", {"receiver": "a"}, "extend.visibility"),
        ("extend", {"receiver": "a", "visibility": 43_201}, "extend.visibility"),
        ("reject", [{"receipt": receipt, "reason": "x" * 1025}], "reject.0.reason"),
        ("append", [{"queue": "a"}], "append.0.messages"),
        ("append", [{"messages": []}], "append.0.queue"),
        ("append", [{"queue": "a", "messages": []}] * 11, "append"),
    ]
    for at, (member, value, key) in enumerate(members):
        yield Case(f"lease {at} {member}", lease(json={member: value}), 400, (key,))
        yield Case(f"lease {at} {member} with good ones", lease(json={"receive": {}, member: value}), 400, (key,))
    for text in ("", "x", receipt, "é" * 60, "A" * 10_000, "!" * 60):
        yield Case(f"receipt {text[:5]}", lease(json={"acknowledge": [text]}), 400, ("InvalidReceipt",))
    settings: list[tuple[str, Any]] = [
        *(("visibility", seconds) for seconds in (-1, 43_201, "1", None)),
        *(("max_failures", number) for number in (-1, 65_001, 1.5)),
        *(("dead_letter_queue", name) for name in ("a b", "a" * 81, ".", 1)),
        *(("order", name) for name in ("", "keys", 1)),
        *((name, number) for name in ("per_key", "k") for number in (0, 1001)),
        *(("k", value) for value in ("automatic", 1.5, None, True)),
        *(("exact", value) for value in (1, "false", None)),
        *(("max_leased", number) for number in (0, 120_001)),
        *(("max_held", number) for number in (0, 1_000_001)),
        *(("paused_until", seconds) for seconds in (-1, 1e12, "1")),
        *(("paused_reason", text) for text in ("x" * 1025, 1)),
        *(("start", text) for text in ("middle", "-1", 1, "x" * 40)),
        ("backoff", 1),
        ("colour", 1),
    ]
    for name, value in settings:
        yield Case(f"lease setting {name} {value!r:.9}", lease("PUT", json={name: value}), 400, (name,))
    yield Case(
        "a weak lease group with order key", lease("PUT", json={"order": "key", "exact": False}), 400, ("exact",)
    )
    for name, value in (("first", -1), ("factor", 0.5), ("factor", 101), ("most", -1), ("jitter", 1.1), ("colour", 1)):
        key = f"backoff.{name}"
        yield Case(f"lease setting {key} {value}", lease("PUT", json={"backoff": {name: value}}), 400, (key,))
    for method, member in (("POST", "receive"), ("PUT", "start"), ("PUT", "order")):
        yield Case(f"lease {member} in the address", lease(method, params={member: "x"}, json={}), 400, (member,))
    for method in ("GET", "POST", "PUT", "DELETE"):
        json_of: dict[str, Any] = {} if method in ("GET", "DELETE") else {"json": {}}
        yield Case(f"{method} of a lease group's name", lease(method, "a b", **json_of), 400, ("group",))
    for text in ("", "[]", "1", '{"receive":{},"receive":{}}', '{"receive":{"max":NaN}}', "{" * 100_000):
        yield Case(f"lease JSON {text[:20]}", lease(data=text), 400, ())
    yield Case("lease group forgotten in part", lease("DELETE", params={"partition": 1}), 400, ("query",))
    yield Case("no such lease group", lease("GET", "nobody"), 404, ("LeaseGroupNotFound",))
    yield Case("append to no queue", lease(json=_append_of("nowhere", {"body": "x"})), 404, ("InvalidQueueName",))
    wrong = {"queue": "nowhere", "messages": [{"body": "x"}]}
    yield Case("appends with a wrong one", lease(json={"append": [wrong, 1]}), 404, ("InvalidQueueName",))


def _append_of(queue: str, *messages: Any) -> dict[str, Any]:
    return {"append": [{"queue": queue, "messages": [*messages]}]}


def test_a_step_appends_at_most_what_one_request_may(server: Server) -> None:
    first, second = server.queue(), server.queue()
    half = {"messages": [{"body": "x"}] * 5_001}

    answer = server.call(
        "POST", first, "leases", "g", json={"append": [half | {"queue": first}, half | {"queue": second}]}
    )

    refused(answer, 400, "append.1.messages")
    assert (server.info(first)["depth"], server.info(second)["depth"]) == (0, 0)


def test_a_queue_is_not_its_own_dead_letter_queue(server: Server) -> None:
    name = server.queue()

    refused(server.call("PUT", name, "leases", "g", json={"dead_letter_queue": name}), 409, "Conflict")


@pytest.mark.parametrize("junk", ["!", "\n", "-", "="])
def test_one_lease_has_one_receipt(server: Server, junk: str) -> None:
    """Characters that a decoder of base64 passes over made two receipts of one, and the lease was settled twice."""
    name = server.queue()
    server.fill(name, "a")
    (message,) = server.call("POST", name, "leases", "g", json={"receive": {}}).json()["messages"]
    receipt = message["receipt"]

    for other in (receipt[:9] + junk + receipt[9:], receipt + junk):
        twice = {"acknowledge": [receipt], "reject": [{"receipt": other}]}
        refused(server.call("POST", name, "leases", "g", json=twice), 400, "InvalidReceipt")
    refused(server.call("POST", name, "leases", "g", json={"acknowledge": [receipt] * 2}), 400, "InvalidReceipt")
    settled = server.call("POST", name, "leases", "g", json={"acknowledge": [receipt]}).json()["settled"]
    assert settled["acknowledged"] == 1


CASES = [
    *identity_cases(),
    *path_cases(),
    *body_cases(),
    *json_cases(),
    *number_cases(),
    *read_cases(),
    *header_cases(),
    *text_cases(),
    *lease_cases(),
]


@pytest.mark.parametrize("case", CASES, ids=[case.row for case in CASES])
def test_bad_input(server: Server, case: Case) -> None:
    name = server.queue(partitions=2)

    answer = case.send(server, name)

    if case.status < 400:
        assert answer.status_code == case.status
    else:
        texts = refused(answer, case.status, *case.keys)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert all(len(text) < 500 for text in texts.values())
    assert server.info(name)["depth"] == 0


def test_every_status_the_table_names_says_so_in_its_headers(server: Server, anonymous: Server) -> None:
    name = server.queue()

    assert "Access was denied" in anonymous.get(name).text
    assert anonymous.get(name).headers["WWW-Authenticate"]
    assert server.call("PATCH", name).headers["Allow"]


@pytest.mark.parametrize("header", ["Application " + "f" * 40, "Application", "Application " + "f" * 8200])
def test_a_bad_credential_is_401_also_on_a_public_queue(server: Server, header: str) -> None:
    name = server.queue(type="public")

    refused(server.call("GET", name, headers={"Authorization": header}), 401, "InvalidApplicationKey")


def test_unknown_members_are_ignored(server: Server) -> None:
    body = json.dumps({"messages": [{"body": "a", "colour": {"deep": [1, None]}}], "colour": 1})

    assert server.post(server.queue(), body, content_type="application/json").status_code == 201


def test_depth_32_is_taken(server: Server) -> None:
    assert server.post(server.queue(), deep(31), content_type="application/json").status_code == 201


def test_a_queue_created_again_is_told_as_stored(server: Server) -> None:
    name = server.queue(partitions=4, consistency="weak")

    again = server.create(name, partitions=2)

    assert (again.status_code, again.json()["partitions"], again.json()["consistency"]) == (201, 4, "weak")
    exists = server.call("POST", data={"queue_name": name}, headers={"If-None-Match": "*"})
    refused(exists, 409, "QueueExists")


@pytest.mark.parametrize("segment", [b"%zz", b"%", b"%f", b"a%2", b"%ff", b"%c3%28", b"%ed%a0%80", b"%00", b"a%00b"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_path_that_is_no_text_is_400(running: RunningServer, method: str, segment: bytes) -> None:
    for path in (b"/v1/queuey/" + segment, b"/v1/" + segment, b"/v1/queuey/q/" + segment, b"/" + segment):
        status, told = raw.ask(running.port, method, path, KEY)
        assert status == 400, path
        assert set(told["error_msg"]) == {"path"}, path


@pytest.mark.parametrize("size", [4097, 8000])
def test_a_path_over_4_kib_is_414(running: RunningServer, size: int) -> None:
    status, told = raw.ask(running.port, "GET", b"/v1/queuey/" + b"x" * (size - 11), KEY)

    assert status == 414
    assert set(told["error_msg"]) == {"path"}


def test_a_path_of_4_kib_is_read(running: RunningServer) -> None:
    ids = b",".join([b"1:" + ABSENT_ID.encode()] * 100)
    name = b"x" * 40

    status, _ = raw.ask(running.port, "GET", b"/v1/queuey/" + name + b"/" + ids, KEY)

    assert status == 404


@pytest.mark.parametrize(
    "query", [b"limit=%zz", b"limit=%ff", b"since=%00", b"%ff=1", b"partitions=%c3%28", b"&&==&", b"=", b"limit"]
)
def test_an_odd_query_is_never_a_failure_of_ours(running: RunningServer, query: bytes) -> None:
    with Server(running) as server:
        name = server.queue()

    status, _ = raw.ask(running.port, "GET", b"/v1/queuey/" + name.encode() + b"?" + query, KEY)

    assert status in {200, 400}
