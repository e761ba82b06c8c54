"""G17: readers that wait, come and go by the thousand, and what is left of them when they are gone."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable
from pathlib import Path

from qdo.client import Client
from tests.support.costs import Costs
from tests.support.figures import Figures
from tests.support.node import APPLICATION, Node
from tests.support.servers import eventually
from tests.support.slow_clients import KEY, connections, open_still

AT_ONCE = 400
LEFT_MB = 8
"""What the allocator may keep after all have gone, however often they came."""


def asking(queue: str, turn: int) -> bytes:
    """A reader of events, a long poll or a reader of lines, each of which waits."""
    kinds = (("", "text/event-stream"), ("?wait=20", "application/json"), ("?follow=true", "application/x-ndjson"))
    query, accept = kinds[turn % 3]
    return (
        f"GET /v1/{APPLICATION}/{queue}{query} HTTP/1.1\r\nHost: q\r\nAccept: {accept}\r\n".encode()
        + b"Authorization: "
        + KEY
        + b"\r\n\r\n"
    )


def waiters(node: Node) -> int:
    lines = node.get("/metrics").text.splitlines()
    (said,) = [line.split()[1] for line in lines if line.startswith("queuey_waiters ")]
    return int(float(said))


def come_and_go(node: Node, client: Client) -> None:
    """Readers connect, wait, get a message, and leave: some in order, some by a reset, some without a word."""
    queue = f"q{uuid.uuid4().hex[:8]}"
    client.create_queue(queue)
    with connections(int(node.running.url.rpartition(":")[2]), AT_ONCE) as readers:
        for turn, reader in enumerate(readers):
            reader.setblocking(True)
            reader.sendall(asking(queue, turn))
        eventually(lambda: waiters(node) == AT_ONCE, seconds=90)
        client.append(queue, b"x")
        for turn, reader in enumerate(readers):
            assert b"200 OK" in reader.recv(1 << 16)
            reader.setblocking(False)
            assert open_still(reader)
            if turn % 4 == 0:
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if turn % 4 == 1:
                reader.shutdown(socket.SHUT_WR)
    eventually(lambda: waiters(node) == 0, seconds=90)
    client.delete_queue(queue)


def test_readers_that_come_and_go_leave_nothing_behind(
    tmp_path: Path, rounds: Callable[[int], range], figures: Figures
) -> None:
    with Node(tmp_path, settings="threads = 2\n") as node:  # which are soon all made
        costs, client = Costs(node.running.pid), node.client()
        for _ in range(3):
            come_and_go(node, client)  # what is made once, is made by now
        before = (costs.rss_mb, costs.threads, costs.sockets)
        turns = rounds(12)
        for _ in turns:
            come_and_go(node, client)
        eventually(lambda: costs.sockets <= before[2] + 2)
        after = (costs.rss_mb, costs.threads, costs.sockets)

    figures(
        "G17",
        readers_gone=len(turns) * AT_ONCE,
        rss_start=before[0],
        rss_end=after[0],
        threads_more=after[1] - before[1],
        sockets_more=after[2] - before[2],
    )
    assert after[0] <= before[0] + LEFT_MB
    assert after[1] <= before[1] + 1
