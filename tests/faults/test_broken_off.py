"""G17: connections that are cut, half closed, reset or fed in pieces: each one ends, and nothing of it stays."""

from __future__ import annotations

import random
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.costs import Costs
from tests.support.figures import Figures
from tests.support.heads import stream
from tests.support.node import APPLICATION, Node
from tests.support.raw import TIMEOUT_SECONDS, drain
from tests.support.servers import FIRST_KEY, QUEUEY, eventually

USUAL = 400
LINGERING = 20
"""Connections that are left as they are, until as many later ones were begun."""
RESET = b"\x01\0\0\0\0\0\0\0"
"""Linger, for no time."""
SHORT_SECONDS = 2
BEAT = b"GET /__heartbeat__ HTTP/1.1\r\nHost: q\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
KINDS = [b"text/plain", b"application/json", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=b"]
BODIES = [b"a message", b'{"messages":[{"body":"x"}]}', b"x" * 70_000, b"--b\r\n\r\n\r\n--b--", b"[" * 10_000]


def unfinished(chance: random.Random) -> bytes:
    """An append whose last byte does not come, behind some whole requests that change nothing."""
    body = chance.choice(BODIES)
    lines = [
        f"POST /v1/{APPLICATION}/q HTTP/1.1".encode(),
        b"Host: q",
        f"Authorization: Application {FIRST_KEY}".encode(),
        b"Content-Type: " + chance.choice(KINDS),
        *chance.choice(
            ([b"Content-Length: %d" % len(body)], [b"Expect: 100-continue", b"Content-Length: %d" % len(body)])
        ),
    ]
    whole = b"\r\n".join(lines) + b"\r\n\r\n" + body
    before = BEAT * chance.choice((0, 0, 1, 5))
    return before + whole[: chance.choice((len(whole) - 1, chance.randrange(len(whole))))]


def pieces(chance: random.Random, raw: bytes) -> Iterator[bytes]:
    """The bytes as they come: at once, in some pieces, or a good part of them one by one."""
    cuts = chance.choice((0, 0, 1, 3, 40))
    places = sorted(chance.randrange(len(raw) + 1) for _ in range(cuts))
    for start, end in zip([0, *places], [*places, len(raw)], strict=True):
        yield raw[start:end]


class Clients:
    """A client that connects, sends something, and goes in one way or another."""

    def __init__(self, port: int, chance: random.Random, seconds: float = TIMEOUT_SECONDS) -> None:
        self._port = port
        self._chance = chance
        self._seconds = seconds
        self._lingering: list[socket.socket] = []
        self.wrong: list[tuple[str, bytes]] = []
        self.answers = 0

    def come_and_go(self) -> None:
        chance = self._chance
        raw = chance.choice((stream, unfinished))(chance)
        client = socket.create_connection(("127.0.0.1", self._port), timeout=self._seconds)
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces(chance, raw):
                client.sendall(piece)
            how = chance.choice(("half", "half", "reset", "close", "linger"))
            if how == "half":
                client.shutdown(socket.SHUT_WR)
                self._judge(raw, drain(client))
            elif how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            elif how == "linger":
                self._lingering.append(client)
                return
        except TimeoutError:
            self.wrong.append(("neither answered nor closed", raw))
        except OSError:
            pass  # it was refused before all of it was sent
        finally:
            if client not in self._lingering:
                client.close()
            if len(self._lingering) > LINGERING:
                self._lingering.pop(0).close()

    def _judge(self, raw: bytes, received: bytes) -> None:
        statuses = _STATUS.findall(received)
        self.answers += len(statuses)
        if len(statuses) < raw.count(BEAT):
            self.wrong.append((f"{len(statuses)} answers", raw))
        if not all(b"100" <= status < b"500" for status in statuses):
            self.wrong.append((f"answered with {statuses}", raw))
        if received and not received.startswith(b"HTTP/1.1 "):
            self.wrong.append((f"answered with {received[:100]!r}", raw))

    def close(self) -> None:
        while self._lingering:
            self._lingering.pop().close()


def test_whatever_becomes_of_a_connection_it_ends_and_leaves_nothing(
    tmp_path: Path, chance: random.Random, rounds: Callable[[int], range], figures: Figures
) -> None:
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("q")
        costs = Costs(node.running.pid)
        before = costs.sockets
        with closing(Clients(node.running.port, chance)) as clients:
            for _ in rounds(USUAL):
                clients.come_and_go()
        eventually(lambda: costs.sockets <= before)
        depth = client.queue_info("q").depth
        beats = node.running.beats()

    figures("G17", connections=len(rounds(USUAL)), answers=clients.answers, wrong=len(clients.wrong), stored=depth)
    assert clients.wrong[:1] == []
    assert depth == 0
    assert beats
    assert clients.answers > 0


SPOILED = """
from queuey.http.finishing import Finisher
from queuey.cli import main
from queuey.server.connection import Connection
from queuey.errors import QueueyError
{fault}
main()
"""
FAULTS = {
    "no end": "Connection.eof_received = lambda self: True",
    "a failure": "turn = Finisher.turn_away; Finisher.turn_away = lambda self, error: turn(self, QueueyError('planted'))",
}


def planted(fault: str) -> Sequence[str]:
    return [sys.executable, "-c", SPOILED.format(fault=FAULTS[fault])] if fault else QUEUEY


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_keeps_a_client_waiting_is_noticed(tmp_path: Path, chance: random.Random, fault: str) -> None:
    with (
        Node(tmp_path, program=planted(fault)) as node,
        closing(Clients(node.running.port, chance, SHORT_SECONDS)) as clients,
    ):
        for _ in range(10 * USUAL):
            clients.come_and_go()
            if clients.wrong:
                break
        node.kill()

    assert clients.wrong
