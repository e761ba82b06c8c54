"""Five million stored messages, against none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from statistics import median

from tests.bench import baselines
from tests.bench.drivers import append_one, drive, in_turn, read_page
from tests.bench.measure import BenchFailed, alternate, ratios
from tests.bench.plan import CONNECTIONS, PAGE, Plan
from tests.bench.servers import APPLICATION, Server, queuey
from tests.bench.store import fill, make_queue, open_store
from tests.bench.table import Row, number

QUEUES = [f"stored{turn}" for turn in range(10)]
_FEW = 10_000
"""Messages of the store that counts as empty: there must be pages to read."""
_PAGES = 1000
_UNDER_LOAD_SECONDS = 1


def measure(plan: Plan) -> Iterator[Row]:
    """Appends, reads from all over the store, and a restart after kill -9."""
    full, empty = plan.fresh("full"), plan.fresh("empty")
    plan.tell(f"storing {plan.stored:,} messages")
    for folder, messages in ((full, plan.stored), (empty, _FEW)):
        with open_store(folder) as store:
            fill(store, [make_queue(store, name, 1) for name in QUEUES], messages)
    yield from _restarts(full, empty, plan)
    with queuey(full) as large, queuey(empty) as small:
        plan.tell("waiting for the check of the large file")
        large.settle()
        yield _reads(large, full, small, empty, plan)
        yield _appends(large, small, plan)


def _appends(large: Server, small: Server, plan: Plan) -> Row:
    script = in_turn([append_one(name) for name in QUEUES])

    def rate(server: Server) -> float:
        found = drive(server, script, CONNECTIONS, plan.seconds).rate
        server.settle()
        return found

    below, ours = alternate(lambda: rate(small), lambda: rate(large), plan.rounds)
    return Row(
        f"{plan.stored:,} stored: append, 1 per request",
        f"{number(median(below))} /s when empty",
        f"{number(median(ours))} /s",
        ratios(below, ours),
        first="ratio <= 1.5",
        goal="ratio <= 1.2",
    )


def _reads(large: Server, full: Path, small: Server, empty: Path, plan: Plan) -> Row:
    of_large, of_small = _pages(full), _pages(empty)
    below, ours = alternate(
        lambda: PAGE * drive(small, of_small, 1, plan.seconds).rate,
        lambda: PAGE * drive(large, of_large, 1, plan.seconds).rate,
        plan.rounds,
    )
    return Row(
        f"{plan.stored:,} stored: read pages of 100 from all over, 1 reader",
        f"{number(median(below))} msg/s when empty",
        f"{number(median(ours))} msg/s",
        ratios(below, ours),
        first="ratio <= 1.5",
        goal="ratio <= 1.2",
    )


def _pages(folder: Path) -> str:
    """Reads of whole pages, in no order."""
    dice = Random(1)
    requests = []
    for name in QUEUES:
        ids = [message.id for message in baselines.messages_of(folder, name, with_bodies=False)]
        requests += [read_page(name, dice.choice(ids[:-PAGE]).hex) for _ in range(_PAGES // len(QUEUES))]
    dice.shuffle(requests)
    return in_turn(requests)


def _restarts(full: Path, empty: Path, plan: Plan) -> Iterator[Row]:
    below, ours = alternate(lambda: _restart(empty), lambda: _restart(full), min(plan.rounds, 3))
    worst = max(ours)
    yield Row(
        f"{plan.stored:,} stored: restart after kill -9, to the first answer",
        f"{median(below):.2f} s when empty",
        f"{median(ours):.2f} s, worst {worst:.2f} s",
        ratios(ours, below),
        first="ratio <= 1.5",
        goal="ratio <= 1.2, worst <= 3 s",
        figures={"worst": worst},
    )


def _restart(folder: Path) -> float:
    """Kill a server under load; from the start of the next to a page read from it."""
    script = in_turn([append_one(name) for name in QUEUES])
    with queuey(folder) as server, ThreadPoolExecutor(1) as threads:
        load = threads.submit(drive, server, script, CONNECTIONS, 2 * _UNDER_LOAD_SECONDS)
        time.sleep(_UNDER_LOAD_SECONDS)
        server.kill()
        if load.exception() is None:
            raise BenchFailed("the load did not notice that the server was killed")
    with queuey(folder) as server:
        began = time.perf_counter()
        page = server.ask("GET", f"/v1/{APPLICATION}/{QUEUES[0]}").json()["messages"]
        if len(page) != PAGE:
            raise BenchFailed(f"{len(page)} messages after a restart")
        return server.started_seconds + time.perf_counter() - began
