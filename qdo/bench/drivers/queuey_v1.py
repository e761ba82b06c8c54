"""Queuey by its own protocol: leases, pops, pages with a long poll, and streams."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from email.message import Message as HeaderNames
from functools import cached_property, partial
from typing import ClassVar
from urllib.parse import quote

import msgspec
import requests

from qdo.bench.clock import MILLISECOND, SECOND
from qdo.bench.drivers import (
    Consumer,
    DeadLetterDriver,
    Delivered,
    MeasuredSystem,
    OutgoingMessage,
    Producer,
    StepConsumer,
)
from qdo.bench.drivers.http1 import HttpAnswer, HttpConnection
from qdo.client import Client
from qdo.client.endpoint import Named as NamedServer
from qdo.client.refusals import error_from, may_pass
from qdo.client.steps import Reply
from queuey.errors import ConfigurationError, OutcomeUnknown, QueueNotFound, QueueyError

ANSWER_SECONDS = 15.0
"""Beyond what the server may hold an answer back."""
GIVE_UP_SECONDS = 30.0
"""A request that had no good answer for this long is not repeated any more."""
FIRST_PAUSE_MS, LAST_PAUSE_MS = 10, 500
TTL_SECONDS = 86_400


class _Leased(msgspec.Struct):
    body: str
    receipt: str | None = None
    encoding: str | None = None


class _Settled(msgspec.Struct):
    stale: list[str] = []


class _LeaseAnswer(msgspec.Struct):
    messages: list[_Leased] = []
    settled: _Settled = msgspec.field(default_factory=_Settled)


class _PageAnswer(msgspec.Struct):
    messages: list[_Leased] = []


_lease_answer = msgspec.json.Decoder(_LeaseAnswer).decode
_page_answer = msgspec.json.Decoder(_PageAnswer).decode


class QueueyDriver(DeadLetterDriver):
    """A Queuey server."""

    modes = frozenset(["receive", "pop", "read", "follow"])
    delays = True
    keys = True
    option_names: ClassVar[Mapping[str, str]] = {
        "url": "the server; default QUEUEY_URL, or http://127.0.0.1:5000",
        "application": "owner of the queues; default QUEUEY_APPLICATION, or demo",
        "key": "application key; better set QUEUEY_KEY",
    }

    def __init__(self, target: MeasuredSystem) -> None:
        super().__init__(target)
        options = target.options
        self.server = NamedServer.of(options.get("url"), options.get("application"), options.get("key"), None)
        if "url" in options and self.server.key is None:
            self.server = self.server._replace(key=NamedServer.of(None, None, None, None).key)
        if target.workload.keys and target.workload.queuey.group.get("exact") is False:
            raise ConfigurationError("keys: a weak group keeps no order")
        identity = f"Authorization: Application {self.server.key}\r\n" if self.server.key else ""
        self.identity = identity.encode()
        self._of_thread = threading.local()

    def client(self) -> Client:
        return Client(self.server.url, self.server.application, self.server.key)

    def connection(self, wait: float = 0.0) -> HttpConnection:
        return HttpConnection(self.server.url, ANSWER_SECONDS + wait)

    def receiving_connection(self) -> HttpConnection:
        """Of this thread, if it may serve several consumers: a million of them have no million connections."""
        workload = self.target.workload
        wait = workload.queuey.receiving.wait
        if workload.consumers <= workload.queuey.receivers:
            return self.connection(wait)
        if not hasattr(self._of_thread, "connection"):
            self._of_thread.connection = self.connection(wait)
        found: HttpConnection = self._of_thread.connection
        return found

    def path(self, topic: int) -> str:
        return f"/v1/{quote(self.server.application, safe='')}/{self.target.queue(topic)}"

    def prepare(self) -> None:
        workload = self.target.workload
        leases = None
        if workload.queuey.receiving.mode in ("receive", "pop"):
            leases = {**({"order": "key"} if workload.keys else {}), **workload.queuey.group}
        with self.client() as client:
            for topic in range(workload.topics):
                client.create_queue(
                    self.target.queue(topic),
                    partitions=workload.partitions_per_topic,
                    consistency=workload.queuey.consistency,
                    leases=leases or None,
                )

    def remove(self) -> None:
        with self.client() as client:
            for topic in range(self.target.workload.topics):
                client.delete_queue(self.target.queue(topic))
                if self.max_failures is not None:
                    # There is none before the first letter.
                    with suppress(QueueNotFound):
                        client.delete_queue(f"{self.target.queue(topic)}-dead")

    def versions(self) -> Mapping[str, str]:
        found: dict[str, object] = {}
        # A proxy that loses answers may lose this one.
        with suppress(requests.RequestException):
            answer = requests.get(f"{self.server.url}/__version__", timeout=ANSWER_SECONDS)
            found = answer.json() if answer.ok else {}
        return {"queuey": str(found.get("version", "unknown")), "url": self.server.url}

    def producer(self) -> Producer:
        return _QueueyProducer(self)

    def consumer(self, topic: int, subscription: int) -> Consumer:
        mode = self.target.workload.queuey.receiving.mode
        if mode == "read":
            return _PageConsumer(self, topic)
        if mode == "follow":
            return _FollowConsumer(self, topic)
        return _LeaseConsumer(self, self.path(topic), f"bench-{subscription}")

    def letters(self, topic: int) -> Consumer:
        return _LeaseConsumer(self, f"{self.path(topic)}-dead", "bench-letters")

    def repeated(self, ask: Callable[[], HttpAnswer]) -> HttpAnswer:
        """The answer to a request that may be repeated: it does nothing twice.

        :raises QueueyError: no attempt had a good answer; OutcomeUnknown if one may have been carried out.
        """
        clock = self.target.clock
        give_up, pause, unknown = clock.now() + int(GIVE_UP_SECONDS * SECOND), FIRST_PAUSE_MS, False
        while True:
            try:
                answer = ask()
                if answer.status < 300:
                    return answer
                error = _refusal(answer, self.server.url)
            except QueueyError as failed:
                error = failed
            unknown = unknown or isinstance(error, OutcomeUnknown)
            now = clock.now()
            if not may_pass(error) or now >= give_up:
                raise OutcomeUnknown(str(error)) if unknown else error
            clock.sleep_until(now + pause * MILLISECOND)
            pause = min(pause * 2, LAST_PAUSE_MS)


def _refusal(answer: HttpAnswer, url: str) -> QueueyError:
    headers = HeaderNames()
    for name, value in answer.headers.items():
        headers[name.decode()] = value.decode("latin-1")
    return error_from(Reply(answer.status, "", dict(headers), answer.body, url))


class _QueueyProducer(Producer):
    def __init__(self, driver: QueueyDriver) -> None:
        self._driver = driver
        self._connection = driver.connection()

    def send(self, topic: int, messages: Sequence[OutgoingMessage]) -> None:
        driver, once = self._driver, uuid.uuid4().hex
        if len(messages) == 1:
            (one,) = messages
            kind, body = "text/plain", one.body
            more = f"X-Key: {one.key}\r\n" if one.key else ""
            more += f"X-Delay: {one.delay:.3f}\r\n" if one.delay else ""
        else:
            kind, more = "application/vnd.queuey.batch+json", ""
            body = msgspec.json.encode({"messages": [_entry(one) for one in messages]})
        ttl = f"X-TTL: {TTL_SECONDS}\r\n" if len(messages) == 1 else ""
        head = f"Content-Type: {kind}\r\nIdempotency-Key: {once}\r\n{ttl}{more}".encode() + driver.identity
        driver.repeated(partial(self._connection.ask, b"POST", driver.path(topic).encode(), head, body))

    def close(self) -> None:
        self._connection.close()


def _entry(message: OutgoingMessage) -> dict[str, object]:
    entry: dict[str, object] = {"body": message.body.decode(), "ttl": TTL_SECONDS}
    if message.key:
        entry["key"] = message.key
    if message.delay:
        entry["delay"] = message.delay
    return entry


class _LeaseConsumer(StepConsumer):
    """Receives under leases, or pops."""

    def __init__(self, driver: QueueyDriver, path: str, group: str) -> None:
        own = driver.target.workload.queuey.receiving
        self._driver = driver
        self._path = f"{path}/leases/{group}".encode()
        self._head = b"Content-Type: application/json\r\n" + driver.identity
        self._asked: dict[str, object] = {"max": own.batch, "pop": own.mode == "pop"}
        if own.mode == "receive":
            self._asked["visibility"] = own.visibility

    @cached_property
    def _connection(self) -> HttpConnection:
        # Made with the first request, in the thread that serves this consumer.
        return self._driver.receiving_connection()

    def receive(self, wait: float) -> Sequence[Delivered]:
        answer = self._ask({"receive": {**self._asked, "wait": wait}})
        return [Delivered(one.body.encode(), one.receipt) for one in answer.messages]

    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        stale = {*self._ask({"acknowledge": tokens}).settled.stale}
        return [token not in stale for token in tokens]

    def fail(self, tokens: Sequence[object]) -> None:
        self._ask({"release": [{"receipt": token} for token in tokens]})

    def step(self, tokens: Sequence[object], topic: int, messages: Sequence[OutgoingMessage]) -> None:
        made = {"queue": self._driver.target.queue(topic), "messages": [_entry(one) for one in messages]}
        self._ask({"acknowledge": tokens, "append": [made]})

    def _ask(self, what: Mapping[str, object]) -> _LeaseAnswer:
        body = msgspec.json.encode({**what, "attempt": uuid.uuid4().hex})
        asked = partial(self._connection.ask, b"POST", self._path, self._head, body)
        return _lease_answer(self._driver.repeated(asked).body)

    def close(self) -> None:
        self._connection.close()


class _PageConsumer(Consumer):
    """Asks for the page behind the last one."""

    def __init__(self, driver: QueueyDriver, topic: int) -> None:
        self._driver = driver
        self._path = driver.path(topic)
        self._limit = min(driver.target.workload.queuey.receiving.batch, 100)
        self._cursor = ""

    @cached_property
    def _connection(self) -> HttpConnection:
        # Made with the first request, in the thread that serves this consumer.
        return self._driver.receiving_connection()

    def receive(self, wait: float) -> Sequence[Delivered]:
        where = f"cursor={quote(self._cursor, safe='')}" if self._cursor else "partitions=all"
        path = f"{self._path}?{where}&limit={self._limit}" + (f"&wait={max(1, round(wait))}" if wait else "")
        asked = partial(self._connection.ask, b"GET", path.encode(), self._driver.identity, b"")
        answer = self._driver.repeated(asked)
        self._cursor = answer.headers[b"queuey-cursor"].decode()
        return [Delivered(one.body.encode()) for one in _page_answer(answer.body).messages]

    def close(self) -> None:
        self._connection.close()


class _FollowConsumer(Consumer):
    """Follows the queue on a stream that a thread of its own reads."""

    def __init__(self, driver: QueueyDriver, topic: int) -> None:
        self._client = driver.client()
        self._pages: queue.Queue[Sequence[Delivered] | Exception] = queue.Queue(maxsize=64)
        self._closed = threading.Event()
        name = driver.target.queue(topic)
        self._thread = threading.Thread(target=self._follow, args=(name,), daemon=True)
        self._thread.start()

    def _follow(self, name: str) -> None:
        try:
            with closing(self._client.follow(name)) as pages:
                for page in pages:
                    self._put([Delivered(bytes(one.body)) for one in page.messages])
                    if self._closed.is_set():
                        return
        except Exception as error:  # noqa: BLE001 -- said where it is asked for
            self._put(error)

    def _put(self, what: Sequence[Delivered] | Exception) -> None:
        while not self._closed.is_set():
            with suppress(queue.Full):
                self._pages.put(what, timeout=0.2)
                return

    def receive(self, wait: float) -> Sequence[Delivered]:
        try:
            found = self._pages.get(timeout=max(wait, 0.01))
        except queue.Empty:
            return []
        if isinstance(found, Exception):
            raise ConfigurationError(f"the stream ended: {found}") from found
        return found

    def close(self) -> None:
        """The thread ends with the next page, or with the process."""
        self._closed.set()
