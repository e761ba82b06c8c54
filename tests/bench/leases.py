"""Lease groups: messages received and acknowledged, compared with appends of as many in a request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from statistics import median

from tests.bench.drivers import Load, drive, in_turn, request
from tests.bench.measure import BenchFailed, alternate, ratios
from tests.bench.plan import BODY, CONNECTIONS, TTL_SECONDS, Plan
from tests.bench.servers import APPLICATION, Server, queuey
from tests.bench.table import Row, number

GROUP = "bench"
PARTITIONS = 1
FILLED = 1000
"""Messages of a request that fills a queue."""
_MOST_A_SECOND = {1: 15_000, 10: 50_000, 100: 100_000}
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


def _script(queue: str, asks: str) -> str:
    """Settles what earlier answers handed out."""
    before = json.dumps(receive_head(queue))
    return f"""
local held = {{}}
local function whole(body) return {before} .. #body .. "\\r\\n\\r\\n" .. body end
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


def _receiving(server: Server, names: Iterator[str], messages: int, asks: str, seconds: float) -> Load:
    """Receive and acknowledge from a queue that has more than enough."""
    queue = next(names)
    server.create(queue, PARTITIONS)
    filled = {"messages": [{"body": BODY, "ttl": TTL_SECONDS}] * FILLED}
    for _ in range(round(_MOST_A_SECOND[messages] * (seconds + 1)) // FILLED):
        server.ask("POST", f"/v1/{APPLICATION}/{queue}", json=filled)
    server.settle()
    load = drive(server, _script(queue, asks), CONNECTIONS, seconds)
    path = f"/v1/{APPLICATION}/{queue}/leases/{GROUP}"
    left = server.ask("POST", path, json={"receive": {"max": 1}}).json()["messages"]
    if not left:
        raise BenchFailed(f"the queue ran empty: it had too few messages for {load.rate:.0f} requests a second")
    server.settle()
    return load


def _row(plan: Plan, what: str, messages: int, asks: str, *, requests: int = 1, first: str, goal: str) -> Row:
    """:param requests: for each batch of messages."""
    names = (f"leases-{at}" for at in count())
    with queuey(plan.fresh("leases")) as server:
        server.create("appended", PARTITIONS)
        text = append_some("appended", messages)

        def appended() -> float:
            load = drive(server, in_turn([text]), CONNECTIONS, plan.seconds)
            server.settle()
            return load.rate * messages

        def received() -> float:
            return _receiving(server, names, messages, asks, plan.seconds).rate * messages / requests

        below, ours = alternate(appended, received, plan.rounds)
    return Row(
        what,
        f"{number(median(below))} msg/s appended, {messages} per request",
        f"{number(median(ours))} msg/s",
        ratios(ours, below),
        first=first,
        goal=goal,
    )


def measure(plan: Plan) -> Iterator[Row]:
    """Two requests for each message, then one, then one for ten and for a hundred."""
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
