"""Libraries for asyncio, beside the smallest client: what each costs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from statistics import median

from tests.bench.asyncio_client import QUEUE
from tests.bench.measure import BenchFailed, alternate, ratios
from tests.bench.plan import CONNECTIONS, Plan
from tests.bench.servers import PYTHON, ROOT, Server, queuey
from tests.bench.table import Row, number

Run = dict[str, float]


def _run(way: str, server: Server, seconds: float) -> Run:
    """A process that appends."""
    command = [*PYTHON, "-m", "tests.bench.asyncio_client", way, server.url, str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(done.stderr)
    server.settle()
    found: Run = json.loads(done.stdout)
    return found


def _said(runs: list[Run]) -> str:
    rate, cost = (median(run[name] for run in runs) for name in ("rate", "cpu_us"))
    return f"{number(rate)} /s, {number(cost)} us of CPU each"


def measure(plan: Plan) -> Iterator[Row]:
    """Appends of 256 bytes from 32 tasks: the rate, and the processor time of the client."""
    with queuey(plan.fresh("asyncio")) as server:
        server.create(QUEUE)
        yield _row(plan, server, "qdo.aio", "qdo.aio on the core", "ratio >= 0.5")
        yield _row(plan, server, "aiohttp", "core")
        yield _row(plan, server, "httpx", "core")


def _row(plan: Plan, server: Server, way: str, baseline: str, bar: str = "") -> Row:
    below, ours = alternate(
        lambda: _run(baseline, server, plan.seconds), lambda: _run(way, server, plan.seconds), plan.rounds
    )
    what = f"{way}, {CONNECTIONS} tasks that append"
    rates = ratios([run["rate"] for run in ours], [run["rate"] for run in below])
    return Row(what, f"{baseline}: {_said(below)}", _said(ours), rates, first=bar, goal=bar)
