"""Dead letters go back over HTTP: all or some, to the queue, another one, or to their group alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from queuey.model.dead_letters import STORY_HEADER, Story, story_to_header
from tests.support import lease_requests
from tests.support.client import Json, Server, refused
from tests.support.lease_requests import GROUP
from tests.support.servers import eventually


def receive(server: Server, queue: str, group: str = GROUP, **wanted: Any) -> list[Json]:
    """All that there is, for ten minutes."""
    return lease_requests.receive(server, queue, group, **({"max": 100, "visibility": 600} | wanted))


def bodies(messages: list[Json]) -> list[str]:
    """In the order of the alphabet: with several servers, messages are handed out nearly in theirs."""
    return sorted(one["body"] for one in messages)


def given_up(server: Server, queue: str, **reasons: str) -> str:
    """Messages that are rejected for these reasons, and the name of their dead-letter queue."""
    for body in reasons:
        server.add(queue, body, x_key=f"key of {body}", content_type="text/plain", queuey_header_trace=body)
    found = received(server, queue, len(reasons))
    rejected = [{"receipt": one["receipt"], "reason": reasons[one["body"]]} for one in found]
    assert server.call("POST", queue, "leases", GROUP, json={"reject": rejected}).status_code == 200
    dead = f"{queue}-dead"
    eventually(lambda: len(server.bodies(dead)) == len(reasons), seconds=60)
    return dead


def received(server: Server, queue: str, number: int, group: str = GROUP) -> list[Json]:
    """As :func:`receive`, until there were this many: with several servers they may come one by one."""
    found: list[Json] = []

    def have_come() -> bool:
        found.extend(receive(server, queue, group))
        return len(found) >= number

    eventually(have_come, seconds=60)
    return found


def redrive(server: Server, queue: str, /, **asked: Any) -> requests.Response:
    return server.call("POST", queue, "leases", GROUP, "redrive", json=asked)


def task_at(server: Server, *place: str, method: str = "GET") -> Json:
    """The task of a place. A node of a busy machine may take longer than its server waits: then it is asked again."""

    def answered() -> list[requests.Response]:
        found = server.call(method, *place)
        return [] if found.status_code in (503, 504) else [found]

    (answer,) = eventually(answered, seconds=60)
    assert answer.status_code == 200, answer.text
    task = answer.json()["task"]
    assert isinstance(task, dict)
    return task


def moved(server: Server, queue: str, /, **asked: Any) -> Json:
    """The task, once it is done."""
    started = redrive(server, queue, **asked)
    assert started.status_code == 202, started.text
    place = (queue, "leases", GROUP, "redrive")

    def ended() -> Any:
        task = task_at(server, *place)
        assert task["id"] == started.json()["task"]["id"]
        return task if task["state"] not in ("running", "cancelling") else None

    task = eventually(ended, seconds=60)
    assert isinstance(task, dict)
    assert task["state"] == "done", task
    return task


@pytest.mark.parametrize(("id_", "partition"), [("0" * 32, 1), ("1f9f6640e56711f189bf02fc00000001", 5000)])
def test_a_forged_letter_holds_up_no_others(server: Server, id_: str, partition: int) -> None:
    """Whoever may append may write one without its message, that names a place where no message can be."""
    queue = server.queue()
    dead = given_up(server, queue, a="too hot")
    story = Story(queue, partition, id_, GROUP, 1, "forged").alone(b"message")
    server.add_batch(dead, {"body": "forged", "headers": {STORY_HEADER: story_to_header(story).decode()}})

    task = moved(server, queue)

    assert (task["moved"], task["failed"]) == (1, 1)
    assert bodies(received(server, queue, 1)) == ["a"]


def test_dead_letters_go_back_as_they_were(server: Server) -> None:
    queue = server.queue()
    dead = given_up(server, queue, a="too hot", b="too cold")
    messages = server.call("GET", queue, params={"partitions": "all"}).json()["messages"]
    before = {one["body"]: one["message_id"] for one in messages}

    assert redrive(server, queue, preview=True).json() == {
        "status": "ok",
        "preview": True,
        "matching": 2,
        "looked": 2,
        "more": False,
    }
    task = moved(server, queue, rate=1000)

    assert (task["name"], task["moved"], task["failed"], task["left"]) == (f"redrive:{GROUP}", 2, 0, 0)
    assert (task["from"], task["rate"], task["group_only"], task["filter"]) == (dead, 1000, False, {})
    assert server.bodies(dead) == []
    again = received(server, queue, 2)
    assert bodies(again) == ["a", "b"]
    for one in again:
        assert (one["key"], one["content_type"]) == (f"key of {one['body']}", "text/plain")
        headers = {name.lower(): value for name, value in one["headers"].items()}
        origin = json.loads(headers.pop("queuey-redriven"))
        assert headers == {"trace": one["body"]}
        assert (origin["queue"], origin["group"]) == (queue, GROUP)
        assert origin["message_id"] == before[one["body"]]
        assert (one["deliveries"], one["failures"]) == (1, 0)
    others = received(server, queue, 4, "others")
    assert bodies(others) == ["a", "a", "b", "b"]
    groups = server.call("GET", dead, "leases").json()["groups"]
    assert groups == []


def test_letters_that_a_receiver_holds_go_back_too(server: Server) -> None:
    queue = server.queue()
    dead = given_up(server, queue, a="too hot", b="too cold")
    held = received(server, dead, 2, "repairs")

    assert moved(server, queue)["moved"] == 2

    assert bodies(received(server, queue, 2)) == ["a", "b"]
    settled = server.call("POST", dead, "leases", "repairs", json={"acknowledge": [one["receipt"] for one in held]})
    assert (settled.json()["settled"]["acknowledged"], settled.json()["settled"]["stale"]) == (2, [])
    assert server.bodies(dead) == []


def test_some_go_to_another_queue_and_some_to_their_group_alone(server: Server) -> None:
    queue, other = server.queue(), server.queue()
    dead = given_up(server, queue, a="too hot", b="too cold", c="too cold")

    assert moved(server, queue, queue=other, filter={"reason": "hot"})["moved"] == 1
    assert eventually(lambda: server.bodies(other), seconds=60) == ["a"]
    only = moved(server, queue, group_only=True, filter={"headers": {"Trace": "b"}, "since": "0"})
    assert (only["moved"], only["left"]) == (1, 0)
    assert eventually(lambda: receive(server, queue), seconds=60)[0]["body"] == "b"
    assert server.bodies(dead) == ["c"]
    others = received(server, queue, 3, "others")
    assert bodies(others) == ["a", "b", "c"]
    assert redrive(server, queue, preview=True, filter={"key": "key of c"}).json()["matching"] == 1
    assert redrive(server, queue, preview=True, filter={"until": "1"}).json()["matching"] == 0


def test_a_redrive_is_cancelled(server: Server) -> None:
    queue = server.queue()
    dead = given_up(server, queue, a="x", b="x", c="x")
    place = (queue, "leases", GROUP, "redrive")
    refused(server.call("GET", *place), 404)
    refused(server.call("DELETE", *place), 404)
    assert redrive(server, queue, rate=0.01).status_code == 202
    eventually(lambda: task_at(server, *place)["moved"] == 1, seconds=60)
    running = redrive(server, queue)
    refused(running, 409)
    assert running.json()["code"] == "TaskRunning"

    assert task_at(server, *place, method="DELETE")["state"] in ("cancelling", "cancelled")

    task = eventually(lambda: (found := task_at(server, *place))["state"] == "cancelled" and found, seconds=60)
    assert task == task_at(server, queue, "tasks", f"redrive:{GROUP}")
    assert (task["moved"], task["left"], len(server.bodies(dead))) == (1, 2, 2)
    assert moved(server, queue)["moved"] == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"colour": 1}, "colour"),
        ({"rate": 0}, "rate"),
        ({"rate": 100_001}, "rate"),
        ({"rate": "1"}, "rate"),
        ({"queue": "a/b"}, "queue"),
        ({"queue": "other", "group_only": True}, "group_only"),
        ({"preview": "yes"}, "preview"),
        ({"filter": []}, "filter"),
        ({"filter": {"colour": 1}}, "filter.colour"),
        ({"filter": {"reason": ""}}, "filter.reason"),
        ({"filter": {"key": 5}}, "filter.key"),
        ({"filter": {"headers": {}}}, "filter.headers"),
        ({"filter": {"headers": {"a": 5}}}, "filter.headers.a"),
        ({"filter": {"since": 5}}, "filter.since"),
        ({"filter": {"until": "soon"}}, "filter.until"),
        ({"filter": None}, "filter"),
    ],
    ids=str,
)
def test_what_a_redrive_does_not_understand_it_refuses(server: Server, body: Json, field: str) -> None:
    queue = server.queue()
    receive(server, queue)

    refused(redrive(server, queue, **body), 400, field)
    refused(server.call("GET", queue, "leases", GROUP, "redrive"), 404)


def test_where_letters_cannot_go(server: Server) -> None:
    queue = server.queue()
    refused(redrive(server, queue), 404)
    receive(server, queue)
    refused(redrive(server, queue, queue="absent"), 404)
    assert redrive(server, queue, preview=True).json()["looked"] == 0
    assert moved(server, queue)["moved"] == 0
    server.create(f"{queue}-dead")
    refused(redrive(server, queue, queue=f"{queue}-dead"), 409)
    refused(server.call("POST", queue, "leases", "redrive:x", json={"receive": {}}), 400)
