"""Appends: one message a request, and a hundred."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from statistics import median

from tests.bench.baselines import bulk_inserts
from tests.bench.drivers import Load, append_batch, append_keyed, append_one, drive, in_turn, named
from tests.bench.measure import alternate, ratios
from tests.bench.plan import BATCH, CONNECTIONS, PARTITIONS, Plan
from tests.bench.servers import Server, front, queuey
from tests.bench.table import Row, number

QUEUE = "bench"


def _appending(server: Server, text: str, seconds: float) -> Load:
    load = drive(server, in_turn([text]), CONNECTIONS, seconds)
    server.settle()
    return load


def _beside(plan: Plan, bare: Server, server: Server) -> tuple[list[Load], list[Load]]:
    """One message a request, to both in turn."""
    text = append_one(QUEUE)
    server.create(QUEUE, PARTITIONS)
    return alternate(
        lambda: _appending(bare, text, plan.seconds), lambda: _appending(server, text, plan.seconds), plan.rounds
    )


def single(plan: Plan) -> Iterator[Row]:
    """One message a request, against a front that answers the same without storing."""
    with front() as bare, queuey(plan.fresh("append")) as server:
        below, ours = _beside(plan, bare, server)
    p50, p99 = median(load.p50_ms for load in ours), median(load.p99_ms for load in ours)
    yield Row(
        "append, 1 per request",
        f"{number(median(load.rate for load in below))} /s answered without storing",
        f"{number(median(load.rate for load in ours))} /s, p50 {p50:.2f} ms, p99 {p99:.2f} ms",
        ratios([load.rate for load in ours], [load.rate for load in below]),
        first="ratio >= 0.3",
        goal="ratio >= 0.5, p99 <= 5 ms",
        figures={"p99": p99},
    )


def keyed(plan: Plan) -> Iterator[Row]:
    """One message a request, each with an idempotency key of its own, as our client sends them."""
    text, runs = append_keyed(QUEUE), count()
    with queuey(plan.fresh("keyed")) as server:
        server.create(QUEUE, PARTITIONS)

        def with_keys() -> Load:
            # No key comes twice: a repeat would be answered from what is stored.
            load = drive(server, named(text, next(runs)), CONNECTIONS, plan.seconds)
            server.settle()
            return load

        below, ours = alternate(lambda: _appending(server, append_one(QUEUE), plan.seconds), with_keys, plan.rounds)
    yield Row(
        "append, 1 per request, with an Idempotency-Key",
        f"{number(median(load.rate for load in below))} /s without one",
        f"{number(median(load.rate for load in ours))} /s",
        ratios([load.rate for load in ours], [load.rate for load in below]),
    )


def forgotten(plan: Plan) -> Iterator[Row]:
    """One message a request that nobody stores: what all the rest of the server costs."""
    with front() as bare, front("forgetful") as server:
        below, ours = _beside(plan, bare, server)
    yield Row(
        "append, 1 per request, all but the store",
        f"{number(median(load.rate for load in below))} /s answered without storing",
        f"{number(median(load.rate for load in ours))} /s",
        ratios([load.rate for load in ours], [load.rate for load in below]),
    )


def hundreds(plan: Plan) -> Iterator[Row]:
    """A hundred messages a request, against the store alone."""
    text = append_batch(QUEUE)
    with queuey(plan.fresh("batch")) as server:
        server.create(QUEUE, PARTITIONS)
        below, ours = alternate(
            lambda: bulk_inserts(plan.fresh("bulk"), plan.seconds),
            lambda: BATCH * _appending(server, text, plan.seconds).rate,
            plan.rounds,
        )
    yield Row(
        "append, 100 per request",
        f"{number(median(below))} msg/s inserted by the store",
        f"{number(median(ours))} msg/s",
        ratios(ours, below),
        first="ratio >= 0.4",
        goal="ratio >= 0.75",
    )
