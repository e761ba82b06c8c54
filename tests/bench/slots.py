"""Very many small queues: what ZooKeeper and the server have to bear when a group divides them by partitions, and by slots.

``python -m tests.bench.slots URL HOSTS GROUP partitions|slots`` is one worker; it prints a line for each job.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import NamedTuple

from qdo import Client, Context, Message, Worker
from qdo.groups.hash_slots import SLOTS
from qdo.groups.zookeeper import ZooKeeperCoordinator
from tests.bench.measure import until
from tests.bench.plan import Plan
from tests.bench.servers import APPLICATION, KEY, ROOT, Server, queuey
from tests.bench.table import Row, number
from tests.support.services.zookeeper import ZooKeeper, ZooKeeperNode

QUEUES = 10_000
WORKERS = 3
SETTLE_SECONDS = 240
IDLE_SECONDS = 20.0
APPENDS = 12
NEW = 6
ANSWER_SECONDS = 120
_MAKERS = 8


def work(url: str, hosts: str, group: str, kind: str) -> None:
    """One process: it tells the moment of each message that it got."""
    logging.basicConfig(level=logging.ERROR)

    def job(message: Message, context: Context) -> None:
        print(f"{message.text}\n", end="", flush=True)  # whole lines, whichever thread

    coordinator = ZooKeeperCoordinator(hosts, "bench", group)
    Worker(job, ["q*"], coordinator, lambda: Client(url, APPLICATION, KEY), group=group, slots=kind == "slots").run()


class Load(NamedTuple):
    """What a group costs."""

    settled_seconds: float
    """From the start of the workers until somebody owns each queue and has looked at it."""
    nodes: float
    watches: float
    requests: float
    """To ZooKeeper, a second, while nothing happens."""
    share: float
    """Of one processor that the server takes meanwhile."""
    noticed_seconds: float
    """From an append to a queue in which nothing happened for long, to its job: the median."""
    found_seconds: float
    """From the making of a queue with a message in it to its job: the longest of several."""


def measure(plan: Plan) -> Iterator[Row]:
    """The same queues twice."""
    with queuey(plan.fresh("small")) as server:
        _make(server)
        loads = []
        for kind in ("partitions", "slots"):
            with ZooKeeper(plan.fresh("zookeeper") / "zookeeper") as service:
                loads.append(_load(server, service, kind))
    before, ours = loads
    what = f"{QUEUES:,} small queues by a pattern, {WORKERS} workers"
    most = 3 * SLOTS + 20
    yield _row(f"{what}: nodes in ZooKeeper", before.nodes, ours.nodes, "", f"nodes <= {most}", "nodes")
    yield _row(f"{what}: watches", before.watches, ours.watches, "", f"watches <= {most}", "watches")
    yield _row(f"{what}: requests to ZooKeeper while idle", before.requests, ours.requests, " /s", "rate <= 20", "rate")
    yield _row(f"{what}: processor of the server while idle", before.share, ours.share, " of one", "", "share")
    yield _row(f"{what}: until settled", before.settled_seconds, ours.settled_seconds, " s", "", "took")
    yield _row(
        f"{what}: append to job in an inactive queue", before.noticed_seconds, ours.noticed_seconds, " s", "", "took"
    )
    goal = "took <= 10"
    yield _row(f"{what}: a new queue, to its job", before.found_seconds, ours.found_seconds, " s", goal, "took")


def _row(what: str, before: float, ours: float, unit: str, goal: str, name: str) -> Row:
    said = [f"{number(value)}{unit}" if value >= 10 else f"{value:.2f}{unit}" for value in (before, ours)]
    return Row(what, f"{said[0]} by partitions", f"{said[1]} by slots", goal=goal, figures={name: ours})


def _make(server: Server) -> None:
    def make(numbers: range) -> None:
        with Client(server.url, APPLICATION, KEY) as client:
            for at in numbers:
                client.create_queue(_name(at), partitions=1)

    with ThreadPoolExecutor(_MAKERS) as pool:
        list(pool.map(make, (range(first, QUEUES, _MAKERS) for first in range(_MAKERS))))
    server.settle()


def _name(at: int) -> str:
    return f"q{at:07d}"


def _load(server: Server, service: ZooKeeper, kind: str) -> Load:
    (node,) = service.nodes
    before = node.figures
    heard: dict[str, float] = {}
    with _workers(server, service.hosts, kind, heard) as began, Client(server.url, APPLICATION, KEY) as client:
        # The last queue of all is the last that a sweep comes to, and that a plan names.
        client.append(_name(QUEUES - 1), "settled")
        until(lambda: "settled" in heard, SETTLE_SECONDS, f"{kind}: the first job")
        owned = QUEUES if kind == "partitions" else SLOTS
        until(lambda: _ephemerals(node) >= owned + WORKERS, SETTLE_SECONDS, f"{kind}: owners of everything")
        settled = time.monotonic() - began
        time.sleep(IDLE_SECONDS / 2)
        now, busy = node.figures, server.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        later = node.figures
        share = (server.cpu_seconds() - busy) / IDLE_SECONDS
        took = [_notice(client, _name(turn * (QUEUES // APPENDS)), f"{kind} {turn}", heard) for turn in range(APPENDS)]
        new = [_find(client, f"q-{kind}-{turn}", heard) for turn in range(NEW)]
    return Load(
        settled,
        now["zk_znode_count"] - before["zk_znode_count"],
        now["zk_watch_count"],
        (later["zk_packets_received"] - now["zk_packets_received"]) / IDLE_SECONDS,
        share,
        median(took),
        max(new),
    )


def _ephemerals(node: ZooKeeperNode) -> float:
    """Of owners and members."""
    return node.figures["zk_ephemerals_count"]


def _notice(client: Client, queue: str, text: str, heard: Mapping[str, float]) -> float:
    began = time.monotonic()
    client.append(queue, text)
    until(lambda: text in heard, ANSWER_SECONDS, f"the job of {text}")
    return heard[text] - began


def _find(client: Client, queue: str, heard: Mapping[str, float]) -> float:
    client.create_queue(queue, partitions=1)
    return _notice(client, queue, queue, heard)


@contextmanager
def _workers(server: Server, hosts: str, kind: str, heard: dict[str, float]) -> Iterator[float]:
    """Workers, as long as the block runs; what they say is noted with its time."""

    def listen(process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            heard[line.strip()] = time.monotonic()

    with ExitStack() as stack:
        began = time.monotonic()
        for _ in range(WORKERS):
            command = [sys.executable, "-m", "tests.bench.slots", server.url, hosts, kind, kind]
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            threading.Thread(target=listen, args=(process,), daemon=True).start()
        yield began


if __name__ == "__main__":
    work(*sys.argv[1:5])
