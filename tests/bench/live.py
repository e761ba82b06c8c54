"""Readers that wait, thousands of them, and what they cost: others, themselves, and the message that comes.

Each waiting reader has a connection and a queue of its own, as the users of an application have.
``python -m tests.bench.live PORT COUNT`` is such a crowd: it connects, says so, and takes what it is
sent until its standard input ends. With ``receivers`` behind that it is one of receivers of lease groups.
"""

from __future__ import annotations

import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from socket import IPPROTO_TCP, TCP_NODELAY, create_connection, socket
from statistics import median
from typing import NamedTuple

import orjson

from tests.bench.arrival import RATE, beside_a_writer
from tests.bench.drivers import NUMBER, Load, append_one, drive, numbered, read_page, request
from tests.bench.measure import BenchFailed, Spread, alternate, ratios, until
from tests.bench.plan import CONNECTIONS, PAGE, Plan
from tests.bench.servers import APPLICATION, ROOT, Server, queuey, twins
from tests.bench.table import Row, number, times

QUEUE = "arrival"
BUSY = "busy"
PAGES = "pages"
CROWDS = (1, 1_000, 10_000)
_OWN = f"u{NUMBER}"
_PATIENCE_SECONDS = 60
_BETWEEN_SECONDS = 0.001
_READY = "READY"
EVENTS, RECEIVERS = "events", "receivers"
_TURN_SECONDS = 1
_TURNS = 2
"""For each second that is measured elsewhere: single turns differ by half and more."""


def stream_of(queue: str) -> bytes:
    """A request for events of a queue."""
    return request("GET", f"/v1/{APPLICATION}/{queue}", Accept="text/event-stream").encode()


def receive_of(queue: str) -> bytes:
    """A request for a message of a queue, which waits as long as it may."""
    body = orjson.dumps({"receive": {"wait": 60}}).decode()
    return request("POST", f"/v1/{APPLICATION}/{queue}/leases/bench", body).encode()


def crowd(port: int, count: int, what: str = EVENTS) -> None:
    """Connect, say so, and take what comes until standard input ends.

    :param what: of receivers, each asks again when its wait has ended.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    poll = select.epoll()
    readers: dict[int, tuple[socket, bytes]] = {}
    for turn in range(count):
        reader = create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
        asked = (stream_of if what == EVENTS else receive_of)(_OWN.replace(NUMBER, f"{turn:07d}"))
        reader.sendall(asked)
        if what == RECEIVERS:
            time.sleep(_BETWEEN_SECONDS)  # each makes a group, and not too many at once
        if what == EVENTS and not (said := reader.recv(4096)).startswith(b"HTTP/1.1 200 "):
            raise BenchFailed(f"reader {turn}: {said!r}")
        reader.setblocking(False)
        readers[reader.fileno()] = reader, asked
        poll.register(reader, select.EPOLLIN)
    print(_READY, flush=True)
    poll.register(sys.stdin, select.EPOLLIN)
    while True:
        for number_of, _ in poll.poll():
            if number_of == sys.stdin.fileno():
                return
            reader, asked = readers[number_of]
            if not (said := reader.recv(1 << 16)):
                raise BenchFailed("the server ended a stream")
            if what == RECEIVERS:
                if not said.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 429 ")):
                    raise BenchFailed(f"a receiver: {said!r}")
                time.sleep(_BETWEEN_SECONDS)
                reader.sendall(asked)


@contextmanager
def waiting(server: Server, count: int, what: str = EVENTS) -> Iterator[None]:
    """This number of readers, or receivers, wait at a server."""
    command = [sys.executable, "-m", "tests.bench.live", str(server.port), str(count), what]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None or process.stdout.readline().strip() != _READY:
            raise BenchFailed("the readers could not connect")
        until(lambda: server.waiters() >= count, _PATIENCE_SECONDS, f"{count} {what} to wait")
        try:
            yield
            if process.poll() is not None:
                raise BenchFailed("the readers did not last")
        finally:
            process.communicate()


def follow(port: int, count: int) -> list[float]:
    """One reader of events: milliseconds that each message took from its append to here."""
    took: list[float] = []
    with create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS) as reader:
        reader.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        reader.sendall(stream_of(QUEUE))
        rest = b""
        while len(took) < count:
            data = reader.recv(1 << 16)
            now = time.monotonic_ns()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b'data: {"message_id"'):
                    turn, sent, _ = orjson.loads(line[6:])["body"].split(" ")
                    if int(turn) != len(took):
                        raise BenchFailed(f"message {turn} came in place {len(took)}")
                    took.append((now - int(sent)) / 1e6)
    return took


def measure(plan: Plan) -> Iterator[Row]:
    """Arrival at crowds of three sizes; then what the largest costs others, and takes of memory."""
    most = CROWDS[-1]
    for count in CROWDS:
        with queuey(plan.fresh("live")) as server:
            make_own_queues(server, count)
            with waiting(server, count - 1):
                server.settle()
                yield _arrival(server, count, plan)
    with queuey(plan.fresh("live")) as server:
        make_own_queues(server, most)
        server.settle()
        before = server.rss_mib()
        with waiting(server, most):
            server.settle()
            yield _memory(most, server.rss_mib() - before)
    with twins(plan.fresh("alone"), plan.fresh("beside")) as (alone, beside):
        make_own_queues(alone, most)
        make_own_queues(beside, most)
        with waiting(beside, most):
            yield from _others(alone, beside, plan)


def make_own_queues(server: Server, count: int) -> None:
    server.create(QUEUE)
    server.create(BUSY, 4)
    server.create(_OWN)  # the generator leaves out the first: it only looks at that request
    text = request("POST", f"/v1/{APPLICATION}", f"queue_name={_OWN}", Content_Type="application/x-www-form-urlencoded")
    drive(server, numbered(text, 0, count + 2 * CONNECTIONS), CONNECTIONS)


def receivers(plan: Plan) -> Iterator[Row]:
    """As many receivers of lease groups, each with a queue of its own, beside the readers of another server."""
    most = CROWDS[-1]
    with twins(plan.fresh("readers"), plan.fresh("receivers")) as servers:
        grown = []
        for server in servers:
            make_own_queues(server, most)
            server.settle()
            grown.append(-server.rss_mib())
        with waiting(servers[0], most), waiting(servers[1], most, RECEIVERS):
            for at, server in enumerate(servers):
                server.settle()
                grown[at] = (grown[at] + server.rss_mib()) * 1024 / most
            yield Row(
                f"{most:,} waiting receivers, each with a queue of its own: memory",
                f"{grown[0]:.1f} KiB a waiting reader of events",
                f"{grown[1]:.1f} KiB a receiver",
                Spread(*[grown[1] / grown[0]] * 3),
                goal="each <= 20 KiB",
                figures={"each": grown[1]},
            )
            readers, beside = servers
            below, ours = alternate(
                lambda: one_turn(readers, beside, append_one(BUSY)),
                lambda: one_turn(beside, readers, append_one(BUSY)),
                round(plan.rounds * plan.seconds * _TURNS),
            )
    yield Row(
        f"single appends beside {most:,} waiting receivers",
        f"{told_of(below)} beside readers",
        f"{told_of(ours)}; processor time of a request {cpu_each(ours) / cpu_each(below):.2f} times",
        ratios([turn.load.rate for turn in ours], [turn.load.rate for turn in below]),
        goal="ratio >= 0.9",
    )


def _arrival(server: Server, count: int, plan: Plan) -> Row:
    took = beside_a_writer(server, round(RATE * plan.seconds * 2), follow)
    what = f"append to arrival at a reader of events, {RATE} appends/s, {count:,} readers attached"
    return times(what, took, first="p99 <= 10 ms", goal="p50 <= 1 ms, p99 <= 5 ms")


def _memory(count: int, grown_mib: float) -> Row:
    each = grown_mib * 1024 / count
    return Row(
        f"{count:,} waiting readers of events: memory",
        "",
        f"{grown_mib:.0f} MiB more, {each:.1f} KiB a reader",
        goal="each <= 20 KiB",
        figures={"each": each},
    )


def _others(alone: Server, beside: Server, plan: Plan) -> Iterator[Row]:
    """The same load on two servers in short turns, one with all readers waiting: a machine's speed changes within seconds."""
    loads = {
        "single appends": [append_one(BUSY)] * 2,
        "pages of 100 messages": [read_page(PAGES, _page_of_messages(server)) for server in (alone, beside)],
    }
    for what, texts in loads.items():
        without, with_them = alternate(
            lambda text=texts[0]: one_turn(alone, beside, text),  # type: ignore[misc]
            lambda text=texts[1]: one_turn(beside, alone, text),  # type: ignore[misc]
            round(plan.rounds * plan.seconds * _TURNS),
        )
        slower = ratios([turn.load.p99_ms for turn in with_them], [turn.load.p99_ms for turn in without])
        yield Row(
            f"{what} beside {CROWDS[-1]:,} waiting readers",
            f"{told_of(without)} without them",
            f"{told_of(with_them)}; p99 {slower.middle:.2f} times as long, processor time of a request "
            f"{cpu_each(with_them) / cpu_each(without):.2f} times",
            ratios([turn.load.rate for turn in with_them], [turn.load.rate for turn in without]),
            goal="ratio >= 0.9, slower <= 2",
            figures={"slower": slower.middle},
        )


class Turn(NamedTuple):
    """What one server did."""

    load: Load
    cpu_seconds: float


def told_of(turns: Sequence[Turn]) -> str:
    return f"{number(median(turn.load.rate for turn in turns))} /s, p99 {median(turn.load.p99_ms for turn in turns):.2f} ms"


def cpu_each(turns: Sequence[Turn]) -> float:
    return sum(turn.cpu_seconds for turn in turns) / sum(turn.load.requests for turn in turns)


def _page_of_messages(server: Server) -> str:
    """A page of them; where it begins."""
    server.create(PAGES)
    answer = server.ask("POST", f"/v1/{APPLICATION}/{PAGES}", json={"messages": [{"body": "x" * 256}] * PAGE})
    return str(answer.json()["messages"][0]["key"])


def one_turn(server: Server, other: Server, text: str) -> Turn:
    """A load on one server while the other does nothing at all, keepalives included; those that it owes then come first."""
    other.process.send_signal(signal.SIGSTOP)
    try:
        server.settle()
        script = f"request = function() return {orjson.dumps(text).decode()} end\n"
        before = server.cpu_seconds()
        load = drive(server, script, CONNECTIONS, _TURN_SECONDS)
        return Turn(load, server.cpu_seconds() - before)
    finally:
        other.process.send_signal(signal.SIGCONT)


if __name__ == "__main__":
    crowd(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
