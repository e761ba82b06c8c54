"""Live reads in the words of the tests: events and lines, taken one by one from a real connection."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, NamedTuple

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection

from tests.support.client import Json, Server
from tests.support.servers import RunningServer, eventually, shipped
from tests.support.services.proxy import RESET_WHEN_CLOSED

EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
SILENCE_SECONDS = 90


class Event(NamedTuple):
    """One event: its name, its cursor and what it says."""

    name: str
    cursor: str | None
    said: Json

    @property
    def body(self) -> str:
        return str(self.said["body"])


class LiveAnswer:
    """An open answer."""

    def __init__(self, answer: requests.Response) -> None:
        self.answer = answer
        self._events = self._parsed()

    def __next__(self) -> Event:
        """The next event of any name."""
        return next(self._events)

    def next(self, name: str = "message") -> Event:
        """The next event but keepalives, which must have this name."""
        for event in self._events:
            if event.name != "keepalive":
                assert event.name == name, event
                return event
        raise AssertionError(f"the stream ended before {name}")

    def bodies(self, count: int) -> list[str]:
        return [self.next().body for _ in range(count)]

    def rest(self) -> list[str]:
        """Names of all events but keepalives, to the end of the answer."""
        return [event.name for event in self._events if event.name != "keepalive"]

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        while piece := self.answer.raw.read1(1 << 16):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines

    def _parsed(self) -> Iterator[Event]:
        lines = self._lines()
        if self.answer.headers["Content-Type"] == LINES:
            for line in lines:
                entry = json.loads(line)
                if "message_id" in entry:
                    yield Event("message", entry["cursor"], entry)
                else:
                    ((name, said),) = entry.items()
                    yield Event(name, said.get("cursor"), said)
            return
        fields: dict[str, str] = {}
        for line in lines:
            if line:
                name, _, value = line.decode().partition(": ")
                fields[name] = value
            else:
                yield Event(fields["event"], fields.get("id"), json.loads(fields["data"]))
                fields = {}


class LeavesAbruptly(HTTPAdapter):
    """Its connections end with a reset: a thread learns of that with the first thing it sends, of an end with the second."""

    def init_poolmanager(self, *given: Any, **named: Any) -> None:
        options = [*HTTPConnection.default_socket_options, (SOL_SOCKET, SO_LINGER, RESET_WHEN_CLOSED)]
        super().init_poolmanager(*given, socket_options=options, **named)


@contextmanager
def read_live(
    server: Server, *below: str, accept: str = EVENTS, headers: Mapping[str, str] | None = None, **params: Any
) -> Iterator[LiveAnswer]:
    """Begin to read live; the queue's name is the path, none for several queues."""
    if accept == LINES:
        params.setdefault("follow", "true")
    given = {"Accept": accept, **(headers or {})}
    before = waiters(server)
    with requests.Session() as session:
        session.trust_env = False
        if server.running.name == "wsgi":
            session.mount("http://", LeavesAbruptly())
        path = "/".join([server.url, "v1", server.application, *below])
        allowed = {name: value for name, value in server.session.headers.items() if name == "Authorization"}
        with session.get(
            path, params=params, headers={**allowed, **given}, stream=True, timeout=SILENCE_SECONDS
        ) as answer:
            yield LiveAnswer(answer)
    if server.running.name == "wsgi":  # a thread learns that its reader has gone when it sends something
        until_waiting(server, before)


def waiters(server: Server) -> int:
    """How many readers wait at this server."""
    for line in server.request("GET", "/metrics").text.splitlines():
        if line.startswith("queuey_waiters "):
            return int(float(line.split()[1]))
    raise AssertionError("the server does not say how many wait")


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A shipped server for the tests of one file: they count waiting readers, and other files may leave some behind."""
    with shipped(tmp_path_factory.mktemp("own")) as running:
        yield running


def until_waiting(server: Server, count: int, *, seconds: float = 90) -> None:
    """Until exactly this number of readers wait."""
    eventually(lambda: waiters(server) == count, seconds=seconds)
