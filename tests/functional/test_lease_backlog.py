"""How much a lease group could hand out, and how much it could not."""

from __future__ import annotations

from typing import Any

from qdo.client import Client
from tests.support.client import Server
from tests.support.lease_requests import GROUP, receive, step


def partition(server: Server, queue: str, **query: str) -> dict[str, Any]:
    answer = server.call("GET", queue, "leases", GROUP, params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["partitions"][0]
    return found


def test_a_backlog_is_what_is_visible_hidden_and_delayed(server: Server) -> None:
    """Of seven messages: one is done, one leased, one waits for a retry, one is due again, two are new, one is not due."""
    queue = server.queue()
    for number in range(6):
        server.add(queue, str(number))
    server.add(queue, "later", x_delay="3600")
    first, second, third, _ = receive(server, queue, max=4, visibility=3600)
    later = {"receipt": second["receipt"], "delay": 3600}
    now = {"receipt": third["receipt"], "count": False}
    step(server, queue, acknowledge=[first["receipt"]], release=[later, now])

    plain, found = partition(server, queue), partition(server, queue, backlog="true")

    assert "visible" not in plain
    assert (found["visible"], found["hidden"], found["delayed"]) == (3, 2, 1)
    assert (found["held"], found["leased"], found["waiting"]) == (3, 1, 2)
    assert plain["oldest_age"] >= 0


def test_a_group_that_has_settled_everything_has_no_backlog(seen: Server, client: Client) -> None:
    queue = seen.queue()
    seen.add(queue, "x")
    receive(seen, queue, pop=True)

    (found,) = client.lease_group(queue, GROUP, backlog=True).partitions

    assert (found.visible, found.hidden, found.delayed, found.waiting, found.oldest_age) == (0, 0, 0, 0, None)
    assert client.lease_group(queue, GROUP).partitions[0].visible is None
