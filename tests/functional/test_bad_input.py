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


CASES = [
    *identity_cases(),
    *path_cases(),
    *body_cases(),
    *json_cases(),
    *number_cases(),
    *read_cases(),
    *header_cases(),
    *text_cases(),
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
