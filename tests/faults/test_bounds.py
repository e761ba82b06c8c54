"""G17: slow clients, and clients that stop reading, cost the server little and the other clients nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qdo.client import Client
from qdo.measure import percentiles
from tests.support.costs import Costs
from tests.support.figures import Figures
from tests.support.node import Node, busy, wait_for_more
from tests.support.servers import eventually
from tests.support.slow_clients import connections, head, open_still

MIB = 1 << 20
SETTINGS = "client_timeout_seconds = 5\nidle_timeout_seconds = 5\n"
"""In the section [server], which comes first. Connections that were refused an answer rest: nobody waits 75 s for their end."""
SLOW_HEADS = SLOW_BODIES = 500
NORMAL = 100
"""Requests of each client that behaves, while the others do not."""
OWN_FILES = 20
"""What the server opens for itself in time: each thread that reads has its own files of the store."""
DEAF = 50
"""Clients that ask for much and read nothing of it."""


@dataclass
class Normal:
    """A client that has done nothing wrong: appends, and reads what it appended."""

    queue: str
    took: list[float] = field(default_factory=list)

    def step(self, client: Client) -> None:
        """:raises QueueyError: it was refused, which fails the test."""
        began = time.monotonic()
        where = client.append(self.queue, b"x" * 256)
        assert [message.id for message in client.read(self.queue, since=where.id).messages[:1]] == [where.id]
        self.took.append(time.monotonic() - began)


def trickle(opened: list[socket.socket], piece: bytes) -> None:
    """One more byte on each connection that is open still."""
    for connection in opened:
        try:
            connection.send(piece)
        except (BlockingIOError, ConnectionError):
            continue
    time.sleep(0.2)


@dataclass
class Measured:
    """A server among clients that behave, and what it cost meanwhile."""

    node: Node
    normal: list[Normal] = field(default_factory=lambda: [Normal("one"), Normal("two")])

    def __post_init__(self) -> None:
        self.costs = Costs(self.node.running.pid)
        for one in self.normal:
            self.node.client().create_queue(one.queue)
            one.step(self.node.client())
        self.start = (self.costs.rss_mb, self.costs.threads, self.costs.files)
        self.threads, self.files = self.start[1:]

    @contextmanager
    def going_on(self, *others: Callable[[], object]) -> Iterator[None]:
        """Normal requests go on while the block runs."""
        with busy(*others), self.node.busy(*(one.step for one in self.normal)):
            yield

    def wait_for(self, requests: int) -> None:
        """Wait until this number of normal requests are answered."""
        wait_for_more(lambda: len(self.normal[0].took), requests, seconds=90)
        self.threads = max(self.threads, self.costs.threads)
        self.files = max(self.files, self.costs.files)

    def wait_for_calm(self) -> None:
        """Nothing of the others is left."""
        eventually(lambda: self.costs.files <= self.start[2] + OWN_FILES, seconds=90)

    def figures(self) -> dict[str, object]:
        took = [seconds * 1000 for one in self.normal for seconds in one.took]
        return {
            "rss_start": round(self.start[0]),
            "rss_peak": round(self.costs.rss_peak_mb),
            "threads": f"{self.start[1]}..{self.threads}",
            "files": f"{self.start[2]}..{self.files}",
            "normal": len(took),
            "normal_p99_ms": percentiles(took)[99],
        }


@pytest.mark.drawn
def test_a_thousand_slow_clients_hold_nobody_up(
    tmp_path: Path, rounds: Callable[[int], range], figures: Figures
) -> None:
    """One byte now and then, of a head that does not end, or of a body that was announced as large."""
    with Node(tmp_path, settings=SETTINGS) as node:
        measured = Measured(node)
        port = node.running.port
        with connections(port, SLOW_HEADS) as heads, connections(port, SLOW_BODIES) as bodies:
            for connection in heads:
                connection.send(head(b"POST", b"/one", b"X-Slow: ")[:-4])
            for connection in bodies:
                connection.send(head(b"POST", b"/one", b"Content-Length: %d" % MIB))
            with measured.going_on(lambda: trickle([*heads, *bodies], b"x")):
                measured.wait_for(len(rounds(NORMAL)))
                eventually(lambda: not any(map(open_still, [*heads, *bodies])), seconds=90)
        measured.wait_for_calm()
        told = measured.figures()
        depth = node.client().queue_info("one").depth

    figures("G17", slow_clients=SLOW_HEADS + SLOW_BODIES, **told)
    assert depth == len(measured.normal[0].took)
    assert measured.threads <= measured.start[1] + 8


def test_clients_that_ask_for_much_and_read_nothing_hold_nobody_up(
    tmp_path: Path, rounds: Callable[[int], range], figures: Figures
) -> None:
    """The longer run has a thousand bodies of 1 MiB, the shorter one as many as show the same."""
    large = 64 if len(rounds(1)) == 1 else 1000
    with Node(tmp_path) as node:
        node.client().create_queue("large")
        for _ in range(large):
            node.client().append("large", b"x" * MIB)
    with Node(tmp_path, settings=SETTINGS) as node:
        measured = Measured(node)
        with connections(node.running.port, DEAF, buffer=4096) as deaf:
            for number, connection in enumerate(deaf):
                accept = b"application/x-ndjson" if number % 2 else b"application/json"
                connection.send(head(b"GET", b"/large?limit=1000", b"Accept: " + accept))
            with measured.going_on():
                measured.wait_for(len(rounds(NORMAL)))
            measured.wait_for_calm()
        told = measured.figures()

    figures("G17", deaf_clients=DEAF, messages_mib=large, **told)
    assert measured.threads <= measured.start[1] + 8
    assert int(str(told["rss_peak"])) < 512, "256 MiB may be in flight, and the server itself has some"


@pytest.mark.drawn
@pytest.mark.parametrize("form", ["arrow", "ndjson"])
def test_streams_that_were_read_leave_nothing_behind(tmp_path: Path, figures: Figures, form: str) -> None:
    """A server that kept their pages until the next collection of garbage had 2 GiB after some gigabytes."""
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue("large")
        for _ in range(16):
            client.append_batch("large", [b"x" * 2000] * 1000)
        costs = Costs(node.running.pid)
        before = costs.rss_mb
        for _ in range(16):
            if form == "arrow":
                with client.read_arrow("large") as batches:
                    assert sum(batch.num_rows for batch in batches) == 16_000
            else:
                with client.stream_ndjson("large") as lines:
                    assert sum(1 for _ in lines) == 16_000

        figures("G17", form=form, read_mib=16 * 32, rss_start=round(before), rss_peak=round(costs.rss_peak_mb))
        assert costs.rss_peak_mb - before < 128, "a page or two are in memory, and what an allocator keeps"
