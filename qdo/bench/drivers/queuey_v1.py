"""Queuey by its own protocol: leases, pops, pages with a long poll, and streams."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from contextvars import ContextVar
from email.message import Message as HeaderNames
from functools import cached_property, partial
from typing import ClassVar
from urllib.parse import quote, urlencode

import msgspec
import requests

from qdo.bench.clock import MILLISECOND, SECOND
from qdo.bench.drivers import (
    Consumer,
    DeadLetterDriver,
    Delivered,
    LoopConsumer,
    LoopDriver,
    MeasuredSystem,
    OutgoingMessage,
    Producer,
    StepConsumer,
)
from qdo.bench.drivers.http1 import BlockingLine, HttpAnswer, HttpConnection, HttpLine, LoopLine
from qdo.bench.pace import Sleep, at_once, task_sleep, thread_sleep
from qdo.client import Client
from qdo.client.endpoint import Named as NamedServer
from qdo.client.refusals import error_from, may_pass
from qdo.client.steps import Reply
from qdo.client.wire import QueueFields, queue_fields
from queuey.errors import ConfigurationError, OutcomeUnknown, QueueNotFound, QueueyError

ANSWER_SECONDS = 15.0
"""Beyond what the server may hold an answer back."""
GIVE_UP_SECONDS = 30.0
"""A request that had no good answer for this long is not repeated any more."""
FIRST_PAUSE_MS, LAST_PAUSE_MS = 10, 500
TTL_SECONDS = 86_400
MAKERS = 16
"""Connections by which queues are made and removed."""
LOOK_SECONDS = 0.2
"""Seconds between two looks at the number of queues that are made."""


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


class QueueyDriver(DeadLetterDriver, LoopDriver):
    """A Queuey server."""

    modes = frozenset(["receive", "pop", "read", "follow"])
    loop_modes = frozenset(["receive", "pop"])
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
        self._application = f"/v1/{quote(self.server.application, safe='')}".encode()
        self._line_of_many: ContextVar[HttpLine] = ContextVar("line")
        """Of a thread or a task."""
        receiving = target.workload.queuey.receiving
        self.receive_fields: dict[str, object] = {"max": receiving.batch, "pop": receiving.mode == "pop"}
        if receiving.mode == "receive":
            self.receive_fields["visibility"] = receiving.visibility
        self.lease_head = b"Content-Type: application/json\r\n" + self.identity
        self.thread_sleep, self.task_sleep = thread_sleep(target.clock), task_sleep(target.clock)

    def client(self) -> Client:
        return Client(self.server.url, self.server.application, self.server.key)

    def url(self) -> str:
        """Of the server to which the next connection goes."""
        return self.server.url

    def connection(self, wait: float = 0.0) -> HttpConnection:
        return HttpConnection(self.url(), ANSWER_SECONDS + wait)

    def blocking_line(self) -> HttpLine:
        """For a receiver of a thread."""
        return BlockingLine(self.connection(self.target.workload.queuey.receiving.wait))

    def loop_line(self) -> HttpLine:
        """For a receiver of an event loop."""
        return LoopLine(self.url(), ANSWER_SECONDS + self.target.workload.queuey.receiving.wait)

    def receiving_line(self, made: Callable[[], HttpLine]) -> HttpLine:
        """Of this thread or task, if it may serve several consumers: a million of them have no million connections."""
        workload = self.target.workload
        if workload.consumers <= workload.queuey.receivers:
            return made()
        found = self._line_of_many.get(None)
        if found is None:
            self._line_of_many.set(found := made())
        return found

    def path(self, topic: int) -> str:
        return f"{self._application.decode()}/{self.target.queue(topic)}"

    def prepare(self) -> None:
        workload = self.target.workload
        settings: QueueFields = {"partitions": workload.partitions_per_topic}
        if workload.queuey.consistency:
            settings["consistency"] = workload.queuey.consistency
        leases = {**({"order": "key"} if workload.keys else {}), **workload.queuey.group}
        if workload.shares and leases:
            settings["leases"] = leases
        self._with_all(partial(self._create, queue_fields(settings)), self.note)

    def remove(self) -> None:
        self._with_all(self._delete, lambda removed: None)

    def _create(self, fields: Mapping[str, str], line: HttpConnection, topic: int) -> None:
        head = b"Content-Type: application/x-www-form-urlencoded\r\n" + self.identity
        body = urlencode({"queue_name": self.target.queue(topic), **fields}).encode()
        self.repeated(partial(line.ask, b"POST", self._application, head, body))

    def _delete(self, line: HttpConnection, topic: int) -> None:
        name = self.path(topic)
        # It may be gone, by an attempt whose answer was lost; and there are no dead letters before the first one.
        for path in (name, f"{name}-dead")[: 1 + (self.max_failures is not None)]:
            with suppress(QueueNotFound):
                self.repeated(partial(line.ask, b"DELETE", path.encode(), self.identity, b""))

    def _with_all(self, work: Callable[[HttpConnection, int], None], note: Callable[[int], None]) -> None:
        """Do something for each queue, over several connections: the server carries out what comes together in one commit.

        :raises QueueyError: of the first that failed. What was not begun is left.
        """
        topics = self.target.workload.topics
        lines = min(MAKERS, topics)
        done, failed = [0] * lines, threading.Event()

        def some(at: int) -> None:
            # Several servers know a new queue at once if all come from one of them.
            with closing(HttpConnection(self.server.url, ANSWER_SECONDS)) as line:
                line.open()  # a server that is away is not waited for
                for topic in range(at, topics, lines):
                    if failed.is_set():
                        return
                    try:
                        work(line, topic)
                    except BaseException:
                        failed.set()
                        raise
                    done[at] += 1

        with ThreadPoolExecutor(lines) as threads:
            working = [threads.submit(some, at) for at in range(lines)]
            try:
                while wait(working, LOOK_SECONDS).not_done:
                    note(sum(done))
            except BaseException:
                failed.set()
                raise
            for one in working:
                one.result()

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
        return _LeaseConsumer(self, f"{self.path(topic)}/leases/bench-{subscription}")

    def loop_consumer(self, topic: int, subscription: int) -> LoopConsumer:
        path = f"{self.path(topic)}/leases/bench-{subscription}"
        return _LeaseCalls(self, path, self.loop_line, self.task_sleep)

    def letters(self, topic: int) -> Consumer:
        return _LeaseConsumer(self, f"{self.path(topic)}-dead/leases/bench-letters")

    def repeated(self, ask: Callable[[], HttpAnswer]) -> HttpAnswer:
        """:meth:`repeated_by` of a thread."""

        async def asked() -> HttpAnswer:
            return ask()

        return at_once(self.repeated_by(asked, self.thread_sleep))

    async def repeated_by(self, ask: Callable[[], Awaitable[HttpAnswer]], sleep: Sleep) -> HttpAnswer:
        """The answer to a request that may be repeated: it does nothing twice.

        :raises QueueyError: no attempt had a good answer; OutcomeUnknown if one may have been carried out.
        """
        clock = self.target.clock
        give_up, pause, unknown = clock.now() + int(GIVE_UP_SECONDS * SECOND), FIRST_PAUSE_MS, False
        while True:
            try:
                answer = await ask()
                if answer.status < 300:
                    return answer
                error = _refusal(answer, self.server.url)
            except QueueyError as failed:
                error = failed
            unknown = unknown or isinstance(error, OutcomeUnknown)
            now = clock.now()
            if not may_pass(error) or now >= give_up:
                raise OutcomeUnknown(str(error)) if unknown else error
            await sleep(now + pause * MILLISECOND)
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
            more += f"X-Delay: {one.delay:.7f}\r\n" if one.delay else ""  # ticks of the server: it must not round down
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


class _LeaseCalls(LoopConsumer):
    """Receives under leases, or pops: by the same requests in a thread and in an event loop."""

    __slots__ = ("_driver", "_line", "_made", "_path", "_sleep")

    def __init__(self, driver: QueueyDriver, path: str, made: Callable[[], HttpLine], sleep: Sleep) -> None:
        """:param path: of the lease group.
        :param made: opens the line of this consumer, with the first request, in the thread or task that it is of.
        """
        self._driver, self._path, self._made, self._sleep = driver, path.encode(), made, sleep
        self._line: HttpLine | None = None

    async def receive(self, wait: float) -> Sequence[Delivered]:
        answer = await self._ask({"receive": {**self._driver.receive_fields, "wait": wait}})
        return [Delivered(one.body.encode(), one.receipt) for one in answer.messages]

    async def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        stale = {*(await self._ask({"acknowledge": tokens})).settled.stale}
        return [token not in stale for token in tokens]

    async def fail(self, tokens: Sequence[object]) -> None:
        await self._ask({"release": [{"receipt": token} for token in tokens]})

    async def step(self, tokens: Sequence[object], topic: int, messages: Sequence[OutgoingMessage]) -> None:
        """As :meth:`~qdo.bench.drivers.StepConsumer.step`."""
        made = {"queue": self._driver.target.queue(topic), "messages": [_entry(one) for one in messages]}
        await self._ask({"acknowledge": tokens, "append": [made]})

    async def _ask(self, what: Mapping[str, object]) -> _LeaseAnswer:
        if self._line is None:
            self._line = self._driver.receiving_line(self._made)
        body = msgspec.json.encode({**what, "attempt": uuid.uuid4().hex})
        asked = partial(self._line.ask, b"POST", self._path, self._driver.lease_head, body)
        return _lease_answer((await self._driver.repeated_by(asked, self._sleep)).body)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()


class _LeaseConsumer(StepConsumer):
    """The calls in a thread."""

    __slots__ = ("_calls",)

    def __init__(self, driver: QueueyDriver, path: str) -> None:
        self._calls = _LeaseCalls(driver, path, driver.blocking_line, driver.thread_sleep)

    def receive(self, wait: float) -> Sequence[Delivered]:
        return at_once(self._calls.receive(wait))

    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        return at_once(self._calls.acknowledge(tokens))

    def fail(self, tokens: Sequence[object]) -> None:
        at_once(self._calls.fail(tokens))

    def step(self, tokens: Sequence[object], topic: int, messages: Sequence[OutgoingMessage]) -> None:
        at_once(self._calls.step(tokens, topic, messages))

    def close(self) -> None:
        self._calls.close()


class _PageConsumer(Consumer):
    """Asks for the page behind the last one."""

    def __init__(self, driver: QueueyDriver, topic: int) -> None:
        self._driver = driver
        self._path = driver.path(topic)
        self._limit = min(driver.target.workload.queuey.receiving.batch, 100)
        self._cursor = ""

    @cached_property
    def _line(self) -> HttpLine:
        # Made with the first request, in the thread that serves this consumer.
        return self._driver.receiving_line(self._driver.blocking_line)

    def receive(self, wait: float) -> Sequence[Delivered]:
        where = f"cursor={quote(self._cursor, safe='')}" if self._cursor else "partitions=all"
        path = f"{self._path}?{where}&limit={self._limit}" + (f"&wait={max(1, round(wait))}" if wait else "")
        asked = partial(self._line.ask, b"GET", path.encode(), self._driver.identity, b"")
        answer = at_once(self._driver.repeated_by(asked, self._driver.thread_sleep))
        self._cursor = answer.headers[b"queuey-cursor"].decode()
        return [Delivered(one.body.encode()) for one in _page_answer(answer.body).messages]

    def close(self) -> None:
        self._line.close()


class _FollowConsumer(Consumer):
    """Follows the queue on a stream that a thread of its own reads."""

    def __init__(self, driver: QueueyDriver, topic: int) -> None:
        self._client = driver.client()
        self._pages: queue.Queue[Sequence[Delivered] | Exception] = queue.Queue(maxsize=64)
        self._closed = threading.Event()
        self._ended: Exception | None = None
        """What ended the stream."""
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
        """As in the base class. Once the stream has ended there is no answer any more, nor an empty one."""
        if self._ended is not None:
            raise ConfigurationError(f"the stream ended: {self._ended}") from self._ended
        try:
            found = self._pages.get(timeout=max(wait, 0.01))
        except queue.Empty:
            return []
        if isinstance(found, Exception):
            self._ended = found
            return self.receive(wait)
        return found

    def close(self) -> None:
        """The thread ends with the next page, or with the process."""
        self._closed.set()
