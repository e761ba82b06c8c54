"""Requests that nobody would send: forms, JSON, Arrow and credentials, drawn at random from what is almost right."""

from __future__ import annotations

import json
import random
import uuid
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa

ABSENT_ID = "1f9f6640e56711f189bf02fc00000001"
ARROW = "application/vnd.apache.arrow.stream"
FORM = "application/x-www-form-urlencoded"
JUNK: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**31,
        2**63,
        2**64,
        10**30,
        0.5,
        -0.0,
        1e308,
        "",
        "0",
        "1",
        "-1",
        "true",
        "x",
        "\0",
        "é",
    ),
    *(
        "\ud800",
        "\N{ARABIC-INDIC DIGIT ONE}",
        "a" * 300,
        "1e309",
        "nan",
        " 1",
        "1 ",
        "+1",
        "all",
        "app:other",
        ABSENT_ID,
    ),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": []}}, "../..", "%00", "q,q", "*", "bid:joe@example.org", "read"),
]
TEXTS = [str(value) for value in JUNK if not isinstance(value, (list, dict)) and value != "\ud800"]
FIELDS = [
    "queue_name",
    "partitions",
    "type",
    "principles",
    "consistency",
    "verbs",
    "queues",
    "principal",
    "life_seconds",
    "x",
]
COLUMNS = [
    "body",
    "key",
    "ttl",
    "partition",
    "content_type",
    "delay",
    "deliver_at",
    "idempotency_key",
    "timestamp",
    "x",
]
TYPES = [
    *(
        pa.null(),
        pa.bool_(),
        pa.int8(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.large_string(),
        pa.binary(),
    ),
    *(
        pa.large_binary(),
        pa.binary(3),
        pa.timestamp("s"),
        pa.timestamp("ns", "UTC"),
        pa.date32(),
        pa.time64("ns"),
        pa.duration("us"),
    ),
    *(
        pa.decimal128(38, 3),
        pa.decimal256(60, 0),
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.map_(pa.string(), pa.int8()),
    ),
    *(
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.binary()),
        pa.string_view(),
        pa.month_day_nano_interval(),
    ),
]
BATCH = {
    "messages": [
        {"body": "a", "ttl": 500, "key": "k", "content_type": "text/plain"},
        {"body": "/w==", "encoding": "base64"},
    ]
}
TEMPLATES: list[tuple[str, str, Any]] = [
    ("POST", "/v1/queuey/{q}", BATCH),
    ("PUT", "/v1/queuey/{q}/offsets/g", {"offsets": [{"partition": 1, "message_id": ABSENT_ID}], "generation": 3}),
    ("PUT", "/v1/queuey/{q}/offsets/g", {"reset": True, "to": "end", "partitions": [1], "preview": True}),
    (
        "POST",
        "/tokens/queuey",
        {"principal": "bid:joe@example.org", "verbs": ["read"], "queues": ["{q}"], "life_seconds": 60},
    ),
]
PARAMETERS = [
    "limit",
    "order",
    "since",
    "until",
    "partitions",
    "columns",
    "details",
    "raw",
    "cursor",
    "info",
    "survey",
    "mine",
    "batch",
]
HEADERS = [
    "X-TTL",
    "X-Partition",
    "X-Key",
    "X-Delay",
    "X-Deliver-At",
    "Idempotency-Key",
    "Accept",
    "If-None-Match",
    "If-Match",
    "Prefer",
]


@dataclass(frozen=True)
class Drawn:
    """A request, ready to be sent."""

    method: str
    path: str
    headers: dict[str, str | bytes] = field(default_factory=dict)
    body: bytes = b""


def drawn(chance: random.Random, queue: str, credentials: list[str]) -> Drawn:
    """One of any kind.

    :param credentials: good ones, to be spoiled.
    """
    return chance.choice((_form, _json, _json, _arrow, _question, _credential))(chance, queue, credentials)


def _form(chance: random.Random, queue: str, _: list[str]) -> Drawn:
    method, path = chance.choice((("POST", "/v1/queuey"), ("PUT", f"/v1/queuey/{queue}"), ("POST", "/tokens/queuey")))
    pairs = [(chance.choice(FIELDS), chance.choice(TEXTS)) for _ in range(chance.choice((0, 1, 2, 3, 3, 200)))]
    # More partitions would let chance choose among them, for each server another one.
    pairs = [(name, "1" if name == "partitions" and value.strip(" +").isdigit() else value) for name, value in pairs]
    kind = chance.choice(("url", "url", "parts", "parts", "text"))
    if kind == "url":
        body = urlencode(pairs).encode()
        charset = chance.choice(("", "", "; charset=utf-8", "; charset=utf-16", "; charset=x", ";;", '; charset="'))
        return Drawn(method, path, {"Content-Type": FORM + charset}, _spoiled(chance, body))
    if kind == "text":
        return Drawn(
            method, path, {"Content-Type": chance.choice(("text/plain", "", "a/b; c"))}, urlencode(pairs).encode()
        )
    boundary = chance.choice(("b", "b", "b" * 71, "", "b c", "é"))
    disposition = chance.choice(("form-data; name=", "form-data;name=", "attachment; filename=", "form-data; name*="))
    parts = [f'--{boundary}\r\nContent-Disposition: {disposition}"{name}"\r\n\r\n{value}\r\n' for name, value in pairs]
    body = "".join([*parts, f"--{boundary}--\r\n"]).encode(errors="replace")
    stated = chance.choice((f"; boundary={boundary}", f'; boundary="{boundary}"', "", "; boundary", "; boundary=other"))
    return Drawn(method, path, {"Content-Type": f"multipart/form-data{stated}".encode()}, _spoiled(chance, body))


def _json(chance: random.Random, queue: str, _: list[str]) -> Drawn:
    method, path, template = chance.choice(TEMPLATES)
    value = json.loads(json.dumps(template).replace("{q}", queue))
    for _n in range(chance.choice((0, 1, 1, 1, 2, 3))):
        value = _other(chance, value)
    text = json.dumps(value, ensure_ascii=chance.random() < 0.9)
    if chance.random() < 0.05:
        text = "[" * chance.choice((31, 40, 5000)) + text
    body = text.encode(chance.choice(("utf-8", "utf-8", "utf-8", "utf-16")), errors="surrogatepass")
    kind = chance.choice(("application/json",) * 5 + ("application/json; charset=utf-16", "text/json"))
    return Drawn(method, path.format(q=queue), {"Content-Type": kind}, _spoiled(chance, body))


def _other(chance: random.Random, value: Any) -> Any:
    """The value with something in it exchanged, left out, added or repeated."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice(list(value))
        how = chance.random()
        if how < 0.1:
            return {key: inner for key, inner in value.items() if key != name}
        if how < 0.2:
            return {**value, chance.choice([*FIELDS, *COLUMNS]): chance.choice(JUNK)}
        return {**value, name: _other(chance, value[name])}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        if chance.random() < 0.2:
            return value * chance.choice((2, 3, 600))
        return [*value[:at], _other(chance, value[at]), *value[at + 1 :]]
    return chance.choice(JUNK)


def _arrow(chance: random.Random, queue: str, _: list[str]) -> Drawn:
    rows = chance.choice((0, 1, 1, 3, 50))
    columns: dict[str, Any] = {"body": pa.array([f"{number}" for number in range(rows)])}
    for _n in range(chance.choice((0, 1, 1, 2, 4))):
        columns[chance.choice(COLUMNS)] = _column(chance, rows)
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    compressed = chance.choice((None, None, None, "lz4", "zstd"))
    options = pa.ipc.IpcWriteOptions(compression=compressed)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=chance.choice((1, 1000)))
    body = sink.getvalue().to_pybytes()
    for _n in range(chance.choice((0, 0, 1, 1, 5))):
        body = _spoiled(chance, body)
    return Drawn("POST", f"/v1/queuey/{queue}?batch=true", {"Content-Type": ARROW}, body)


def _column(chance: random.Random, rows: int) -> Any:
    kind = chance.choice(TYPES)
    junk = [chance.choice((*JUNK, b"abc")) for _ in range(rows)]
    if pa.types.is_map(kind):
        junk = [None if one == [None] else one for one in junk]  # pyarrow 26 ends the process for an entry that is null
    numbers = [chance.choice((None, 0, 1, 5, 60, 500, -1, 10**9, 2**40, 2**62)) for _ in range(rows)]
    texts = [chance.choice(TEXTS) for _ in range(rows)]
    for values in chance.sample((junk, numbers, texts), 3):
        with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
            return pa.array(values, type=kind, from_pandas=False)
    return pa.nulls(rows, kind)


def _question(chance: random.Random, queue: str, _: list[str]) -> Drawn:
    ids = ",".join(
        chance.choice((ABSENT_ID, f"1:{ABSENT_ID}", f"9:{ABSENT_ID}", "x", ""))
        for _ in range(chance.choice((1, 2, 300)))
    )
    below = chance.choice(("", f"/{ids}", "/offsets", "/offsets/g", f"/offsets/{quote(chance.choice(TEXTS), safe='')}"))
    query = urlencode([(chance.choice(PARAMETERS), chance.choice(TEXTS)) for _ in range(chance.choice((0, 1, 2, 4)))])
    headers: dict[str, str | bytes] = {
        chance.choice(HEADERS): chance.choice(TEXTS).strip().replace("\0", "").encode()
        for _ in range(chance.choice((0, 1, 2)))
    }
    method = chance.choice(
        ("GET", "GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH") if below else ("GET", "HEAD", "POST")
    )
    return Drawn(method, f"/v1/queuey/{queue}{below}?{query}", headers, chance.choice((b"", b"x", b"{}")))


_IN_HEADERS = frozenset(range(0x20, 0x100)) - {0x7F}
"""Bytes that a header's value may have. What servers do of others each says in its own words: see ``test_heads.py``."""


def _credential(chance: random.Random, queue: str, credentials: list[str]) -> Drawn:
    scheme, _, text = chance.choice(credentials).partition(" ")
    raw = text.encode()
    for _n in range(chance.choice((1, 1, 2))):
        raw = _spoiled(chance, raw, always=True)
    if chance.random() < 0.3:
        parts = raw.split(b".")
        chance.shuffle(parts)
        raw = b".".join(parts)
    scheme = chance.choice(
        (scheme, scheme, scheme.lower(), "Bearer", "Basic", "BrowserID", "Application", "", "x" * 50)
    )
    value = (
        scheme.encode()
        + chance.choice((b" ", b" ", b"  ", b"", b"\t"))
        + bytes(byte for byte in raw if byte in _IN_HEADERS)
    )
    method, path = chance.choice(
        (("GET", f"/v1/queuey/{queue}"), ("POST", "/tokens/queuey"), ("DELETE", f"/v1/queuey/{queue}"))
    )
    return Drawn(method, path, {"Authorization": value.strip() or b"x"})


def _spoiled(chance: random.Random, body: bytes, *, always: bool = False) -> bytes:
    """Cut, lengthened, with bytes exchanged or a piece of it repeated; often as it was."""
    how = chance.choice(["cut", "longer", "flip", "flip", "flip", "repeat", "swap"] + ([] if always else ["none"] * 7))
    if not body or how == "none":
        return body
    at, to = sorted((chance.randrange(len(body)), chance.randrange(len(body))))
    if how == "cut":
        return body[:at]
    if how == "longer":
        return body + chance.choice((b"\0", b" ", b"}", body, b64encode(uuid.UUID(int=chance.getrandbits(128)).bytes)))
    if how == "flip":
        return body[:at] + bytes([body[at] ^ (1 << chance.randrange(8))]) + body[at + 1 :]
    if how == "repeat":
        return body[:at] + body[at:to] * 2 + body[to:]
    return body[to:] + body[at:to] + body[:at]
