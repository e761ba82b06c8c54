"""Tasks of queues over HTTP: a purge is started, watched and cancelled."""

from __future__ import annotations

from typing import Any

from tests.support.client import Json, Server, refused
from tests.support.servers import eventually


def started(server: Server, queue: str) -> Json:
    answer = server.call("DELETE", queue, "messages")
    assert answer.status_code == 202, answer.text
    task = answer.json()["task"]
    assert (task["name"], task["state"], task["finished"]) == ("purge", "running", None)
    assert isinstance(task, dict)
    return task


def ended(server: Server, queue: str, name: str = "purge") -> Json:
    def look() -> Any:
        (found,) = [one for one in server.call("GET", queue, "tasks").json()["tasks"] if one["name"] == name]
        return found if found["state"] not in ("running", "cancelling") else None

    found = eventually(look, seconds=60)
    assert isinstance(found, dict)
    return found


def test_a_purge_removes_all_and_settles_leases(server: Server) -> None:
    queue = server.queue(partitions=3)
    for partition in (1, 2, 3):
        server.fill(queue, *(f"{number}" for number in range(20)), partition=partition)
    server.add(queue, "scheduled", x_delay=3000)
    leases = (queue, "leases", "workers")
    body = {"receive": {"max": 5, "visibility": 600}}
    handed = eventually(lambda: server.call("POST", *leases, json=body).json()["messages"], seconds=60)

    task = started(server, queue)
    found = ended(server, queue)

    assert (found["id"], found["state"], found["removed"], found["left"]) == (task["id"], "done", 61, 0)
    assert float(found["finished"]) >= float(found["started"])
    assert server.call("GET", queue, "tasks", "purge").json()["task"] == found
    assert server.call("GET", queue, params={"info": "true"}).json()["depth"] == 0
    assert server.get(queue, partitions="all").json()["messages"] == []
    group = server.call("GET", *leases).json()
    assert [(one["held"], one["leased"]) for one in group["partitions"]] == [(0, 0)] * 3
    receipts = [one["receipt"] for one in handed]
    settled = server.call("POST", *leases, json={"acknowledge": receipts}).json()["settled"]
    assert settled["stale"] == receipts

    server.add(queue, "after")
    assert eventually(lambda: server.call("POST", *leases, json=body).json()["messages"], seconds=60)[0]["body"] == (
        "after"
    )


def test_a_receiver_that_waits_for_a_key_goes_on_after_a_purge(server: Server) -> None:
    queue = server.queue()
    group = (queue, "leases", "ordered")
    assert server.call("PUT", *group, json={"order": "key"}).status_code == 200
    for body in ("first", "second"):
        server.add(queue, body, x_key="k")
    held = {"receive": {"max": 9, "visibility": 3000}}
    assert eventually(lambda: server.call("POST", *group, json=held).json()["messages"], seconds=60)

    started(server, queue)
    assert ended(server, queue)["removed"] == 2

    server.add(queue, "third", x_key="k")
    found = server.call("POST", *group, json={"receive": {"wait": 30}}).json()["messages"]
    assert [one["body"] for one in found] == ["third"]


def test_a_purge_that_has_ended_can_be_repeated_and_not_cancelled(server: Server) -> None:
    queue = server.queue()
    refused(server.call("GET", queue, "tasks", "purge"), 404, "TaskNotFound")
    refused(server.call("DELETE", queue, "tasks", "purge"), 404, "TaskNotFound")
    assert server.call("GET", queue, "tasks").json() == {"status": "ok", "tasks": []}
    first = started(server, queue)
    assert ended(server, queue)["state"] == "done"

    cancelled = server.call("DELETE", queue, "tasks", "purge")

    assert (cancelled.status_code, cancelled.json()["task"]["state"]) == (200, "done")
    assert started(server, queue)["id"] != first["id"]
    assert ended(server, queue)["state"] == "done"


def test_what_a_purge_does_not_understand_it_refuses(server: Server) -> None:
    queue = server.queue()
    server.add(queue, "stays")

    for given in ({"params": {"partition": "1"}}, {"data": b"x"}):
        for place in (("messages",), ("tasks", "purge")):
            refused(server.call("DELETE", queue, *place, **given), 400)
    refused(server.call("DELETE", "absent", "messages"), 404, "InvalidQueueName")
    refused(server.call("GET", queue, "messages"), 405, "MethodNotAllowed")
    refused(server.call("GET", queue, "tasks", params={"limit": "0"}), 400, "limit")

    assert eventually(lambda: server.bodies(queue), seconds=60) == ["stays"]


def test_a_queue_lets_go_of_what_all_its_groups_have_settled(server: Server) -> None:
    queue = server.queue(retention="acknowledged")
    assert server.info(queue)["retention"] == "acknowledged"
    server.fill(queue, *"abc")

    def popped(group: str) -> Any:
        body = {"receive": {"max": 9, "pop": True}}
        return server.call("POST", queue, "leases", group, json=body).json()["messages"]

    assert len(eventually(lambda: popped("one"), seconds=60)) == 3
    eventually(lambda: server.info(queue)["depth"] == 0, seconds=90)
    changed = server.call("PUT", queue, data={"retention": "ttl"})
    assert (changed.status_code, changed.json()["retention"]) == (200, "ttl")
    refused(server.call("PUT", queue, data={"retention": "never"}), 400, "retention")
