"""Workers: what they do to messages, and how long partitions are without one.

``python -m tests.bench.workers bare|work|arrive URL WHERE ...`` is one process of a row, and prints what it saw as JSON; the group
meets in a folder, or in a ZooKeeper at HOST:PORT, or is a lease group if WHERE is ``leases``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from qdo import Client, Context, Message, Worker
from qdo.groups.local import LocalCoordinator
from qdo.groups.zookeeper import ZooKeeperCoordinator
from queuey.clock import SystemClock
from tests.bench.arrival import RATE
from tests.bench.measure import BenchFailed, alternate, ratios
from tests.bench.plan import BODY, Plan
from tests.bench.servers import APPLICATION, KEY, ROOT, Server, queuey
from tests.bench.table import Row, number, times
from tests.support.services.zookeeper import ZooKeeper

QUEUE = "work"
LEASES = "leases"
ARRIVAL = "arrival"
PARTITIONS = 8
JOB_SECONDS = 0.005
JOBS = 600
"""Of 5 ms for each worker: three seconds' worth."""
WORKER_COUNTS = (2, 4)
PACED_THREADS, PACED_SECONDS = 4, 0.0002
"""Some 10,000 messages a second: a pause of 0.2 ms takes a little longer."""
_PAGE = 1000
REQUESTS_BEFORE = 4000
"""That qdo 0.1 sent for 1,000 messages (queuey-api-v1 13.3)."""

elapsed = SystemClock().elapsed


def client(url: str) -> Client:
    return Client(url, APPLICATION, KEY)


# One process of a row.


def bare(url: str) -> dict[str, float]:
    """Read everything, do nothing."""
    with client(url) as asked:
        began = elapsed()
        count = sum(1 for _ in asked.iterate(QUEUE, limit=_PAGE))
    return {"count": count, "seconds": elapsed() - began}


class JobTimes:
    """What a job saw: how many, when the first and the last."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.count = 0
        self.first = self.last = 0.0
        self._seconds = seconds
        self._lock = threading.Lock()

    def job(self, message: Message, context: Context) -> None:
        if not self.first:
            self.first = elapsed()
        if self._seconds:
            time.sleep(self._seconds)  # a job that waits for somebody else
        self.count += 1  # the partitions of one worker take turns closely enough for a count
        self.last = elapsed()


def work(url: str, where: str, group: str, threads: int, job_seconds: float) -> dict[str, float]:
    """Work on everything that is there."""
    noted, began = JobTimes(job_seconds), time.process_time()
    worker = _worker(noted.job, url, where, group, threads=threads, exit_at_end=True)
    counts = worker.run()
    return {
        "count": counts.done,
        "first": noted.first,
        "last": noted.last,
        "seconds": noted.last - noted.first,
        "requests": worker.requests,
        "commits": counts.commits,
        "processor": time.process_time() - began,
    }


def arrive(url: str, where: str, count: int) -> dict[str, list[float]]:
    """Milliseconds from the append of each message to the beginning of its job."""
    took: list[float] = []

    def job(message: Message, context: Context) -> None:
        now = time.monotonic_ns()
        took.append((now - int(message.text.split(" ")[1])) / 1e6)
        if len(took) == count:
            worker.stop()

    worker = _worker(job, url, where, "arrive", queue=ARRIVAL)
    print("READY", flush=True)
    worker.run()
    return {"took": took}


def _worker(job: Any, url: str, where: str, group: str, *, queue: str = QUEUE, **more: Any) -> Worker:
    if where == LEASES:
        return Worker(job, [queue], None, lambda: client(url), group=group, lease=True, **more)
    by_zookeeper = ":" in where
    coordinator = ZooKeeperCoordinator(where, "bench", group) if by_zookeeper else LocalCoordinator(group, Path(where))
    return Worker(job, [queue], coordinator, lambda: client(url), group=group, **more)


# The rows.


def measure(plan: Plan) -> Iterator[Row]:
    """What one worker does; what several do; how soon a job begins."""
    with queuey(plan.fresh("workers")) as server:
        _fill(server, plan.rows)
        yield from _throughput(server, plan)
    with queuey(plan.fresh("workers")) as server:
        _fill(server, JOBS * max(WORKER_COUNTS))
        yield from _several(server, plan)
    with queuey(plan.fresh("workers")) as server:
        server.create(ARRIVAL)
        yield _arrival(server, plan)


def _fill(server: Server, count: int) -> None:
    with client(server.url) as asked:
        asked.create_queue(QUEUE, partitions=PARTITIONS)
        for _ in range(0, count, _PAGE):
            asked.append_batch(QUEUE, [BODY] * min(_PAGE, count))
    server.settle()


def _throughput(server: Server, plan: Plan) -> Iterator[Row]:
    turn = iter(range(1000))
    below, ours = alternate(
        lambda: _said("bare", server.url),
        lambda: _said("work", server.url, str(plan.fresh("groups")), f"g{next(turn)}", "4", "0"),
        plan.rounds,
    )
    if {run["count"] for run in [*below, *ours]} != {float(plan.rows)}:
        raise BenchFailed(f"not all of {plan.rows} messages were worked on once")
    rates, bares = [run["count"] / run["seconds"] for run in ours], [run["count"] / run["seconds"] for run in below]
    yield Row(
        "messages of one worker, empty job",
        f"{number(median(bares))} msg/s read by the bare client",
        f"{number(median(rates))} msg/s",
        ratios(rates, bares),
        goal="ratio >= 0.7",
    )
    requests = median(1000 * run["requests"] / run["count"] for run in ours)
    yield Row(
        "requests made for 1,000 messages",
        f"{REQUESTS_BEFORE:,} by qdo 0.1",
        number(requests),
        goal="requests <= 25",
        figures={"requests": requests},
    )
    yield _committing(server, plan)
    yield _leasing(server, plan)


def _leasing(server: Server, plan: Plan) -> Row:
    """The same messages, one by one from a lease group."""
    turn = iter(range(1000))
    owned, leased = alternate(
        lambda: _said("work", server.url, str(plan.fresh("groups")), f"o{next(turn)}", "4", "0"),
        lambda: _said("work", server.url, LEASES, f"l{next(turn)}", "4", "0"),
        plan.rounds,
    )
    if {run["count"] for run in [*owned, *leased]} != {float(plan.rows)}:
        raise BenchFailed(f"not all of {plan.rows} messages were worked on once")
    below, ours = ([run["count"] / run["seconds"] for run in runs] for runs in (owned, leased))
    said = [
        f"{number(median(rates))} msg/s, {median(1e6 * run['processor'] / run['count'] for run in runs):.0f} µs of its processor"
        for rates, runs in ((below, owned), (ours, leased))
    ]
    return Row(
        "messages of one worker on leases, empty job", f"{said[0]} by owned partitions", said[1], ratios(ours, below)
    )


def _committing(server: Server, plan: Plan) -> Row:
    """What a busy worker asks of ZooKeeper."""
    with ZooKeeper(plan.fresh("zookeeper") / "zookeeper") as service:
        (node,) = service.nodes
        before, began = node.figures["zk_packets_received"], elapsed()
        run = _said("work", server.url, service.hosts, "commits", str(PACED_THREADS), str(PACED_SECONDS))
        requests = (node.figures["zk_packets_received"] - before) / (elapsed() - began)
    rate, commits = run["count"] / run["seconds"], run["commits"] / run["seconds"]
    return Row(
        f"commits to ZooKeeper a second of one worker, at {number(rate)} messages a second",
        "",
        f"{number(commits)} /s; {number(requests)} requests of all kinds a second, its start and end included",
        goal="commits <= 20",
        figures={"commits": commits},
    )


def _several(server: Server, plan: Plan) -> Iterator[Row]:
    turn = iter(range(1000))
    for count, goal in zip(WORKER_COUNTS, ("ratio >= 1.9", "ratio >= 3.7"), strict=True):
        one, many = alternate(
            lambda: _together(server, plan, 1, f"j{next(turn)}"),
            lambda size=count: _together(server, plan, size, f"j{next(turn)}"),  # type: ignore[misc]
            max(plan.rounds // 2, 1),
        )
        yield Row(
            f"{count} workers of one thread, jobs of 5 ms",
            f"{number(median(one))} jobs/s of one worker",
            f"{number(median(many))} jobs/s",
            ratios(many, one),
            goal=goal,
        )


def _together(server: Server, plan: Plan, count: int, group: str) -> float:
    """Jobs a second of all workers together: the sum of what each did while it was at work."""
    folder = str(plan.fresh("groups"))
    arguments = ("work", server.url, folder, group, "1", str(JOB_SECONDS))
    processes = [_started(*arguments) for _ in range(count)]
    said = [_result(process) for process in processes]
    rates: list[float] = [(run["count"] - 1) / run["seconds"] for run in said]
    return sum(rates)


def _arrival(server: Server, plan: Plan) -> Row:
    count = round(RATE * plan.seconds * 2)
    worker = _started("arrive", server.url, str(plan.fresh("groups")), str(count))
    if worker.stdout is None or worker.stdout.readline().strip() != "READY":
        worker.kill()
        raise BenchFailed("the worker did not begin")
    time.sleep(2)  # it joins, and its first question waits
    command = [sys.executable, "-m", "tests.bench.arrival", str(server.port), str(count)]
    with subprocess.Popen(command, cwd=ROOT) as writer:
        took = _result(worker)["took"]
        writer.terminate()
    what = f"append to the beginning of its job, idle worker, {RATE} appends/s"
    return times(what, took, goal="p99 <= 20 ms")


def _started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench.workers", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def _result(process: subprocess.Popen[str]) -> Any:
    try:
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()  # if it has not ended by itself
    if process.returncode:
        raise BenchFailed(f"a worker ended with {process.returncode}")
    return json.loads(said.splitlines()[-1])


def _said(*arguments: str) -> Any:
    return _result(_started(*arguments))


def main(what: str, url: str, *rest: str) -> None:
    """One process of a row."""
    if what == "bare":
        said: Any = bare(url)
    elif what == "work":
        where, group, threads, seconds = rest
        said = work(url, where, group, int(threads), float(seconds))
    else:
        said = arrive(url, rest[0], int(rest[1]))
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
