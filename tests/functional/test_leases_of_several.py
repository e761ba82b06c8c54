"""One request for lease groups of several queues."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from queuey.api.lease_requests import draw_turns
from tests.support.client import Json, Server, refused
from tests.support.live import own_server, until_waiting

shipped_server = own_server


def ask(server: Server, queues: Any, **body: Any) -> requests.Response:
    return server.call("POST", params={"receive": "g"}, json={"queues": queues, **body})


def step(server: Server, queues: Any, **body: Any) -> Json:
    answer = ask(server, queues, **body)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def received(server: Server, queues: Any, order: str | None = None, **how: Any) -> list[Json]:
    body = {} if order is None else {"order": order}
    messages: list[Json] = step(server, queues, receive=how, **body)["messages"]
    return messages


def bodies(messages: list[Json]) -> list[str]:
    return [one["body"] for one in messages]


@pytest.fixture
def queues(server: Server) -> list[str]:
    """Two queues: one with a and b, and an older one with c."""
    names = [server.queue(), server.queue(partitions=2)]
    server.fill(names[1], "c", partition=2)
    server.fill(names[0], "a", "b")
    return names


def test_the_first_queue_with_messages_comes_first(server: Server, queues: list[str]) -> None:
    (first,) = received(server, queues)
    assert (first["queue"], first["partition"], first["body"]) == (queues[0], 1, "a")
    others = received(server, queues[::-1], "first", max=9)
    assert [(one["queue"], one["body"]) for one in others] == [(queues[1], "c"), (queues[0], "b")]


def test_one_request_settles_in_several(server: Server, queues: list[str]) -> None:
    results = server.queue()
    messages = received(server, queues, max=9)
    receipts = [one["receipt"] for one in messages]

    found = step(
        server,
        queues,
        acknowledge=receipts[1:2],
        release=[{"receipt": receipts[0], "delay": 0}],
        reject=[{"receipt": receipts[2]}],
        append=[{"queue": results, "messages": [{"body": "done"}]}],
        receive={"max": 9},
    )

    assert found["settled"] == {"acknowledged": 1, "released": 1, "extended": 0, "rejected": 1, "stale": []}
    assert bodies(found["messages"]) == ["a"]
    assert bodies(server.get(results).json()["messages"]) == ["done"]
    assert bodies(server.get(f"{queues[1]}-dead").json()["messages"]) == ["c"]
    stale = step(server, queues[::-1], acknowledge=receipts)["settled"]
    assert (stale["acknowledged"], stale["stale"]) == (0, receipts)
    append = [{"queue": results, "messages": [{"body": "late"}]}]
    refused(ask(server, queues, acknowledge=receipts, append=append), 409, "StaleReceipt")
    alone = server.call("POST", queues[0], "leases", "g", json={"acknowledge": [found["messages"][0]["receipt"]]})
    assert alone.json()["settled"]["acknowledged"] == 1


def test_all_leases_of_a_receiver_go_on_in_each_queue(server: Server, queues: list[str]) -> None:
    step(server, queues, receiver="w", receive={"max": 9, "visibility": 9})
    step(server, queues, extend={"receiver": "w", "visibility": 1000})
    for name, number in zip(queues, (2, 1), strict=True):
        leases = server.call("GET", name, "leases", "g", params={"leased": "true"}).json()["leases"]
        date = float(leases[0]["visible_at"])
        assert [float(one["visible_at"]) - date for one in leases] == pytest.approx([0] * number, abs=0.001)
        fresh = server.call("POST", name, "leases", "g", json={"receive": {}}).json()
        assert fresh["messages"] == []


def test_one_waiter_hears_of_all_queues(careful_server: Server) -> None:
    server = careful_server
    queues = [server.queue(), server.queue()]
    for name in queues:
        with ThreadPoolExecutor() as threads:
            waits = threads.submit(received, server, queues, wait=60)
            until_waiting(server, 1)
            server.add(name, "late")
            assert [(one["queue"], one["body"]) for one in waits.result()] == [(name, "late")]


def test_an_attempt_covers_all_of_them(server: Server, queues: list[str]) -> None:
    weights = dict.fromkeys(queues, 1)
    body: Json = {"attempt": "one", "receive": {"max": 2, "pop": True}}
    first = step(server, weights, **body)
    for _ in range(5):  # whatever turns are drawn
        assert step(server, weights, **body) == first
    refused(ask(server, queues, **body), 422, "KeyReused")
    assert len(received(server, weights, max=9)) == 1


def test_queues_are_drawn_by_their_weights() -> None:
    firsts = Counter(draw_turns([3, 1, 1000])[0] for _ in range(1004 * 4))
    behind = Counter(next(one for one in draw_turns([3, 1, 1000]) if one < 2) for _ in range(1000))

    assert firsts[2] > 3900
    assert 650 < behind[0] < 850
    assert all(sorted(draw_turns([1, 1000, 3])) == [0, 1, 2] for _ in range(9))


def test_no_queue_starves_by_its_weight(server: Server) -> None:
    heavy, light = server.queue(), server.queue()
    server.fill(heavy, *["x"] * 200)
    server.fill(light, "y")
    for number in range(200):  # noqa: B007 - it is asked for below
        if received(server, {heavy: 3, light: 1}, pop=True)[0]["queue"] == light:
            break
    assert number < 100  # by chance it is not so once in 10 to the 12


def test_a_paused_group_is_left_out(server: Server, queues: list[str]) -> None:
    server.call("PUT", queues[0], "leases", "g", json={"paused_until": 4e9})
    assert bodies(received(server, queues, max=9)) == ["c"]


def test_an_absent_queue_is_named_and_nothing_is_done(server: Server, queues: list[str]) -> None:
    (message,) = received(server, queues)
    answer = ask(server, [*queues, "absent"], acknowledge=[message["receipt"]], receive={"max": 9})

    refused(answer, 404, "InvalidQueueName")
    assert '"absent"' in answer.json()["error_msg"]["InvalidQueueName"]
    assert step(server, queues, acknowledge=[message["receipt"]])["settled"]["acknowledged"] == 1
    assert len(received(server, queues, max=9)) == 2


def test_a_queue_that_is_deleted_ends_the_wait_and_not_what_was_done(server: Server, queues: list[str]) -> None:
    messages = received(server, queues, max=9)
    receipts = [one["receipt"] for one in messages]
    with ThreadPoolExecutor() as threads:
        waits = threads.submit(step, server, queues, acknowledge=receipts, receive={"wait": 60})
        until_waiting(server, 1)
        server.call("DELETE", queues[1])
        found = waits.result()
    assert (found["settled"]["acknowledged"], found["messages"]) == (3, [])


WRONG: dict[str, tuple[Json, str]] = {
    "no queues": ({"queues": None}, "queues"),
    "none": ({"queues": []}, "queues"),
    "none with weights": ({"queues": {}}, "queues"),
    "a text": ({"queues": "a,b"}, "queues"),
    "too many": ({"queues": [f"q{number}" for number in range(101)]}, "queues"),
    "too many with weights": ({"queues": {f"q{number}": 1 for number in range(101)}}, "queues"),
    "twice": ({"queues": ["{queue}", "{queue}"]}, "queues"),
    "no name": ({"queues": ["{queue}", "a b"]}, "queues.1"),
    "no text": ({"queues": ["{queue}", 5]}, "queues.1"),
    "weight 0": ({"queues": {"{queue}": 0}}, "queues.{queue}"),
    "weight": ({"queues": {"{queue}": 1001}}, "queues.{queue}"),
    "half a weight": ({"queues": {"{queue}": 0.5}}, "queues.{queue}"),
    "order": ({"order": "random"}, "order"),
    "order of weights": ({"queues": {"{queue}": 1}, "order": "first"}, "order"),
    "partitions": ({"receive": {"partitions": [1]}}, "receive.partitions"),
    "unknown": ({"colour": 1}, "colour"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_member_is_named_and_nothing_is_done(server: Server, what: str) -> None:
    queue = server.queue()
    server.add(queue, "a")
    wrong, field = WRONG[what]
    body = json.loads(json.dumps({"queues": [queue], "receive": {}} | wrong).replace("{queue}", queue))
    answer = server.call("POST", params={"receive": "g"}, json=body)
    refused(answer, 400, field.replace("{queue}", queue))
    assert bodies(received(server, [queue])) == ["a"]


def test_wrong_requests_are_refused(server: Server, queues: list[str]) -> None:
    for group in ("a b", ".."):
        refused(server.call("POST", params={"receive": group}, json={"queues": queues}), 400, "receive")
    for member in ("queues", "order", "attempt"):
        answer = server.call("POST", params={"receive": "g", member: "x"}, json={"queues": queues})
        refused(answer, 400, member)
    many = [server.queue(partitions=101), server.queue(partitions=100)]
    refused(ask(server, many, receive={}), 400, "queues")
    (message,) = received(server, queues)
    refused(ask(server, queues[1:], acknowledge=[message["receipt"]]), 400, "InvalidReceipt")
    with_another = server.call(
        "POST", params={"receive": "h"}, json={"queues": queues, "acknowledge": [message["receipt"]]}
    )
    refused(with_another, 400, "InvalidReceipt")
