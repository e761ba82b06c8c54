"""G17: all kinds of traffic for a while, queues that come and go included: afterwards the server has what it had before."""

from __future__ import annotations

import random
import re
import socket
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from qdo.client import Client, NewMessage
from qdo.client.lease_values import Release, Settle
from tests.support.costs import Costs
from tests.support.figures import Figures
from tests.support.node import Node
from tests.support.servers import RunningServer, eventually
from tests.support.slow_clients import head

SETTINGS = "client_timeout_seconds = 5\nidle_timeout_seconds = 5\n"
LIVES = 8
"""Queues of each visitor, before the first figures and again after them."""
VISITORS = 3
STEPS = 25
"""Requests to each queue, about."""
MORE_MB = 48
"""Of a second time as much traffic: bounded memories fill still."""
MORE_STORED = 32 << 20
"""Bytes; the log of the store is a good part of it."""
OWN_FILES = 20
"""What the server opens for itself in time."""
TTL_SECONDS = 5
RESET = b"\x01\0\0\0\0\0\0\0"
"""Linger, for no time."""


class Visitor:
    """One client that makes a queue, does all kinds of things with it, and deletes it."""

    def __init__(self, running: RunningServer, client: Client, chance: random.Random) -> None:
        self._running, self._client, self._chance = running, client, chance
        self._queue = ""

    def live(self) -> None:
        """One queue, from its making to its end."""
        steps = (
            self._append,
            self._append_many,
            self._read,
            self._stream,
            self._overwrite,
            self._lease,
            self._pop,
            self._commit,
            self._wait,
            self._ask_for_nonsense,
            self._break_off,
        )
        self._queue = f"soak-{uuid.uuid4().hex}"
        retention = self._chance.choice(["ttl", "acknowledged"])
        self._client.create_queue(self._queue, partitions=self._chance.choice([1, 3]), retention=retention)
        for _ in range(STEPS):
            self._chance.choice(steps)()
        self._client.delete_queue(self._queue)

    def _body(self) -> bytes:
        return self._chance.randbytes(self._chance.choice([1, 100, 5000, 200_000]))

    def _append(self) -> None:
        key = self._chance.choice([None, "a", "b"])
        self._client.append(self._queue, NewMessage(self._body(), key=key, ttl_seconds=TTL_SECONDS))

    def _append_many(self) -> None:
        bodies = [b"x" * self._chance.randrange(1, 300) for _ in range(self._chance.choice([1, 30, 300]))]
        self._client.append_batch(self._queue, [NewMessage(body, ttl_seconds=TTL_SECONDS) for body in bodies])

    def _read(self) -> None:
        page = self._client.read(self._queue, partitions="all", limit=self._chance.choice([1, 100, 1000]))
        for message in page.messages[:2]:
            self._client.get(self._queue, message)

    def _stream(self) -> None:
        with self._client.stream_ndjson(self._queue) as lines:
            assert sum(1 for _ in lines) >= 0

    def _overwrite(self) -> None:
        placed = self._client.append(self._queue, NewMessage(b"old", ttl_seconds=TTL_SECONDS))
        self._client.put(self._queue, placed, b"new", ttl_seconds=TTL_SECONDS)
        self._client.delete(self._queue, placed)

    def _lease(self) -> None:
        found = self._client.receive(self._queue, "workers", self._chance.choice([1, 10, 100]), visibility=2)
        done, back = found[::2], found[1::2]
        self._client.settle(self._queue, "workers", Settle(acknowledge=done, release=[Release(one) for one in back]))

    def _pop(self) -> None:
        self._client.receive(self._queue, "poppers", self._chance.choice([1, 10]), pop=True)

    def _commit(self) -> None:
        placed = self._client.append(self._queue, NewMessage(b"x", partition=1, ttl_seconds=TTL_SECONDS))
        self._client.commit_offsets(self._queue, "readers", {1: placed.id})

    def _connect(self, sent: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._running.port), timeout=60)
        connection.sendall(sent)
        return connection

    def _wait(self) -> None:
        """Readers that wait, of whom some get a message, and all go without a word."""
        below = f"/{self._queue}".encode()
        asked = [
            head(b"GET", below, b"Accept: text/event-stream"),
            head(b"GET", below + b"?follow=true", b"Accept: application/x-ndjson"),
            head(b"GET", below + b"?wait=20&partitions=all"),
        ]
        waiting = [self._connect(one) for one in asked]
        if self._chance.random() < 0.5:
            self._append()
        for connection in waiting:
            self._leave(connection)

    def _ask_for_nonsense(self) -> None:
        """What no answer may remember: names, keys and ids that were never heard of."""
        name = uuid.uuid4().hex.encode()
        asked = [
            head(b"GET", b"/" + name),
            head(b"GET", b"/" + name + b"/" + name),
            head(
                b"GET", b"?limit=0&%b=%b" % (name, name), b"X-Request-Id: " + name, name + b": x", b"Accept: a/" + name
            ),
            name[:20] + b" / HTTP/1.1\r\nHost: q\r\n\r\n",
            b"GET /v1/demo HTTP/1.1\r\nHost: q\r\nAuthorization: Application " + name + b"\r\n\r\n",
            b"GET /" + name + b" HTTP/1.1\r\nHost: q\r\nHost: q\r\n\r\n",
        ]
        for one in asked:
            with self._connect(one) as connection:
                assert connection.recv(65536).startswith(b"HTTP/1.1 4")

    def _break_off(self) -> None:
        below = f"/{self._queue}".encode()
        for sent in (
            head(b"POST", below, b"Content-Length: 100000") + b"x" * 500,
            head(b"GET", below + b"?partitions=all&limit=1000") * 3,
            head(b"GET", below)[:-2],
        ):
            self._leave(self._connect(sent))

    def _leave(self, connection: socket.socket) -> None:
        if self._chance.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.close()


def soak(node: Node, chance: random.Random, lives: int) -> None:
    """Three visitors at once, with this number of queues each."""

    def visit(own: random.Random) -> None:
        client = node.client()
        for _ in range(lives):
            Visitor(node.running, client, own).live()

    with ThreadPoolExecutor(VISITORS) as threads:
        for done in [threads.submit(visit, random.Random(chance.random())) for _ in range(VISITORS)]:
            done.result()


def stored_bytes(node: Node) -> int:
    return sum(file.stat().st_size for file in node.database.parent.rglob("*") if file.is_file())


def at_rest(node: Node) -> bool:
    """Whether no request is under way, and nobody waits."""
    text = node.get("/metrics").text
    found = re.findall(r"^(queuey_waiters|queuey_http_requests_in_progress)(?:{.*})? (\S+)$", text, re.MULTILINE)
    return bool(found) and all(float(value) == 0 for _, value in found)


def test_a_server_that_did_all_kinds_of_things_has_what_it_had_before(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    """Memory and store are compared with those after half of it: until then they fill."""
    lives = len(rounds(LIVES))
    with Node(tmp_path, settings=SETTINGS) as node:
        costs = Costs(node.running.pid)
        files, threads = costs.files, costs.threads
        soak(node, chance, lives)
        half, half_stored = costs.rss_mb, stored_bytes(node)
        soak(node, chance, lives)
        end, end_stored = costs.rss_mb, stored_bytes(node)
        eventually(lambda: at_rest(node))
        eventually(lambda: costs.files <= files + OWN_FILES)
        left, end_threads = [queue.name for queue in node.client().queues()], costs.threads
    figures(
        "G17",
        queues=2 * VISITORS * lives,
        rss_half=round(half),
        rss_end=round(end),
        stored_half_mb=half_stored >> 20,
        stored_end_mb=end_stored >> 20,
        threads=f"{threads}..{end_threads}",
    )
    assert left == []
    assert end_threads <= threads + 8
    assert end < half + MORE_MB
    assert end_stored < half_stored + MORE_STORED
    assert "Traceback" not in (tmp_path / "said.txt").read_text()
