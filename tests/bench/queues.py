"""A million queues, against ten."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from tests.bench.drivers import (
    NUMBER,
    Load,
    append_one,
    drive,
    in_turn,
    numbered,
    read_page,
    request,
    scattered,
)
from tests.bench.leases import Run, run_load
from tests.bench.measure import Spread, alternate, ratios
from tests.bench.plan import CONNECTIONS, PAGE, Plan
from tests.bench.servers import APPLICATION, Server, queuey
from tests.bench.table import Row, number

FEW = 10
LEAST = 1000
"""Of so few, the first tenth and the last can still be told apart."""
_PART = 30_000
"""Queues that are created first, and last, if these are no more than a tenth."""
_NAME = f"q{NUMBER}"
_OVERLAP = 2 * CONNECTIONS
"""Requests that were under way when a run ended are sent again by the next: creating a queue twice changes nothing."""


def measure(plan: Plan) -> Iterator[Row]:
    """Creation, memory, appends over all, reads of one."""
    with queuey(plan.fresh("many")) as many, queuey(plan.fresh("few")) as few:
        for server in (many, few):
            for turn in range(FEW):
                server.create(_NAME.replace(NUMBER, f"{turn:07d}"))
        few.settle()
        made = _create_all(many, plan)
        yield _creation(made, plan)
        yield _memory(made, plan)
        yield _appends(many, few, plan)
        yield _reads(many, few, plan)


class _Made(NamedTuple):
    """How the queues came to be."""

    early: Load
    middle: Load
    late: Load
    grown_mib: float

    @property
    def rate(self) -> float:
        return sum(part.requests for part in self[:3]) / sum(part.seconds for part in self[:3])


def _create_all(server: Server, plan: Plan) -> _Made:
    """In three runs, so that the first and the last can be compared."""
    text = request(
        "POST", f"/v1/{APPLICATION}", f"queue_name={_NAME}", Content_Type="application/x-www-form-urlencoded"
    )
    server.settle()
    before = server.rss_mib()
    early, middle, late = (drive(server, numbered(text, *part), CONNECTIONS) for part in parts(plan.queues))
    server.settle()
    return _Made(early, middle, late, server.rss_mib() - before)


def parts(queues: int) -> list[tuple[int, int]]:
    """The first and the last of each run's numbers, however few there are.

    >>> parts(1000), parts(1_000_000)[1]
    ([(10, 100), (36, 900), (836, 1064)], (29936, 970000))
    """
    part = min(queues // 10, _PART)
    return [
        (FEW, part),
        (max(part - _OVERLAP, FEW), queues - part),
        (queues - part - _OVERLAP, queues + _OVERLAP),
    ]


def _creation(made: _Made, plan: Plan) -> Row:
    cost = made.early.rate / made.late.rate
    return Row(
        f"{plan.queues:,} queues: create",
        f"{number(made.early.rate)} /s when there are few",
        f"{number(made.late.rate)} /s at the end, {number(made.rate)} /s over all",
        Spread(cost, cost, cost),
        first="ratio <= 2",
        goal="rate >= 8,000 /s, ratio <= 2",
        figures={"rate": made.rate},
    )


def _memory(made: _Made, plan: Plan) -> Row:
    each = made.grown_mib * 1024 / plan.queues
    return Row(
        f"{plan.queues:,} queues: memory",
        "",
        f"{made.grown_mib:.0f} MiB more, {each:.3f} KiB a queue",
        goal="each <= 0.2 KiB",
        figures={"each": each},
    )


def _appends(many: Server, few: Server, plan: Plan) -> Row:
    """Some of the queues get more than the others: those the readers read."""
    text = append_one(_NAME)
    below, ours = alternate(
        lambda: _quietly(few, scattered(text, FEW), plan),
        lambda: _quietly(many, scattered(text, plan.queues, FEW), plan),
        plan.rounds,
    )
    rates, times = ([[one[at] for one in runs] for runs in (below, ours)] for at in (0, 1))
    return Row(
        f"{plan.queues:,} queues: append, 1 per request, over all",
        f"{number(median(rates[0]))} /s over {FEW} queues",
        f"{number(median(rates[1]))} /s; processor {ratios(times[1], times[0]).middle:.2f} times",
        ratios(*rates),
        first="ratio <= 1.5",
        goal="ratio <= 1.3",
    )


def _quietly(server: Server, script: str, plan: Plan) -> Run:
    found = run_load(server, script, 1, plan.seconds)
    server.settle()
    return found


def _reads(many: Server, few: Server, plan: Plan) -> Row:
    """The first hundred messages of some queues, whose rows lie between those of all others."""
    names = [_NAME.replace(NUMBER, f"{turn:07d}") for turn in range(FEW)]
    script = in_turn([read_page(name, "0") for name in names])
    for server in (many, few):
        for name in names:
            _fill_up(server, name)
    below, ours = alternate(
        lambda: drive(few, script, 1, plan.seconds).rate, lambda: drive(many, script, 1, plan.seconds).rate, plan.rounds
    )
    return Row(
        f"{plan.queues:,} queues: read of one, 1 reader",
        f"{number(PAGE * median(below))} msg/s of one among {FEW}",
        f"{number(PAGE * median(ours))} msg/s",
        ratios(below, ours),
        first="ratio <= 2",
        goal="ratio <= 1.3",
    )


def _fill_up(server: Server, name: str) -> None:
    """See that there is a whole page, however short the runs before were."""
    there = len(server.ask("GET", f"/v1/{APPLICATION}/{name}?limit={PAGE}").json()["messages"])
    if there < PAGE:
        messages = [{"body": "x" * 256}] * (PAGE - there)
        server.ask("POST", f"/v1/{APPLICATION}/{name}", json={"messages": messages})
