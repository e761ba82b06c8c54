"""The worst that each operation can be asked within the limits, and what it costs everybody else (G17).

Three callers ask: a stranger, one application, and one user whom the queue names. Thirty-two of their requests
arrive at once, while another application appends and reads, and somebody looks at the heartbeat.
"""

from __future__ import annotations

import json
import random
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import requests

from queuey.api.routes import ROUTES
from queuey.http.routing import Route
from tests.support.client import authorization
from tests.support.node import busy, wait_for_more
from tests.support.servers import APPLICATIONS, RunningServer

ASKED = sorted({(route.name, method) for route, method in ROUTES.methods()})
RECEIVE = ("leases", "POST")
"""The one write that the user may do as well."""
_WRITES = ("POST", "PUT")
AT_ONCE = 32
DRAWN = 2
"""Requests of an operation in the shorter run."""
ATTACKER, OTHER = "queuey", "other"
QUEUE, LARGE_QUEUE, ESCAPED_QUEUE, KEYED_QUEUE = "worst", "large", "escaped", "keyed"
GROUP = "work"
"""A lease group of each of these queues."""
USER = "bid:joe@example.org"
PARTITIONS = 200
SETTINGS = "[tokens]\nkeys = " + "worst-token-key-" * 3 + "\n"
MIB = 1 << 20
LARGE = 100
"""Messages of 1 MiB; one request may ask for this many by their ids."""
ESCAPED = 8
"""Messages of 1 MiB that JSON makes six times as large, in a queue of their own."""
SMALL = 5_000
"""Messages of 100 bytes, in another queue."""
KEYED = 10_000
"""Messages of one key, of which one is leased."""
QUEUES = 200
PATIENCE_SECONDS = 100
_STATUS_BYTES = len("HTTP/1.1 200")
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True)
class Request:
    """One request, but for its caller."""

    route: str
    method: str
    name: str
    path: str
    kind: str = ""
    body: bytes = b""
    accept: str = "*/*"
    fields: Mapping[str, str] = field(default_factory=dict)
    """Other headers."""
    endless: bool = False
    """Its answer has no end."""
    by_anybody: bool = False
    """What is costly is its head, which is taken apart before the caller is known: it is the same whoever asks."""

    def __str__(self) -> str:
        return f"{self.route}-{self.method}-{self.name}"

    def head(self, credential: str, *, announced: int) -> bytes:
        """The request's head; the connection ends with the answer."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: q", f"Accept: {self.accept}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in self.fields.items()]
        if credential:
            lines.append(f"Authorization: {credential}")
        if self.kind:
            lines.append(f"Content-Type: {self.kind}")
        if announced or self.method in ("POST", "PUT"):
            lines.append(f"Content-Length: {announced}")
        return "\r\n".join([*lines, "", ""]).encode()


def _filled(begin: bytes, piece: bytes, end: bytes, size: int) -> bytes:
    """As many pieces between a beginning and an end as a body of this size has room for."""
    return begin + piece * ((size - len(begin) - len(end)) // len(piece)) + end


def _forms(route: str, method: str, path: str, *, most: int = 99) -> Iterator[Request]:
    """Forms that cost the most to take apart; the worst of them first.

    :param most: how many of them.
    """
    full, separate = 8 * MIB, "multipart/form-data; boundary=b"
    part = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    named = b'--b\r\nContent-Disposition: form-data; name="a"' + b";a=b" * 200_000 + b"\r\n\r\n1\r\n--b--\r\n"
    nested = b"".join(b"--b%d\r\nContent-Type: multipart/mixed; boundary=b%d\r\n\r\n" % (n, n + 1) for n in range(9999))
    bodies = {
        "escapes": (FORM, _filled(b"queue_name=", b"%41", b"", full)),
        "parts": (separate, _filled(b"", part, b"--b--\r\n", full)),
        "fields": (FORM, _filled(b"", b"a=1&", b"a=1", full)),
        "parameters": (separate, named),
        "nested": ("multipart/form-data; boundary=b0", nested),
        "fields of the largest form": (FORM, _filled(b"", b"a=1&", b"a=1", 64 << 10)),
        "parts of the largest form": (separate, _filled(b"", part, b"--b--\r\n", 64 << 10)),
    }
    for name, (kind, body) in [*bodies.items()][:most]:
        yield Request(route, method, f"form, {name}", path, kind, body)


def _documents() -> dict[str, bytes]:
    """JSON that costs the most to take apart, each 8 MiB."""
    full = 8 * MIB
    return {
        "empty objects": _filled(b'{"messages":[', b"{},", b"{}]}", full),
        "beside": _filled(b'{"messages":[],"x":[', b"{},", b"{}]}", full),
        "deep": b"[" * full,
        "deep and whole": b'{"messages":' + b"[" * 4_000_000 + b"]" * 4_000_000 + b"}",
        "names": b'{"messages":[{' + b",".join(b'"%d":1' % n for n in range(700_000)) + b"}]}",
        "same names": _filled(b'{"messages":[{', b'"a":1,', b'"a":1}]}', full),
        "numbers": _filled(b'{"messages":[', b"1e9,", b"1]}", full),
        "messages": json.dumps({"messages": [{"body": "x" * 700, "key": f"k{n}"} for n in range(10_000)]}).encode(),
        "escapes": _filled(b'{"messages":[{"body":"', b"\\u003a", b'"}]}', full),
    }


def _heads(queue: str) -> Iterator[Request]:
    """Heads that cost the most to take apart: all but two of them before the caller is known."""
    ask, full = partial(Request, "queue", "GET", by_anybody=True), 30_000
    refused = "".join(f"{kind};q=0," for kind in ("text/event-stream", NDJSON, ARROW, "application/problem+json"))
    yield ask("Accept", queue, accept=_padded(refused, ",", full))
    yield ask("Connection", queue, fields={"Connection": _padded("", "a,", full)})
    yield ask("Authorization", queue, fields={"Authorization": _padded("", "a b;", full)})
    yield Request("queue", "GET", "If-None-Match", queue, fields={"If-None-Match": _padded("", 'W/"0,', full)})
    yield ask("broken escapes in the path", _padded(f"{queue}/", "%", 15_000))
    yield ask("broken escapes", _padded(f"{queue}?a=", "%", 15_000))
    yield ask("escapes", _padded(f"{queue}?a=", "%41", 15_000))
    yield Request("queue", "GET", "cursor", _padded(f"{queue}?cursor={'0' * 32}", "~1-200." + "0" * 31, 15_000))


def _padded(begin: str, piece: str, size: int) -> str:
    return begin + piece * ((size - len(begin)) // len(piece))


def _arrow(table: pa.Table, rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _tables() -> Iterator[tuple[str, bytes]]:
    """Batches as Arrow that cost the most to take apart."""
    yield "empty rows", _arrow(pa.table({"body": pa.array([b""] * 1_900_000, pa.binary())}), 10_000_000)
    yield "tiny batches", _arrow(pa.table({"body": pa.array([b"x"] * 30_000, pa.binary())}), 1)
    wide = pa.table({f"c{n}": pa.array([b"x"], pa.binary()) for n in range(30_000)})
    yield "wide", _arrow(wide, 1)
    keyed = {"body": [b"x" * 700] * 10_000, "key": [f"k{n}" for n in range(10_000)], "ttl": [0] * 10_000}
    yield "wrong rows", _arrow(pa.table(keyed), 10_000)


def _lease_requests(app: str, receipts: Sequence[str]) -> Iterator[Request]:
    """Settling, appending and receiving as much as one request may; and looking at what is held."""
    groups = f"{app}/{QUEUE}/leases"
    group, full = f"{groups}/{GROUP}", 8 * MIB

    def step(name: str, body: bytes | dict[str, Any], queue: str = QUEUE) -> Request:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Request("leases", "POST", name, f"{app}/{queue}/leases/{GROUP}", JSON, raw)

    yield from (step(f"JSON, {name}", body) for name, body in _documents().items())
    yield step("receipts", _filled(b'{"acknowledge":[', b'"' + b"A" * 60 + b'",', b'""]}', full))
    yield step("one large receipt", _filled(b'{"acknowledge":["', b"A", b'"]}', full))
    yield step("objects", _filled(b'{"release":[', b'{"receipt":""},', b"{}]}", full))
    yield step("unknown members", b"{" + b",".join(b'"%d":1' % n for n in range(150_000)) + b"}")
    yield step("extensions", {"extend": [{"receipt": receipt, "visibility": 43_200} for receipt in receipts]})
    yield step("extensions of all", {"receiver": "all", "extend": {"receiver": "all", "visibility": 43_200}})
    messages = [{"body": "x" * 700, "key": f"k{n}"} for n in range(1000)]
    yield step("messages", {"append": [{"queue": f"q{number:03d}", "messages": messages} for number in range(10)]})
    receive = {"max": 1000, "visibility": 0}
    yield step("receive", {"receive": receive})
    yield step("an attempt", {"attempt": "same", "receive": receive})
    yield step("receive large", {"receive": receive}, LARGE_QUEUE)
    yield step("receive escapes", {"receive": receive}, ESCAPED_QUEUE)
    yield step("receive of a closed key", {"receive": receive}, KEYED_QUEUE)
    yield step("wait", {"receive": {"wait": 0.5}}, KEYED_QUEUE)
    yield Request("leases", "GET", "counts", group)
    yield Request("leases", "GET", "leases", f"{group}?leased=true")
    yield Request("leases", "PUT", "JSON, large", group, JSON, _documents()["empty objects"])
    yield Request("leases", "PUT", "JSON", group, JSON, _filled(b"{", b'"a":1,', b'"a":1}', 64 << 10))
    yield Request("leases", "DELETE", "absent", f"{groups}/absent")
    yield Request("lease_reset", "POST", "JSON", f"{group}/reset", JSON, _filled(b"{", b'"a":1,', b'"a":1}', 64 << 10))
    yield Request("lease_reset", "POST", "preview", f"{group}/reset", JSON, b'{"to":"end","preview":true}')
    yield Request("redrive", "POST", "JSON", f"{group}/redrive", JSON, _filled(b"{", b'"a":1,', b'"a":1}', 64 << 10))
    yield from (Request("redrive", method, "none", f"{group}/redrive") for method in ("GET", "DELETE"))
    yield Request("lease_groups", "GET", "list", groups)


def requests_of(ids: Sequence[str], escaped: Sequence[str], receipts: Sequence[str]) -> list[Request]:
    """At least one request for every operation there is.

    :param ids: of large messages in the first partition.
    :param escaped: of those that are larger as JSON.
    :param receipts: of leases that do not end.
    """
    app, queue = f"/v1/{ATTACKER}", f"/v1/{ATTACKER}/{QUEUE}"
    offsets, large = f"{queue}/offsets/group", f"{app}/{LARGE_QUEUE}"
    every, same = ",".join(ids), ",".join([ids[0]] * 100)
    names = ",".join(f"q{number:03d}" for number in range(100))
    documents = _documents()
    lists = [("list", "?details=true&limit=1000000000"), ("mine", "?mine=true&details=true&limit=1000000000")]
    lists += [("arrivals", "?arrivals=true"), ("several", f"?queues={names}&partitions=all")]
    pages = [("page", "?partitions=all&limit=1000"), ("backwards", "?partitions=all&limit=1000&order=descending")]
    pages += [("information", "?info=true"), ("spans", "?survey=true&partitions=all&count=10000000&every=1000")]
    pages += [("parameters", "?" + "&".join(f"a{n}=%41" for n in range(3000)))]
    wanted = [Request("application", "GET", name, app + query) for name, query in lists]
    wanted += [Request("queue", "GET", name, queue + query) for name, query in pages]
    wanted += [
        Request("queue", "GET", "large", f"{large}?limit=1000"),
        Request("queue", "GET", "escapes in bodies", f"{app}/{ESCAPED_QUEUE}"),
        Request("queue", "GET", "escapes in bodies, a large page", f"{app}/{ESCAPED_QUEUE}?limit=1000"),
        Request("queue", "GET", "escapes in bodies as lines", f"{app}/{ESCAPED_QUEUE}", accept=NDJSON),
        Request("application", "GET", "escapes in bodies", f"{app}?queues={ESCAPED_QUEUE},{LARGE_QUEUE}"),
        Request("messages", "GET", "escapes in bodies", f"{app}/{ESCAPED_QUEUE}/" + ",".join(escaped)),
        Request("queue", "GET", "lines", queue + "?partitions=all", accept=NDJSON),
        Request("queue", "GET", "Arrow", queue + "?partitions=all", accept=ARROW),
        Request("queue", "GET", "events", queue + "?partitions=all&since=0", accept="text/event-stream", endless=True),
        Request("queue", "GET", "large events", f"{large}?since=0", accept="text/event-stream", endless=True),
        Request("queue", "GET", "large lines", f"{large}?follow=true", accept=NDJSON, endless=True),
        Request("queue", "POST", "message", queue, "text/plain", b"x" * MIB),
        *(Request("queue", "POST", f"JSON, {name}", queue, JSON, body) for name, body in documents.items()),
        *(Request("queue", "POST", f"Arrow, {name}", queue + "?batch=true", ARROW, body) for name, body in _tables()),
        *_heads(queue),
        *_lease_requests(app, receipts),
        *_forms("application", "POST", app),
        *_forms("queue", "PUT", queue, most=2),
        *_forms("tokens", "POST", f"/tokens/{ATTACKER}", most=2),
        Request("queue", "DELETE", "absent", f"{app}/absent"),
        Request("messages", "GET", "all different", f"{large}/{every}"),
        Request("messages", "GET", "all the same", f"{large}/{same}"),
        Request("messages", "PUT", "one body for all", f"{large}/{every}", "text/plain", b"x" * (8 * MIB // 100)),
        Request("messages", "DELETE", "absent", f"{queue}/" + ",".join(f"{n}:{ids[0]}" for n in range(2, 101))),
        Request("purge", "DELETE", "absent", f"{app}/absent/messages"),
        *(Request("task", method, "none", f"{queue}/tasks/purge") for method in ("GET", "DELETE")),
        Request("tasks", "GET", "list", f"{queue}/tasks"),
        Request("groups", "GET", "list", f"{queue}/offsets"),
        Request("offsets", "GET", "one", offsets),
        Request("offsets", "DELETE", "one", offsets),
        Request("offsets", "PUT", "JSON, large", offsets, JSON, documents["empty objects"]),
        Request("offsets", "PUT", "JSON", offsets, JSON, _filled(b'{"offsets":[', b"{},", b"{}]}", 64 << 10)),
    ]
    for route, method in ROUTES.methods():
        if not any((request.route, request.method) == (route.name, method) for request in wanted):
            body = b"x" * (8 * MIB) if method in ("POST", "PUT", "PATCH") else b""
            wanted.append(Request(route.name, method, "own page", _own_page(route, method), "text/plain", body))
    return wanted


def _own_page(route: Route, method: str) -> str:
    assert "{" not in route.pattern, f"nothing is asked of {method} {route.pattern}"
    return route.pattern


class Costs:
    """What a process has of the machine's memory, MiB."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    def _status(self, name: str) -> float:
        found = re.search(rf"^{name}:\s+(\d+)", (self._folder / "status").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1024

    @property
    def now(self) -> float:
        return self._status("VmRSS")

    @property
    def peak(self) -> float:
        """Since the last :meth:`forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        (self._folder / "clear_refs").write_text("5")


@dataclass
class Bystander:
    """Another application's client, and a monitor that looks at the heartbeat: both have done nothing wrong."""

    url: str
    took: list[float] = field(default_factory=list)
    beats: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.update(authorization(APPLICATIONS[OTHER][0]))
        self._heart = requests.Session()
        self._heart.trust_env = False

    def close(self) -> None:
        self._session.close()
        self._heart.close()

    def step(self) -> None:
        """Append, read it, and fetch it by its id."""
        path = f"{self.url}/v1/{OTHER}/calm"
        made = self._ask(self._session, self.took, "POST", path, data=b"calm", headers={"Content-Type": "text/plain"})
        if made.status_code == 201:
            key = made.json()["messages"][0]["key"]
            self._ask(self._session, self.took, "GET", f"{path}?since={key}&limit=10")
            self._ask(self._session, self.took, "GET", f"{path}/{key}")

    def beat(self) -> None:
        """The heartbeat, twenty times a second."""
        self._ask(self._heart, self.beats, "GET", self.url + "/__heartbeat__")
        time.sleep(0.05)

    def _ask(
        self, session: requests.Session, took: list[float], method: str, url: str, **given: Any
    ) -> requests.Response:
        began = time.monotonic()
        answer = session.request(method, url, timeout=PATIENCE_SECONDS, **given)
        took.append(time.monotonic() - began)
        if not answer.ok:
            self.refused.append(f"{method} {url}: {answer.status_code} {answer.text[:200]}")
        return answer


class Stage:
    """A server with queues that make requests costly, and its callers."""

    def __init__(self, running: RunningServer) -> None:
        self.running = running
        self.costs = Costs(running.pid)
        self.start_mib = self.costs.now
        """Of the server before anything was asked."""
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers.update(authorization(APPLICATIONS[ATTACKER][0]))
        self._fill()
        ids, escaped = self._large(LARGE_QUEUE, LARGE, b"x"), self._large(ESCAPED_QUEUE, ESCAPED, b"\x01")
        self.requests = {str(request): request for request in requests_of(ids, escaped, self._leased())}
        key = authorization(APPLICATIONS[ATTACKER][0])["Authorization"]
        token = self._made("POST", f"/tokens/{ATTACKER}", data={"principal": USER}).json()["token"]
        self.callers = {"stranger": "", "application": key, "user": f"Bearer {token}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def _made(self, method: str, path: str, **given: Any) -> requests.Response:
        answer = self._session.request(method, self.running.url + path, timeout=PATIENCE_SECONDS, **given)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:200]}"
        return answer

    def _fill(self) -> None:
        """Many partitions, queues and small messages."""
        app, queue = f"/v1/{ATTACKER}", f"/v1/{ATTACKER}/{QUEUE}"
        named = {"type": "public", "principles": f"{USER},app:{ATTACKER}", "partitions": PARTITIONS}
        for name in (QUEUE, LARGE_QUEUE):
            self._made("POST", app, data={"queue_name": name, **named})
        for name in (ESCAPED_QUEUE, *[f"q{number:03d}" for number in range(QUEUES)]):
            self._made("POST", app, data={"queue_name": name, "type": "public"})
        body = json.dumps({"messages": [{"body": "x" * 100} for _ in range(SMALL)]})
        self._made("POST", queue, data=body, headers={"Content-Type": JSON})
        with requests.Session() as other:
            other.headers.update(authorization(APPLICATIONS[OTHER][0]))
            other.post(f"{self.running.url}/v1/{OTHER}", data={"queue_name": "calm"}, timeout=PATIENCE_SECONDS)

    def _large(self, queue: str, count: int, character: bytes) -> list[str]:
        """Messages of 1 MiB; their ids."""
        sent = {"data": character * MIB, "headers": {"X-Partition": "1", "Content-Type": "text/plain"}}
        path = f"/v1/{ATTACKER}/{queue}"
        return [self._made("POST", path, **sent).json()["messages"][0]["key"] for _ in range(count)]

    def _leased(self) -> list[str]:
        """Receipts of leases that do not end while this server runs; and a key that is closed for as long."""
        app = f"/v1/{ATTACKER}"
        body = {"messages": [{"body": "x", "key": "k"} for _ in range(KEYED)]}
        self._made("POST", app, data={"queue_name": KEYED_QUEUE, "type": "public"})
        self._made("POST", f"{app}/{KEYED_QUEUE}", json=body)
        ordered = f"{app}/{KEYED_QUEUE}/leases/{GROUP}"
        self._made("PUT", ordered, json={"order": "key"})
        self._made("POST", ordered, json={"receive": {"visibility": 43_200}})
        wanted = {"receive": {"max": 1000, "visibility": 43_200}}
        answer = self._made("POST", f"{app}/{QUEUE}/leases/{GROUP}", json=wanted).json()
        return [message["receipt"] for message in answer["messages"]]

    def attacks(self, route: str, method: str, chance: random.Random | None = None) -> Iterator[tuple[Request, str]]:
        """What each caller asks of an operation: all that is bad, where the answer is no refusal for its head alone.

        :param chance: draws :data:`DRAWN` of the requests, and one caller for each that all of them may ask.
        """
        asked: dict[str, list[tuple[Request, str]]] = {}
        for request, caller in self._attacks(route, method):
            asked.setdefault(str(request), []).append((request, caller))
        drawn = asked.keys() if chance is None or len(asked) <= DRAWN else {*chance.sample([*asked], DRAWN)}
        for same in [found for name, found in asked.items() if name in drawn]:
            yield from (
                [chance.choice(same)] if chance and (method not in _WRITES or (route, method) == RECEIVE) else same
            )

    def _attacks(self, route: str, method: str) -> Iterator[tuple[Request, str]]:
        every = [request for request in self.requests.values() if (request.route, request.method) == (route, method)]
        for caller in self.callers:
            mine = [request for request in every if caller == "stranger" or not request.by_anybody]
            allowed = {"application", "user"} if (route, method) == RECEIVE else {"application"}
            refused_at_once = method in _WRITES and caller not in allowed
            yield from ((request, caller) for request in mine[: 1 if refused_at_once else None])

    def attack(self, request: Request, caller: str) -> list[int]:
        """As :func:`attack`, by one of the callers."""
        return attack(self.running.port, request, self.callers[caller])

    @contextmanager
    def uploads(self, request: Request, caller: str) -> Iterator[None]:
        """:data:`AT_ONCE` uploads of which the last byte does not come while the block runs."""
        with ExitStack() as opened, ThreadPoolExecutor(AT_ONCE) as pool:

            def begin(_: int) -> None:
                connection = opened.enter_context(_connected(self.running.port))
                with suppress(ConnectionError):  # refused before all of it was sent
                    connection.sendall(request.head(self.callers[caller], announced=len(request.body) + 1))
                    connection.sendall(request.body)

            list(pool.map(begin, range(AT_ONCE)))
            yield

    @contextmanager
    def readers(self, request: Request, count: int) -> Iterator[None]:
        """As many readers, of all callers in turn, that take nothing of their answers while the block runs."""
        with ExitStack() as opened:
            for _, credential in zip(range(count), cycle(self.callers.values()), strict=False):
                connection = opened.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.settimeout(PATIENCE_SECONDS)
                connection.connect(("127.0.0.1", self.running.port))
                connection.sendall(request.head(credential, announced=0))
            yield

    @contextmanager
    def bystander(self) -> Iterator[Bystander]:
        """A client of another application goes on while the block runs, and after it for a few requests."""
        other = Bystander(self.running.url)
        try:
            with busy(other.step, other.beat):
                wait_for_more(lambda: len(other.took), 3)
                yield other
                wait_for_more(lambda: min(len(other.took), len(other.beats)), 3, seconds=PATIENCE_SECONDS)
        finally:
            other.close()


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def attack(port: int, request: Request, credential: str) -> list[int]:
    """Send a request :data:`AT_ONCE` times at once; the statuses of the answers, 0 where none came."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda _: _sent(port, request, credential), range(AT_ONCE)))


def _sent(port: int, request: Request, credential: str) -> int:
    with _connected(port) as connection:
        with suppress(ConnectionError):  # refused before all of it was sent: the answer says so
            connection.sendall(request.head(credential, announced=len(request.body)))
            connection.sendall(request.body)
        return _status(connection, whole=not request.endless)


def _status(connection: socket.socket, *, whole: bool) -> int:
    """The status of an answer, of which all is taken, or the beginning."""
    begun = b""
    with suppress(ConnectionError):  # the part that arrived has the status
        while (whole or len(begun) < _STATUS_BYTES) and (piece := connection.recv(1 << 20)):
            begun = (begun + piece)[:_STATUS_BYTES]
    found = re.match(rb"HTTP/1\.1 (\d+)", begun)
    return int(found[1]) if found else 0
