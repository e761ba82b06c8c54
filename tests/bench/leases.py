"""Lease groups: messages received and acknowledged, compared with appends of as many in a request.

Then what is handed out as Arrow beside reads, and how long a message takes to a receiver that waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from statistics import median
from typing import NamedTuple

from queuey.http.exchange import ARROW
from tests.bench import arrival
from tests.bench.drivers import drive, in_turn, request
from tests.bench.measure import BenchFailed, alternate, percentile, ratios
from tests.bench.plan import BODY, CONNECTIONS, PAGE, TTL_SECONDS, Plan
from tests.bench.servers import APPLICATION, Server, queuey
from tests.bench.table import Row, number

GROUP = "bench"
PARTITIONS = 1
FILLED = 1000
"""Messages of a request that fills a queue."""
_MOST_A_SECOND = {1: 15_000, 10: 80_000, 100: 400_000}
"""More messages than one second hands out, by the number in a request."""

APART = """
  if receipts then return whole('{"acknowledge":[' .. receipts .. ']}') end
  return whole('{"receive":{"max":%d}}')
"""
TOGETHER = """
  if receipts then return whole('{"acknowledge":[' .. receipts .. '],"receive":{"max":%d}}') end
  return whole('{"receive":{"max":%d}}')
"""


def receive_head(queue: str) -> str:
    """A request to the lease group up to the length of its body."""
    head = request("POST", f"/v1/{APPLICATION}/{queue}/leases/{GROUP}", "", Content_Type="application/json")
    return head.removesuffix("0\r\n\r\n")


_ATTEMPT = """body = string.format('{"attempt":"%08x%08x%08x%08x",', part(), part(), part(), part()) .. body:sub(2)"""
"""Random, as clients draw it."""


def lease_script(queue: str, asks: str, attempt_seed: int | None = None) -> str:
    """Settles what earlier answers handed out.

    :param attempt_seed: gives each request an attempt of its own, with a random name; None for no attempts.
    """
    before = json.dumps(receive_head(queue))
    return f"""
local held = {{}}
math.randomseed({(attempt_seed or 0) + 1})
local function part() return math.random(0, 0x7fffffff) end
local function whole(body)
  {"" if attempt_seed is None else _ATTEMPT}
  return {before} .. #body .. "\\r\\n\\r\\n" .. body
end
request = function()
  local receipts = table.remove(held)
  {asks}
end
response = function(status, headers, body)
  local found = {{}}
  for receipt in body:gmatch('"receipt":"([^"]+)"') do found[#found + 1] = '"' .. receipt .. '"' end
  if #found > 0 then held[#held + 1] = table.concat(found, ",") end
end
"""


def append_some(queue: str, messages: int) -> str:
    """Messages of 256 bytes; one goes raw."""
    path = f"/v1/{APPLICATION}/{queue}"
    if messages == 1:
        return request("POST", path, BODY, Content_Type="text/plain", X_TTL=str(TTL_SECONDS))
    body = json.dumps({"messages": [{"body": BODY, "ttl": TTL_SECONDS}] * messages})
    return request("POST", path, body, Content_Type="application/json")


class Run(NamedTuple):
    """What one load took."""

    messages_a_second: float
    cpu_us: float
    """Of the server's processor time, for each message."""


def run_load(server: Server, script: str, messages: float, seconds: float, connections: int = CONNECTIONS) -> Run:
    """:param messages: of a request."""
    before = server.cpu_seconds()
    load = drive(server, script, connections, seconds)
    return Run(load.rate * messages, (server.cpu_seconds() - before) / (load.requests * messages) * 1e6)


def _receiving(server: Server, names: Iterator[str], messages: int, asks: str, plan: Plan, requests: int) -> Run:
    """Receive and acknowledge from a queue that has more than enough."""
    queue = next(names)
    fill(server, queue, enough(messages, plan.seconds))
    found = run_load(server, lease_script(queue, asks), messages / requests, plan.seconds)
    _check_rest(server, queue)
    return found


def enough(messages: int, seconds: float) -> int:
    """More messages than this time hands out.

    :param messages: in a request.
    """
    return round(_MOST_A_SECOND[messages] * (seconds + 1))


def fill(server: Server, queue: str, messages: int) -> None:
    """Append messages to a queue, made if there is none."""
    server.create(queue, PARTITIONS)
    filled = {"messages": [{"body": BODY, "ttl": TTL_SECONDS}] * FILLED}
    for _ in range(messages // FILLED):
        server.ask("POST", f"/v1/{APPLICATION}/{queue}", json=filled)
    server.settle()


def _check_rest(server: Server, queue: str) -> None:
    """:raises BenchFailed: the queue ran empty, so that requests got nothing."""
    path = f"/v1/{APPLICATION}/{queue}/leases/{GROUP}"
    check_not_empty(server.ask("POST", path, json={"receive": {"max": 1}}).json()["messages"])
    server.settle()


def check_not_empty(left: Sequence[object]) -> None:
    """:raises BenchFailed: a queue ran empty, so that requests got nothing."""
    if not left:
        raise BenchFailed("the queue ran empty: it had too few messages for this machine")


def _row(plan: Plan, what: str, messages: int, asks: str, *, requests: int = 1, first: str, goal: str) -> Row:
    """:param requests: for each batch of messages."""
    names = (f"leases-{at}" for at in count())
    with queuey(plan.fresh("leases")) as server:
        server.create("appended", PARTITIONS)
        text = append_some("appended", messages)

        def appended() -> Run:
            found = run_load(server, in_turn([text]), messages, plan.seconds)
            server.settle()
            return found

        def received() -> Run:
            return _receiving(server, names, messages, asks, plan, requests)

        below, ours = alternate(appended, received, plan.rounds)
    return row_of(what, f"appended, {messages} per request", below, ours, first=first, goal=goal)


def row_of(what: str, beside: str, below: Sequence[Run], ours: Sequence[Run], *, first: str, goal: str) -> Row:
    """Messages of ours by those below, and the processor time of each."""
    rates = [[run.messages_a_second for run in runs] for runs in (ours, below)]
    times = [[run.cpu_us for run in runs] for runs in (ours, below)]
    return Row(
        what,
        f"{number(median(rates[1]))} msg/s {beside}",
        f"{number(median(rates[0]))} msg/s; processor {ratios(*times).middle:.2f} times",
        ratios(*rates),
        first=first,
        goal=goal,
    )


def _popped(plan: Plan) -> Row:
    """Pops of a hundred as Arrow, beside reads of as many."""
    names = (f"popped-{at}" for at in count())
    with queuey(plan.fresh("popped")) as server:
        fill(server, "read", 10 * FILLED)
        page = server.ask("GET", f"/v1/{APPLICATION}/read?limit={FILLED}").json()["messages"]
        path = f"/v1/{APPLICATION}/read?limit={PAGE}&since="
        reads = in_turn([request("GET", path + one["message_id"], Accept=ARROW) for one in page[::PAGE]])
        body = json.dumps({"receive": {"max": PAGE, "pop": True}})

        def read() -> float:
            return drive(server, reads, CONNECTIONS, plan.seconds).rate * PAGE

        def popped() -> float:
            queue = next(names)
            fill(server, queue, enough(PAGE, plan.seconds))
            pop = request("POST", f"/v1/{APPLICATION}/{queue}/leases/{GROUP}", body, Accept=ARROW)
            load = drive(server, in_turn([pop]), CONNECTIONS, plan.seconds)
            _check_rest(server, queue)
            return load.rate * PAGE

        below, ours = alternate(read, popped, plan.rounds)
    return Row(
        f"pop by hundreds, Arrow, {CONNECTIONS} receivers",
        f"{number(median(below))} msg/s read as Arrow, {PAGE} per request",
        f"{number(median(ours))} msg/s",
        ratios(ours, below),
    )


def _waiting(plan: Plan) -> Row:
    """A message's way to a receiver that waits, beside its way to a reader that waits."""
    messages = round(arrival.RATE * plan.seconds)

    def arrived(follow: Callable[[int, int], list[float]]) -> list[float]:
        with queuey(plan.fresh("waiting")) as server:
            server.create(arrival.QUEUE)
            return arrival.beside_a_writer(server, messages, follow)

    def read(port: int, count: int) -> list[float]:
        return arrival.follow(port, count, wait_seconds=arrival.WAIT_SECONDS)[0]

    below, ours = alternate(lambda: arrived(read), lambda: arrived(arrival.receive), plan.rounds)
    p99s = [[percentile(took, 0.99) for took in runs] for runs in (ours, below)]
    cost = ratios(*p99s)
    return Row(
        f"append to a receiver that waits, {arrival.RATE} appends/s: p99",
        f"{median(p99s[1]):.2f} ms to a reader that waits",
        f"{median(p99s[0]):.2f} ms, p50 {median([median(took) for took in ours]):.2f} ms",
        cost,
        first="cost <= 1.5",
        goal="cost <= 1.1",
        figures={"cost": cost.middle},
    )


def measure(plan: Plan) -> Iterator[Row]:
    """Two requests for each message, then one, then one for ten and for a hundred; pops; a receiver that waits."""
    yield _row(
        plan,
        "receive and acknowledge, two requests a message",
        1,
        APART % 1,
        requests=2,
        first="ratio >= 0.3",
        goal="ratio >= 0.45",
    )
    for messages, first, goal in ((1, 0.6, 0.85), (10, 0.4, 0.8), (100, 0.4, 0.8)):
        yield _row(
            plan,
            f"acknowledge and receive in one request, {messages} per request",
            messages,
            TOGETHER % (messages, messages),
            first=f"ratio >= {first}",
            goal=f"ratio >= {goal}",
        )
    yield _popped(plan)
    yield _waiting(plan)
