"""A million users, each with a queue that names them and a token that proves them, against ten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from queuey.security.tokens import new_token_key
from tests.bench.drivers import NUMBER, drive, in_turn, numbered, request
from tests.bench.measure import BenchFailed, alternate, ratios
from tests.bench.plan import BODY, CONNECTIONS, PAGE, Plan
from tests.bench.servers import APPLICATION, Server, queuey
from tests.bench.table import Row, number

FEW = 10
READERS = 1000
"""Users that read, spread evenly over all queues: no queue is a favourite."""
_NAME = f"u{NUMBER}"
_PRINCIPAL = f"oidc:{_NAME}@example.org"
_OVERLAP = 2 * CONNECTIONS
"""Requests that are under way when the generator ends are lost."""


def measure(plan: Plan) -> Iterator[Row]:
    """Reads of one's own queue."""
    variables = {"QUEUEY_TOKENS_KEYS": new_token_key()}
    with queuey(plan.fresh("users"), variables) as many, queuey(plan.fresh("few"), variables) as few:
        for server in (many, few):
            for turn in range(FEW):
                fields = {"queue_name": _of(turn, _NAME), "principles": _of(turn, _PRINCIPAL)}
                server.ask("POST", f"/v1/{APPLICATION}", data=fields)
        fields_of_all = f"queue_name={_NAME}&principles={_PRINCIPAL}"
        text = request("POST", f"/v1/{APPLICATION}", fields_of_all, Content_Type="application/x-www-form-urlencoded")
        drive(many, numbered(text, FEW, plan.queues + _OVERLAP), CONNECTIONS)
        yield _reads(many, few, plan)


def _of(turn: int, text: str) -> str:
    return text.replace(NUMBER, f"{turn:07d}")


def _reads(many: Server, few: Server, plan: Plan) -> Row:
    among_all = in_turn(_own_pages(many, range(0, plan.queues, max(plan.queues // READERS, 1))))
    among_few = in_turn(_own_pages(few, range(FEW)))
    for server in (many, few):
        server.settle()
    below, ours = alternate(
        lambda: drive(few, among_few, 1, plan.seconds).rate,
        lambda: drive(many, among_all, 1, plan.seconds).rate,
        plan.rounds,
    )
    return Row(
        f"{plan.queues:,} users with a queue each: read of one's own, 1 reader",
        f"{number(PAGE * median(below))} msg/s of one's own among {FEW}",
        f"{number(PAGE * median(ours))} msg/s",
        ratios(below, ours),
        goal="ratio <= 1.3",
    )


def _own_pages(server: Server, turns: Sequence[int]) -> list[str]:
    """Requests of these users for the page that is in the queue of each; each was answered once already."""
    texts = []
    messages = [{"body": BODY}] * PAGE
    for turn in turns:
        path = f"/v1/{APPLICATION}/{_of(turn, _NAME)}"
        server.ask("POST", path, json={"messages": messages})
        answer = server.ask("POST", f"/tokens/{APPLICATION}", data={"principal": _of(turn, _PRINCIPAL)})
        proof = f"Bearer {answer.json()['token']}"
        page = f"{path}?since=0&limit={PAGE}"
        found = server.ask("GET", page, headers={"Authorization": proof}).json()["messages"]
        if len(found) != PAGE:
            raise BenchFailed(f"{path}: {len(found)} messages, not {PAGE}")
        texts.append(request("GET", page, Authorization=proof))
    return texts
