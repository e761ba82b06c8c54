"""The console beside load: what ten open ones take from appends, and how soon a page of queues comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from time import perf_counter

from tests.bench.drivers import NUMBER, append_one, drive, in_turn, numbered, request
from tests.bench.measure import alternate, ratios
from tests.bench.plan import CONNECTIONS, PARTITIONS, Plan
from tests.bench.servers import APPLICATION, KEY, Server, queuey
from tests.bench.table import Row, number, times
from tests.support.visitors import Visitor, signed_in

CONSOLES = 10
VISITS = 200
COST_SECONDS = 10.0
_PAUSE_SECONDS = 2.0
"""Between two pages of somebody that looks around."""
_NAME = f"q{NUMBER}"
_PAGE = f"/console/a/{APPLICATION}?prefix=q&offset="


def measure(plan: Plan) -> Iterator[Row]:
    """Appends beside open consoles, and pages of queues beside appends."""
    with queuey(plan.fresh("console")) as server:
        server.create("jobs", PARTITIONS)
        form = request(
            "POST", f"/v1/{APPLICATION}", f"queue_name={_NAME}", Content_Type="application/x-www-form-urlencoded"
        )
        drive(server, numbered(form, 0, plan.queues), CONNECTIONS)
        server.settle()
        before = server.rss_mib()
        with signed_in(server.url, KEY) as visitor:
            visitor.get(f"{_PAGE}q")
        loaded = server.rss_mib()
        yield from _pages(server, plan)
        yield _memory(server, plan, before, loaded)
        yield _appends(server, plan)
        yield _cost(server)


def _appends(server: Server, plan: Plan) -> Row:
    script = in_turn([append_one("jobs")])

    def beside() -> float:
        with _open_consoles(server):
            return drive(server, script, CONNECTIONS, plan.seconds).rate

    alone, ours = alternate(lambda: drive(server, script, CONNECTIONS, plan.seconds).rate, beside, plan.rounds)
    what = f"append, 1 per request, beside {CONSOLES} open consoles"
    return Row(
        what,
        f"{number(median(alone))} /s without them",
        f"{number(median(ours))} /s",
        ratios(ours, alone),
        goal="ratio >= 0.97",
    )


def _cost(server: Server) -> Row:
    """What open consoles take of the server's processor where nothing else goes on."""
    server.settle()
    with _open_consoles(server):
        time.sleep(_PAUSE_SECONDS)  # they begin one after the other
        before, began = server.cpu_seconds(), perf_counter()
        time.sleep(COST_SECONDS)
        used, seconds = server.cpu_seconds() - before, perf_counter() - began
    what = (
        f"processor time that {CONSOLES} open consoles take, each with a stream and a page every {_PAUSE_SECONDS:g} s"
    )
    return Row(what, "", f"{1000 * used / seconds:.0f} ms a second", figures={"ms": 1000 * used / seconds})


@contextmanager
def _open_consoles(server: Server) -> Iterator[None]:
    """Each has a stream of figures, and looks at a page of queues every other second."""
    over = threading.Event()
    with ExitStack() as stack:
        for turn in range(CONSOLES):
            visitor = stack.enter_context(signed_in(server.url, KEY))
            for work in (_follow, _look_around):
                thread = threading.Thread(target=work, args=(visitor, over, turn))
                thread.start()
                stack.callback(thread.join)
        stack.callback(over.set)
        yield


def _follow(visitor: Visitor, over: threading.Event, turn: int) -> None:
    path, accept = f"/console/v1/{APPLICATION}?stats=true", {"Accept": "text/event-stream"}
    with visitor.session.get(visitor.url + path, headers=accept, stream=True, timeout=60) as answer:
        for _ in answer.iter_lines():
            if over.is_set():
                return


def _look_around(visitor: Visitor, over: threading.Event, turn: int) -> None:
    while not over.wait(_PAUSE_SECONDS):
        visitor.get(f"{_PAGE}q{turn:07d}")


def _memory(server: Server, plan: Plan, before: float, loaded: float) -> Row:
    """What the server's memory has grown by since the first page, which loads the program of the console."""
    server.settle()
    grown = server.rss_mib() - loaded
    what = f"memory of the server for {2 * VISITS} visits to a console of {plan.queues:,} queues"
    baseline = f"{loaded - before:.0f} MiB for its first page"
    return Row(what, baseline, f"{grown:.1f} MiB more", goal="more <= 20 MiB", figures={"more": grown})


def _pages(server: Server, plan: Plan) -> Iterator[Row]:
    """Pages from all over the names and the overview, while others append."""
    script, over = in_turn([append_one("jobs")]), threading.Event()

    def append() -> None:
        while not over.is_set():
            drive(server, script, 2, 1)

    load = threading.Thread(target=append)
    load.start()
    queues: list[float] = []
    overview: list[float] = []
    try:
        with signed_in(server.url, KEY) as visitor:
            for visit in range(VISITS):
                queues.append(_took(visitor, f"{_PAGE}q{plan.queues * visit // VISITS:07d}"))
                overview.append(_took(visitor, f"/console/overview/{APPLICATION}"))
    finally:
        over.set()
        load.join()
    goal = "p99 <= 200 ms"
    yield times(f"a page of {plan.queues:,} queues in the console, beside appends", queues, goal=goal)
    yield times(f"the overview of an application with {plan.queues:,} queues, beside appends", overview, goal=goal)


def _took(visitor: Visitor, path: str) -> float:
    """Milliseconds for a page."""
    began = perf_counter()
    visitor.get(path)
    return 1000 * (perf_counter() - began)
