"""Lease groups over HTTP: receive, settle and append in one request, wait, and what a wrong request gets."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support import servers
from tests.support.client import Json, Server, refused
from tests.support.lease_requests import GROUP, ask, receive, step
from tests.support.live import own_server, until_waiting
from tests.support.servers import RunningServer

shipped_server = own_server


def code_of(answer: requests.Response, status: int) -> str:
    """The code of a refusal."""
    refused(answer, status)
    return str(answer.json()["code"])


def bodies(messages: list[Json]) -> list[str]:
    return [one["body"] for one in messages]


def put(server: Server, queue: str, group: str = GROUP, **settings: Any) -> requests.Response:
    return server.call("PUT", queue, "leases", group, json=settings)


def test_messages_are_handed_out_to_one_and_settled_with_a_result(server: Server) -> None:
    jobs, results = server.queue(), server.queue()
    for number in range(3):
        server.add(jobs, f"job {number}", x_key="k", content_type="text/plain", queuey_header_trace="t")

    (first,) = receive(server, jobs)
    assert (first["body"], first["key"], first["content_type"]) == ("job 0", "k", "text/plain")
    assert {name.lower(): value for name, value in first["headers"].items()} == {"trace": "t"}
    assert (first["deliveries"], first["failures"], first["partition"]) == (1, 0, 1)
    assert float(first["visible_at"]) == pytest.approx(float(first["first_delivered"]) + 30, abs=0.001)

    append = [{"queue": results, "messages": [{"body": "done"}, {"body": "and"}]}]
    found = step(server, jobs, acknowledge=[first["receipt"]], append=append, receive={"max": 10})
    assert found["settled"] == {"acknowledged": 1, "released": 0, "extended": 0, "rejected": 0, "stale": []}
    assert [one["queue"] for one in found["appended"]] == [results]
    assert bodies(found["messages"]) == ["job 1", "job 2"]
    assert bodies(server.get(results).json()["messages"]) == ["done", "and"]

    stale = ask(server, jobs, acknowledge=[first["receipt"]], append=append)
    assert code_of(stale, 409) == "StaleReceipt"
    assert step(server, jobs, acknowledge=[first["receipt"]])["settled"]["stale"] == [first["receipt"]]
    assert len(server.get(results).json()["messages"]) == 2


def test_each_way_to_settle(server: Server) -> None:
    queue = server.queue()
    for number in range(4):
        server.add(queue, str(number))
    acknowledged, released, extended, rejected = receive(server, queue, max=4, visibility=100)
    found = step(
        server,
        queue,
        acknowledge=[acknowledged["receipt"]],
        release=[{"receipt": released["receipt"], "delay": 0, "count": False}],
        extend=[{"receipt": extended["receipt"], "visibility": 500}],
        reject=[{"receipt": rejected["receipt"], "reason": "not JSON"}],
    )
    assert found["settled"] == {"acknowledged": 1, "released": 1, "extended": 1, "rejected": 1, "stale": []}
    (again,) = receive(server, queue, max=9)
    assert (again["body"], again["deliveries"], again["failures"]) == ("1", 2, 0)
    shown = server.call("GET", queue, "leases", GROUP, params={"leased": "true"}).json()["leases"]
    assert [(one["message_id"], one["state"]) for one in shown] == [
        (released["message_id"], "leased"),
        (extended["message_id"], "leased"),
    ]
    assert float(shown[1]["visible_at"]) > float(extended["visible_at"]) + 300


def test_a_dead_letter_is_the_message_with_its_story(server: Server) -> None:
    queue = server.queue()
    server.add(queue, b"\x00\xff", x_key="k", content_type="image/png", queuey_header_trace="t")
    (one,) = receive(server, queue)
    step(server, queue, reject=[{"receipt": one["receipt"], "reason": "no picture"}])

    (letter,) = server.get(f"{queue}-dead").json()["messages"]
    kept = {name.lower(): value for name, value in letter["headers"].items()}
    story = json.loads(kept.pop("queuey-dead-letter"))
    assert (letter["body"], letter["encoding"]) == (one["body"], "base64")
    assert (letter["key"], letter["content_type"], kept) == ("k", "image/png", {"trace": "t"})
    assert (story["queue"], story["message_id"], story["group"]) == (queue, one["message_id"], GROUP)
    assert (story["reason"], story["deliveries"], story["failures"]) == ("no picture", 1, 0)
    (held,) = server.call("GET", queue, "leases", GROUP).json()["partitions"]
    assert (held["held"], held["leased"], held["dead"]) == (0, 0, 1)


def test_a_message_without_room_for_its_story_is_a_letter_of_the_story_alone(server: Server) -> None:
    queue = server.queue()
    headers = {f"h{number}": "x" for number in range(64)}
    batch = {"messages": [{"body": "full", "headers": headers}]}
    assert server.call("POST", queue, json=batch).status_code == 201
    (one,) = receive(server, queue)
    step(server, queue, reject=[{"receipt": one["receipt"], "reason": "so"}])
    (letter,) = server.get(f"{queue}-dead").json()["messages"]
    story = json.loads(letter["headers"]["queuey-dead-letter"])
    assert (story["message_id"], story["size"], story["reason"]) == (one["message_id"], 4, "so")
    assert json.loads(letter["body"]) == story


def test_a_message_that_fails_too_often_is_given_up_and_names_its_queue(server: Server) -> None:
    queue, dead = server.queue(), server.queue()
    assert put(server, queue, max_failures=2, dead_letter_queue=dead, backoff={"first": 0}).status_code == 200
    server.add(queue, "bad")
    for _ in range(2):
        (one,) = receive(server, queue)
        step(server, queue, release=[{"receipt": one["receipt"]}])
    assert receive(server, queue) == []
    assert bodies(server.get(dead).json()["messages"]) == ["bad"]


def test_a_popped_message_is_settled_at_once(server: Server) -> None:
    queue = server.queue()
    server.add(queue, "a")
    (popped,) = receive(server, queue, pop=True, visibility=0)
    assert "receipt" not in popped
    assert receive(server, queue) == []


def test_an_attempt_is_answered_again(server: Server) -> None:
    queue, results = server.queue(), server.queue()
    server.add(queue, "a")
    server.add(queue, "b")
    body: dict[str, Any] = {
        "attempt": "one",
        "receive": {"pop": True},
        "append": [{"queue": results, "messages": [{"body": "r"}]}],
    }
    first, again = step(server, queue, **body), step(server, queue, **body)
    assert first == again
    assert bodies(server.get(results).json()["messages"]) == ["r"]
    assert code_of(ask(server, queue, attempt="one", receive={"max": 2}), 422) == "KeyReused"
    assert bodies(receive(server, queue, max=9)) == ["b"]


def test_a_receiver_that_waits_gets_what_comes(careful_server: Server) -> None:
    server = careful_server
    queue = server.queue(partitions=3)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(receive, server, queue, wait=60)
        until_waiting(server, 1)
        with Server(server.running) as other:
            other.add(queue, "late", x_partition=3)
        assert bodies(waiting.result(30)) == ["late"]
    assert receive(server, queue, wait=0.01) == []


def test_a_receiver_that_waits_gets_what_is_released(server: Server) -> None:
    queue = server.queue()
    server.add(queue, "a")
    (one,) = receive(server, queue)
    with ThreadPoolExecutor(1) as threads, Server(server.running) as other:
        waiting = threads.submit(receive, other, queue, wait=60)
        until_waiting(server, 1)
        step(server, queue, release=[{"receipt": one["receipt"], "delay": 0}])
        (again,) = waiting.result(30)
    assert again["deliveries"] == 2


def test_a_receiver_that_waits_gets_a_lease_that_ran_out(server: Server) -> None:
    queue = server.queue()
    server.add(queue, "a")
    receive(server, queue, visibility=0.3)
    (again,) = receive(server, queue, wait=60)
    assert again["deliveries"] == 2


def test_each_message_wakes_one_of_many(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server:
        queue = server.queue()

        def one() -> list[str]:
            with Server(shipped_server) as mine:
                return bodies(receive(mine, queue, wait=60))

        with ThreadPoolExecutor(12) as threads:
            waiting = [threads.submit(one) for _ in range(12)]
            until_waiting(server, 12)
            batch = {"messages": [{"body": str(number)} for number in range(5)]}
            assert server.call("POST", queue, json=batch).status_code == 201
            for number in range(5, 12):
                server.add(queue, str(number))
            found = [body for each in waiting for body in each.result(30)]
    assert sorted(found, key=int) == [str(number) for number in range(12)]


@pytest.mark.parametrize("wait", [0, 10])
def test_a_receive_looks_behind_many_messages_for_another_group(server: Server, wait: int) -> None:
    queue = server.queue()
    for _ in range(6):
        server.add_batch(queue, *[{"body": "x", "headers": {"queuey-only-group": "other"}}] * 1000)
    server.add(queue, "mine")
    asked: Json = {"attempt": f"many {wait}", "receive": {"wait": wait}}
    found = step(server, queue, **asked)
    assert [one["body"] for one in found["messages"]] == ["mine"]
    assert step(server, queue, **asked) == found
    assert receive(server, queue) == []
    assert len(receive(server, queue, "other", max=1000)) == 1000


def test_keys_are_kept_in_order(server: Server) -> None:
    queue = server.queue()
    assert put(server, queue, order="key").json()["settings"]["backoff"]["most"] == 30
    for number, key in enumerate("aabab"):
        server.add(queue, str(number), x_key=key)
    handed = receive(server, queue, max=9)
    assert bodies(handed) == ["0", "2"]
    assert receive(server, queue) == []
    assert bodies(step(server, queue, acknowledge=[handed[0]["receipt"]], receive={})["messages"]) == ["1"]


def test_a_key_that_opens_wakes_a_receiver_that_waits(server: Server) -> None:
    queue = server.queue()
    put(server, queue, order="key")
    for number in range(2):
        server.add(queue, str(number), x_key="a")
    (first,) = receive(server, queue)
    with ThreadPoolExecutor(1) as threads, Server(server.running) as other:
        waiting = threads.submit(receive, other, queue, wait=60)
        until_waiting(server, 1)
        step(server, queue, acknowledge=[first["receipt"]])
        assert bodies(waiting.result(30)) == ["1"]


def test_groups_are_listed_set_and_forgotten(server: Server) -> None:
    queue = server.queue()
    server.add(queue, "before")
    assert code_of(server.call("GET", queue, "leases", "new"), 404) == "LeaseGroupNotFound"
    assert put(server, queue, "new", start="end", visibility=7, paused_reason="so").status_code == 200
    server.add(queue, "after")
    (one,) = receive(server, queue, "new", max=9)
    assert one["body"] == "after"
    assert float(one["visible_at"]) == pytest.approx(float(one["first_delivered"]) + 7, abs=0.001)
    assert put(server, queue, "new", visibility=8).json()["settings"]["paused_reason"] == "so"
    assert put(server, queue, "new", paused_reason="").json()["settings"]["paused_reason"] is None
    shown = server.call("GET", queue, "leases", "new").json()
    assert shown["settings"]["visibility"] == 8
    assert shown["settings"]["dead_letter_queue"] == f"{queue}-dead"
    receive(server, queue, "another")
    listed = server.call("GET", queue, "leases", params={"limit": 1})
    assert listed.json()["groups"] == [{"group": "another"}]
    assert "offset=new" in listed.headers["Link"]
    for _ in range(2):
        assert server.call("DELETE", queue, "leases", "new").status_code == 200
    assert code_of(ask(server, queue, "new", acknowledge=[one["receipt"]]), 400) == "InvalidReceipt"
    assert bodies(receive(server, queue, "new", max=9)) == ["before", "after"]


def reset(server: Server, queue: str, **body: Any) -> requests.Response:
    return server.call("POST", queue, "leases", GROUP, "reset", json=body)


def test_a_group_is_reset_to_another_place(server: Server) -> None:
    queue = server.queue()
    placed = [server.add(queue, str(number)) for number in range(4)]
    put(server, queue, visibility=100)
    (one,) = receive(server, queue)
    step(server, queue, acknowledge=[one["receipt"]])
    (two,) = receive(server, queue)

    shown = reset(server, queue, to=placed[2]["key"], preview=True).json()
    assert (shown["preview"], shown["to"], shown["before"][0]["held"]) == (True, placed[2]["key"], 1)
    assert step(server, queue, extend=[{"receipt": two["receipt"], "visibility": 100}])["settled"]["extended"] == 1

    assert reset(server, queue, to=placed[2]["key"]).json()["preview"] is False
    assert code_of(ask(server, queue, acknowledge=[two["receipt"]]), 400) == "InvalidReceipt"
    assert bodies(receive(server, queue, max=9)) == ["3"]
    assert server.call("GET", queue, "leases", GROUP).json()["settings"]["visibility"] == 100
    for place, expected in (("beginning", "0123"), (placed[1]["timestamp"], "123"), ("end", "")):
        assert reset(server, queue, to=place).status_code == 200
        assert bodies(receive(server, queue, max=9)) == [*expected]


@pytest.mark.parametrize(("body", "field"), [({}, "to"), ({"to": "x"}, "to"), ({"to": "end", "preview": 1}, "preview")])
def test_a_wrong_reset_changes_nothing(server: Server, body: Json, field: str) -> None:
    queue = server.queue()
    server.add(queue, "a")
    assert code_of(reset(server, queue, to="end"), 404) == "LeaseGroupNotFound"
    (one,) = receive(server, queue)
    answer = reset(server, queue, **body)
    assert code_of(answer, 400) == "InvalidParameter"
    assert field in answer.json()["error_msg"]
    assert step(server, queue, acknowledge=[one["receipt"]])["settled"]["acknowledged"] == 1


def test_leases_are_shown_page_by_page(server: Server) -> None:
    queue = server.queue(partitions=2)
    for number in range(5):
        server.add(queue, str(number), x_partition=1 + number % 2)
    receive(server, queue, max=9)
    found: list[str] = []
    params: dict[str, Any] = {"leased": "true", "limit": 2}
    while True:
        page = server.call("GET", queue, "leases", GROUP, params=params)
        found += [f"{one['partition']}:{one['message_id']}" for one in page.json()["leases"]]
        if "Link" not in page.headers:
            break
        assert len(page.json()["leases"]) == 2
        params["offset"] = found[-1]
    assert len({*found}) == len(found) == 5


def test_a_receiver_without_a_name_is_known_by_its_principal_and_address(server: Server) -> None:
    queue = server.queue()
    server.add(queue, "a")
    receive(server, queue)
    (held,) = server.call("GET", queue, "leases", GROUP, params={"leased": "true"}).json()["leases"]
    principal, _, address = held["receiver"].rpartition(" ")
    assert principal.startswith("app:")
    assert address == "127.0.0.1"


def test_while_a_group_pauses_nothing_is_handed_out(server: Server) -> None:
    queue = server.queue()
    server.add(queue, "a")
    put(server, queue, paused_until=time.time() + 1000, paused_reason="a fault downstream")
    assert receive(server, queue) == []
    put(server, queue, paused_until=0)
    (one,) = receive(server, queue)
    step(server, queue, release=[{"receipt": one["receipt"], "delay": 0}])
    put(server, queue, paused_until=time.time() + 1)
    assert bodies(receive(server, queue, wait=60)) == ["a"], "the end of the pause wakes it"


def test_a_weak_group_hands_out_each_message_once_at_one_server(server: Server) -> None:
    queue = server.queue()
    for number in range(9):
        server.add(queue, str(number))
    settings = put(server, queue, exact=False, k="auto").json()["settings"]
    assert (settings["exact"], settings["k"]) == (False, "auto")
    handed = [one for _ in range(3) for one in receive(server, queue, max=3)]
    assert bodies(handed) == [str(number) for number in range(9)]
    step(server, queue, acknowledge=[one["receipt"] for one in handed])
    (held,) = server.call("GET", queue, "leases", GROUP).json()["partitions"]
    assert (held["held"], held["k"]) == (0, 1)
    assert put(server, queue, exact=False, k=7).json()["settings"]["k"] == 7
    assert code_of(put(server, queue, exact=True), 400) == "InvalidParameter"
    assert code_of(put(server, queue, order="key"), 400) == "InvalidParameter"
    assert server.call("GET", queue, "leases", GROUP).json()["partitions"][0]["k"] == 7


WRONG: dict[str, tuple[Json, str]] = {
    "unknown member": ({"recieve": {}}, "recieve"),
    "unknown member of receive": ({"receive": {"maximum": 1}}, "receive.maximum"),
    "null": ({"receive": None}, "receive"),
    "no object": ({"receive": []}, "receive"),
    "max": ({"receive": {"max": 1001}}, "receive.max"),
    "no whole max": ({"receive": {"max": 1.5}}, "receive.max"),
    "true for a number": ({"receive": {"max": True}}, "receive.max"),
    "visibility": ({"receive": {"visibility": 43_201}}, "receive.visibility"),
    "wait": ({"receive": {"wait": -1}}, "receive.wait"),
    "pop": ({"receive": {"pop": 1}}, "receive.pop"),
    "partition": ({"receive": {"partitions": [2]}}, "receive.partitions"),
    "no partition": ({"receive": {"partitions": []}}, "receive.partitions"),
    "no list": ({"acknowledge": "x"}, "acknowledge"),
    "too many": ({"acknowledge": ["x"] * 1001}, "acknowledge"),
    "no text": ({"acknowledge": [3]}, "acknowledge.0"),
    "no receipt": ({"release": [{"delay": 3}]}, "release.0"),
    "delay": ({"release": [{"receipt": "x", "delay": 1e9}]}, "release.0.delay"),
    "reason": ({"reject": [{"receipt": "x", "reason": "x" * 1025}]}, "reject.0.reason"),
    "no visibility": ({"extend": [{"receipt": "x"}]}, "extend.0.visibility"),
    "no receiver": ({"extend": {"visibility": 3}}, "extend.receiver"),
    "attempt": ({"attempt": ""}, "attempt"),
    "append": ({"append": [{"queue": "q"}]}, "append.0.messages"),
    "message": ({"append": [{"queue": "{queue}", "messages": [{"body": "a"}, {"ttl": 0}]}]}, "append.0.messages.1.ttl"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_member_is_named_and_nothing_is_done(server: Server, what: str) -> None:
    queue = server.queue()
    server.add(queue, "a")
    wrong, field = WRONG[what]
    body = json.loads(json.dumps(wrong).replace("{queue}", queue))
    answer = ask(server, queue, **({"receive": {}} | body))
    assert code_of(answer, 400) == "InvalidParameter"
    assert field in answer.json()["error_msg"]
    assert bodies(receive(server, queue)) == ["a"]
    assert bodies(server.get(queue).json()["messages"]) == ["a"]


SETTINGS: dict[str, Json] = {
    "visibility": {"visibility": "30"},
    "max_failures": {"max_failures": -1},
    "dead_letter_queue": {"dead_letter_queue": "a/b"},
    "backoff": {"backoff": 3},
    "backoff.factor": {"backoff": {"factor": 0.5}},
    "order": {"order": "keys"},
    "per_key": {"per_key": 0},
    "k": {"k": 1001},
    "exact": {"exact": False, "order": "key"},
    "max_leased": {"max_leased": 120_001},
    "max_held": {"max_held": 0},
    "paused_until": {"paused_until": "never"},
    "fair": {"fair": True, "order": "key"},
    "start": {"start": "middle"},
    "unknown": {"unknown": 1},
}


@pytest.mark.parametrize("field", SETTINGS)
def test_a_wrong_setting_is_named_and_makes_no_group(server: Server, field: str) -> None:
    queue = server.queue()
    answer = put(server, queue, **SETTINGS[field])
    assert code_of(answer, 400) == "InvalidParameter"
    assert field in answer.json()["error_msg"]
    assert server.call("GET", queue, "leases").json()["groups"] == []


def test_a_queue_is_not_its_own_dead_letter_queue(server: Server) -> None:
    queue = server.queue()
    assert code_of(put(server, queue, dead_letter_queue=queue), 409) == "Conflict"


def test_dead_letters_of_dead_letters_do_not_come_back(server: Server) -> None:
    """Neither by groups of any name, nor by what a group has that names no queue, nor by what a queue gives its groups."""
    queue, other = server.queue(), server.queue()
    server.call("POST", data={"queue_name": f"{queue}-dead"})
    assert put(server, other, group="others", dead_letter_queue=queue).status_code == 200

    answers = [
        put(server, queue, dead_letter_queue=other),
        put(server, f"{queue}-dead", dead_letter_queue=queue),
        put(server, f"{queue}-dead", dead_letter_queue=other),
        server.call("PUT", queue, data={"lease_dead_letter_queue": other}),
    ]

    assert [code_of(answer, 409) for answer in answers] == ["Conflict"] * 4
    said = answers[2].json()["detail"]
    assert f"from {queue}-dead to {other} to {queue} to {queue}-dead" in said


def test_receipts_of_others_are_refused(server: Server) -> None:
    queue, other = server.queue(), server.queue()
    for name in (queue, other):
        server.add(name, "a")
    (one,), (foreign,) = receive(server, queue), receive(server, other)
    (of_another_group,) = receive(server, queue, "others")
    for receipts in (["x"], [foreign["receipt"]], [one["receipt"]] * 2, [one["receipt"], of_another_group["receipt"]]):
        assert code_of(ask(server, queue, acknowledge=receipts), 400) == "InvalidReceipt"
    assert code_of(ask(server, queue, acknowledge=[of_another_group["receipt"]]), 400) == "InvalidReceipt"
    assert step(server, queue, acknowledge=[one["receipt"]])["settled"]["acknowledged"] == 1


def test_a_queue_to_append_to_is_one_that_the_caller_may_append_to(server: Server) -> None:
    queue = server.queue()
    server.add(queue, "a")
    (one,) = receive(server, queue)
    missing = ask(
        server, queue, acknowledge=[one["receipt"]], append=[{"queue": "nothing", "messages": [{"body": "x"}]}]
    )
    assert code_of(missing, 404) == "QueueNotFound"
    assert step(server, queue, acknowledge=[one["receipt"]])["settled"]["acknowledged"] == 1


def test_messages_larger_than_an_answer_come_one_by_one(server: Server) -> None:
    queue = server.queue()
    for _ in range(3):
        server.add(queue, b"x" * 600_000)
    first = receive(server, queue, max=10)
    assert len(first) == 1
    step(server, queue, release=[{"receipt": first[0]["receipt"], "delay": 0, "count": False}])
    rest = [receive(server, queue, max=10) for _ in range(3)]
    assert [len(one) for one in rest] == [1, 1, 1]


def test_a_user_may_receive_from_the_queue_that_names_it(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server:
        queue = server.queue(principles="bid:joe@example.org")
        server.add(queue, "a")
        assert code_of(ask(server, queue, receive={}), 403) == "Forbidden"


def test_leases_outlive_a_server(tmp_path: Path) -> None:
    with servers.shipped(tmp_path) as running, Server(running) as server:
        queue = server.queue()
        for number in range(3):
            server.add(queue, str(number))
        (first,) = receive(server, queue, visibility=600)
        (second,) = receive(server, queue, visibility=600)
        step(server, queue, acknowledge=[first["receipt"]])
    with servers.shipped(tmp_path) as running, Server(running) as server:
        assert bodies(receive(server, queue, max=9)) == ["2"]
        assert step(server, queue, acknowledge=[second["receipt"]])["settled"]["acknowledged"] == 1
