"""The event-loop server without a network: calls made in this process, many at once, as fast as they are answered."""

from __future__ import annotations

import asyncio
import cProfile
import io
import json
import pstats
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from random import getrandbits
from time import perf_counter, process_time, thread_time
from typing import NamedTuple

import uvloop
from botocore.credentials import Credentials

from queuey.future import run
from queuey.security.access_keys import account_of
from queuey.server.collector import look_seldom
from queuey.server.connection import Connection
from queuey.server.faces import open_pipeline
from queuey.server.loop import LoopServer
from queuey.service import Service
from queuey.settings import load_settings
from tests.bench import leases, sqs
from tests.bench.drivers import append_batch, append_one, read_page
from tests.bench.measure import BenchFailed
from tests.bench.plan import CONNECTIONS, PARTITIONS, Plan
from tests.bench.servers import APPLICATION, KEY
from tests.bench.store import fill, make_queue, open_store

_QUEUE = "inside"
_TOP = 30
_LENGTH = b"content-length: "
_FILLED = 1000
_MOST_A_SECOND = {1: 20_000, 10: 80_000, 100: 200_000}
"""More messages than one second hands out, by the number in a request."""

Next = Callable[[bytes], bytes]
"""The next request of a client, by the answer to the last."""


class Scene(NamedTuple):
    """What clients ask of a queue."""

    clients: Callable[[Service], Callable[[], Next]]
    """Of a service, makes what makes a client; its first request is made of no answer."""
    partitions: int = PARTITIONS
    filled_a_second: int = 0
    """Messages that the queue has for each second, beside a thousand."""
    settings: Mapping[str, Mapping[str, str]] = {}


def again(text: str) -> Callable[[Service], Callable[[], Next]]:
    """Clients that ask the same over and over."""
    request = text.encode()
    return lambda _: lambda: lambda answer: request


def _receiving(messages: int, *, apart: bool = False, attempts: bool = False) -> Scene:
    """:param attempts: each request names one, as those of our client do."""
    head = leases.receive_head(_QUEUE).encode()
    receive = b'"receive":{"max":%d}' % messages

    def client() -> Next:
        def following(answer: bytes) -> bytes:
            receipts = b",".join(_RECEIPT.findall(answer))
            settles = b'"acknowledge":[%b]' % receipts if receipts else b""
            members = [settles] if apart and settles else [settles, receive] if settles else [receive]
            if attempts:
                members.append(b'"attempt":"%032x"' % getrandbits(128))
            body = b"{%b}" % b",".join(members)
            return b"%b%d\r\n\r\n%b" % (head, len(body), body)

        return following

    return Scene(lambda _: client, 1, _MOST_A_SECOND[messages])


def _sending(messages: int) -> Scene:
    """Sends of SQS clients, each with a signature of its own."""

    def clients(service: Service) -> Callable[[], Next]:
        made = run(service.keys.new_access_key(APPLICATION, service.master_secrets))
        texts = sqs.sends(Credentials(made.id, made.secret), _URL, messages)
        requests = cycle([text.encode() for text in texts])
        return lambda: lambda answer: next(requests)

    return Scene(clients, 1)


def _deleting(messages: int) -> Scene:
    """Receives of SQS clients, each followed by the deletion of what has come. No signature is checked."""
    key = Credentials("x", "x")
    receive = sqs.signed(key, "ReceiveMessage", {"QueueUrl": _URL, "MaxNumberOfMessages": messages}).encode()
    action = "DeleteMessage" if messages == 1 else "DeleteMessageBatch"
    head = sqs.signed(key, action, {}).partition("Content-Length")[0]

    def following(answer: bytes) -> bytes:
        handles = [handle.decode() for handle in _HANDLE.findall(answer)]
        if not handles:
            return receive
        entries = [{"Id": str(at), "ReceiptHandle": handle} for at, handle in enumerate(handles)]
        named = {"ReceiptHandle": handles[0]} if messages == 1 else {"Entries": entries}
        body = json.dumps({"QueueUrl": _URL, **named})
        return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()

    return Scene(lambda _: lambda: following, 1, _MOST_A_SECOND[messages], {"sqs": {"auth": "open"}})


_URL = f"http://127.0.0.1/{account_of(APPLICATION)}/{_QUEUE}"
_HANDLE = re.compile(rb'"ReceiptHandle":"([^"]+)"')
_RECEIPT = re.compile(rb'"receipt":("[^"]+")')

CALLS: dict[str, Scene] = {
    "append": Scene(again(append_one(_QUEUE))),
    "batch": Scene(again(append_batch(_QUEUE))),
    "batch10": Scene(again(leases.append_some(_QUEUE, 10))),
    "read": Scene(again(read_page(_QUEUE, "0")), 1),
    "lease-apart": _receiving(1, apart=True),
    "lease-attempts": _receiving(1, apart=True, attempts=True),
    "lease": _receiving(1),
    "lease10": _receiving(10),
    "lease100": _receiving(100),
    "lease10-apart": _receiving(10, apart=True),
    "sqs-send": _sending(1),
    "sqs-send10": _sending(10),
    "sqs-delete": _deleting(1),
    "sqs-delete10": _deleting(10),
}


class Wire(asyncio.Transport):
    """A client that sends its next request as soon as it has the answer."""

    def __init__(self, server: LoopServer, following: Next) -> None:
        super().__init__()
        self._server = server
        self._next, self._answer, self._missing = following, b"", 0
        self._connection = Connection(server)
        self._connection.connection_made(self)
        self.answers = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever left over: the client takes all at once."""

    def begin(self) -> None:
        self._connection.data_received(self._next(self._answer))

    def pause_ends(self) -> None:
        """The server reads again from a client that it refused."""
        self._connection.go_on_after_pause()

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if self._missing:
            self._answer += data
            self._missing -= len(data)
        else:
            if not data.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
                raise BenchFailed(f"refused: {data[:500]!r}")
            self._answer = data
            end = data.index(b"\r\n\r\n") + 4
            begin = data.index(_LENGTH) + len(_LENGTH)
            self._missing = end + int(data[begin : data.index(b"\r", begin)]) - len(data)
        if not self._missing:
            self.answers += 1
            self._server.soon(self.begin)

    def resume_reading(self) -> None:
        """There is nothing to read."""

    def abort(self) -> None:
        self._connection.connection_lost(None)


def report(plan: Plan, name: str) -> Iterator[str]:
    """Lines of a report: time a call takes, and the functions that take it on the loop's thread."""
    folder, scene = plan.fresh("inside"), CALLS[name]
    with open_store(folder) as store:
        queue = make_queue(store, _QUEUE, scene.partitions)
        fill(store, [queue], _FILLED + round(scene.filled_a_second * (2 * plan.seconds + 1)))
    service = Service.open(load_settings(None, {}, {"server": {"data": str(folder)}, **scene.settings}))
    try:
        run(service.start(KEY))
        look_seldom()  # as the shipped server does
        found = uvloop.run(measured(service, scene.clients(service), plan.seconds))
        yield found.summary
        yield found.profile
    finally:
        service.close()


class Measured(NamedTuple):
    """What one call takes."""

    summary: str
    profile: str
    process_us: float
    """Of the processor's time, in all threads."""


async def measured(service: Service, client: Callable[[], Next], seconds: float) -> Measured:
    """Let many clients ask."""
    server = LoopServer(open_pipeline(service))
    server.open(asyncio.get_running_loop())
    wires = [Wire(server, client()) for _ in range(CONNECTIONS)]
    for wire in wires:
        wire.begin()
    await asyncio.sleep(0.5)
    answered, began = _answers(wires), (perf_counter(), thread_time(), process_time())
    await asyncio.sleep(seconds)
    calls = _answers(wires) - answered
    took = [(now - then) / calls * 1e6 for now, then in zip(_clocks(), began, strict=True)]
    profile = cProfile.Profile()
    profile.enable()
    await asyncio.sleep(seconds)
    profile.disable()
    for wire in wires:
        wire.abort()
    server.close()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(_TOP)
    summary = (
        f"{calls:,} calls, {CONNECTIONS} at once, {threading.active_count()} threads: "
        f"{took[0]:.1f} µs a call; of the processor {took[1]:.1f} µs on the loop, {took[2]:.1f} µs in all threads"
    )
    return Measured(summary, text.getvalue(), took[2])


def _answers(wires: list[Wire]) -> int:
    return sum(wire.answers for wire in wires)


def _clocks() -> tuple[float, float, float]:
    return perf_counter(), thread_time(), process_time()
