"""What the worst that one caller can ask costs another application's requests, and the heartbeat."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context

from tests.bench.measure import BenchFailed, percentile
from tests.bench.plan import Plan
from tests.bench.table import Row
from tests.support.servers import shipped
from tests.support.worst import ASKED, AT_ONCE, SETTINGS, Bystander, Request, Stage, attack

_SHARE = 4
"""Of the time of a measurement each request of each caller gets one part in this many: there are some hundred."""


def measure(plan: Plan) -> Iterator[Row]:
    """Each request at its worst, by each caller, :data:`AT_ONCE` at once, again and again; of all of them the one that costs most."""
    others: dict[str, list[float]] = {}
    beats: dict[str, list[float]] = {}
    folder = plan.fresh("worst")
    with (
        shipped(folder, settings=SETTINGS) as running,
        Stage(running) as stage,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
    ):
        for route, method in ASKED:
            for request, caller in stage.attacks(route, method):
                name = f"{request} by {caller}"
                other = _beside(stage, pool, request, caller, plan.seconds / _SHARE)
                if other.refused:
                    raise BenchFailed(f"{name}: others were refused: {other.refused[0]}")
                others[name], beats[name] = other.took, other.beats
    yield _worst("requests of another application", others, "p99 <= 100 ms")
    yield _worst("heartbeats", beats, "p99 <= 50 ms")


def _beside(stage: Stage, pool: Executor, request: Request, caller: str, seconds: float) -> Bystander:
    with stage.bystander() as other:
        pool.submit(repeat, stage.running.port, request, stage.callers[caller], seconds).result()
    return other


def repeat(port: int, request: Request, credential: str, seconds: float) -> None:
    """Attack until the time is over; a process of its own does so, or it would slow down what is measured."""
    until = time.monotonic() + seconds
    while attack(port, request, credential) and time.monotonic() < until:
        pass


def _worst(who: str, took: dict[str, list[float]], goal: str) -> Row:
    worst, seconds = max(took.items(), key=lambda item: percentile(item[1], 0.99))
    p50, p99 = (1000 * percentile(seconds, share) for share in (0.5, 0.99))
    what = f"{who}, beside {len(took)} of the worst requests, {AT_ONCE} at once"
    ours = f"p50 {p50:.0f} ms, p99 {p99:.0f} ms beside {worst}"
    return Row(what, "", ours, goal=goal, figures={"p50": p50, "p99": p99})
