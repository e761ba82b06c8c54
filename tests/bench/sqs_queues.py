"""A hundred thousand queues of SQS clients, against ten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from botocore.credentials import Credentials

from tests.bench.drivers import NUMBER, drive, numbered
from tests.bench.leases import Run, run_load
from tests.bench.measure import Spread, alternate, ratios
from tests.bench.plan import CONNECTIONS, Plan
from tests.bench.queues import FEW, parts
from tests.bench.servers import Server, access_key, queuey
from tests.bench.sqs import OPEN, cycle, make_queue, signed
from tests.bench.table import Row, number

MOST = 100_000
_NAME = f"q{NUMBER}"


def measure(plan: Plan) -> Iterator[Row]:
    """Creation; then messages sent, received and deleted over all of them, each of which was used before."""
    queues = min(plan.queues, MOST)
    with _server(plan, "many") as (many, key), _server(plan, "few") as (few, key_of_few):
        url = make_queue(many, key, _NAME)
        for turn in range(FEW + 1):  # the generator leaves out the first: it only looks at that request
            for server, each in ((many, key), (few, key_of_few)):
                make_queue(server, each, _NAME.replace(NUMBER, f"{turn:07d}"))
        text = signed(key, "CreateQueue", {"QueueName": _NAME})
        many.settle()
        early, middle, late = (drive(many, numbered(text, *part), CONNECTIONS) for part in parts(queues))
        cost = early.rate / late.rate
        yield Row(
            f"SQS, {queues:,} queues: create",
            f"{number(early.rate)} /s when there are few",
            f"{number(late.rate)} /s at the end, {number(middle.rate)} /s between",
            Spread(cost, cost, cost),
            first="ratio <= 1.5",
            goal="ratio <= 1.2",
        )
        everywhere, among_few = f"return math.random(0, {queues - 1})", f"return math.random(0, {FEW - 1})"
        for server, each, count in ((many, key, queues), (few, key_of_few, FEW)):
            drive(server, cycle(each, url, 1, f"return n % {count}", cycles=queues), CONNECTIONS)
            server.settle()

        def run(server: Server, each: Credentials, pick: str) -> Run:
            found = run_load(server, cycle(each, url, 1, pick), 1 / 3, plan.seconds)
            server.settle()
            return found

        below, ours = alternate(
            lambda: run(few, key_of_few, among_few), lambda: run(many, key, everywhere), plan.rounds
        )
        rates, times = ([[one[at] for one in runs] for runs in (below, ours)] for at in (0, 1))
        yield Row(
            f"SQS, {queues:,} queues: send, receive and delete, over all",
            f"{number(median(rates[0]))} msg/s over {FEW} queues",
            f"{number(median(rates[1]))} msg/s; processor {ratios(times[1], times[0]).middle:.2f} times",
            ratios(*rates),
            first="ratio <= 1.5",
            goal="ratio <= 1.2",
        )


@contextmanager
def _server(plan: Plan, name: str) -> Iterator[tuple[Server, Credentials]]:
    folder = plan.fresh(name)
    key = Credentials(*access_key(folder))
    with queuey(folder, OPEN) as server:
        yield server, key
