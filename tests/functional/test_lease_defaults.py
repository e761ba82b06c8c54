"""What the lease groups of a queue begin with: ``lease_...`` settings of the queue."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.client import Json, Server, refused


def settings_of(server: Server, queue: str, group: str = "g") -> Json:
    found: Json = server.call("GET", queue, "leases", group).json()["settings"]
    return found


def change(server: Server, queue: str, **fields: Any) -> Json:
    answer = server.call("PUT", queue, data=fields)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def test_a_group_that_is_made_by_its_first_use_has_them(server: Server) -> None:
    fields = {
        "lease_visibility": "7.5",
        "lease_order": "key",
        "lease_max_failures": "0",
        "lease_backoff": '{"first":3}',
    }
    queue = server.queue(**fields)
    server.fill(queue, "a")

    (message,) = server.call("POST", queue, "leases", "g", json={"receive": {}}).json()["messages"]
    assert float(message["visible_at"]) - float(message["first_delivered"]) == pytest.approx(7.5, abs=0.001)
    settings = settings_of(server, queue)
    assert (settings["visibility"], settings["order"], settings["max_failures"]) == (7.5, "key", 0)
    assert settings["backoff"] == {"first": 3.0, "factor": 2.0, "most": 30.0, "jitter": 0.1}
    shown = server.info(queue)
    assert {f"lease_{name}": value for name, value in settings.items()} | {"lease_start": "beginning"} == {
        name: value for name, value in shown.items() if name.startswith("lease_")
    }


def test_a_group_that_is_made_by_its_settings_has_them_unless_it_says_otherwise(server: Server) -> None:
    queue = server.queue(lease_k="5", lease_visibility="9")
    server.call("PUT", queue, "leases", "g", json={"visibility": 50})
    settings = settings_of(server, queue)
    assert (settings["k"], settings["visibility"]) == (5, 50.0)


def test_they_change_no_group_that_is_there(server: Server) -> None:
    queue = server.queue(lease_visibility="9")
    server.call("POST", queue, "leases", "g", json={})
    answer = change(server, queue, lease_visibility="8", lease_paused_reason="später: 100 %")
    assert (answer["lease_visibility"], answer["lease_paused_reason"]) == (8.0, "später: 100 %")
    server.call("POST", queue, "leases", "new", json={})
    assert [settings_of(server, queue, group)["visibility"] for group in ("g", "new")] == [9.0, 8.0]


def test_fields_that_are_not_sent_stay_and_an_empty_one_has_the_default_again(server: Server) -> None:
    queue = server.queue(lease_visibility="9", lease_backoff='{"most":7}', lease_dead_letter_queue="bad")
    assert change(server, queue, lease_backoff='{"first":2}')["lease_backoff"]["most"] == 7.0
    found = change(server, queue, lease_visibility="", lease_backoff="", lease_dead_letter_queue="")
    assert (found["lease_visibility"], found["lease_backoff"]["first"]) == (30.0, 1.0)
    assert found["lease_dead_letter_queue"] == f"{queue}-dead"
    assert "lease_visibility" not in change(server, queue, type="public")
    again = server.create(queue, lease_k="3").json()
    assert (again["lease_k"], again["type"]) == (3, "public")
    assert server.info(queue)["lease_k"] == 3


def test_groups_may_begin_at_the_end(server: Server) -> None:
    queue = server.queue(lease_start="end")
    server.fill(queue, "before")
    server.call("POST", queue, "leases", "g", json={})
    server.fill(queue, "after")
    wanted = {"receive": {"max": 9, "wait": 10}}
    assert [one["body"] for one in server.call("POST", queue, "leases", "g", json=wanted).json()["messages"]] == [
        "after"
    ]
    assert server.call("PUT", queue, "leases", "other", json={"start": "beginning"}).status_code == 200
    messages = server.call("POST", queue, "leases", "other", json=wanted).json()["messages"]
    assert [one["body"] for one in messages] == ["before", "after"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("visibility", "soon"),
        ("visibility", "-1"),
        ("visibility", "true"),
        ("max_failures", "1.5"),
        ("order", "1"),
        ("k", "1001"),
        ("backoff", "5"),
        ("backoff", "{"),
        ("paused_until", "never"),
        ("start", "middle"),
        ("dead_letter_queue", "a/b"),
        ("exact", "1"),
        ("colour", "1"),
    ],
)
def test_a_wrong_one_is_named_and_nothing_is_changed(server: Server, name: str, value: str) -> None:
    queue = server.queue()
    refused(server.call("PUT", queue, data={f"lease_{name}": value, "type": "public"}), 400, f"lease_{name}")
    refused(server.create(queue, **{f"lease_{name}": value}), 400, f"lease_{name}")
    assert (server.info(queue)["lease_per_key"], server.info(queue)["type"]) == (1, "user")


def test_a_wrong_member_of_one_is_named(server: Server) -> None:
    queue = server.queue()
    wrong = {"lease_backoff": '{"factor":0.5,"colour":1}'}
    refused(server.call("PUT", queue, data=wrong), 400, "lease_backoff.factor", "lease_backoff.colour")
    refused(server.call("PUT", queue, params={"lease_k": "1"}), 400, "lease_k")
    change(server, queue, lease_order="key")
    refused(server.call("PUT", queue, data={"lease_exact": "false"}), 400, "lease_exact")


def test_a_queue_is_not_the_dead_letter_queue_of_its_groups(server: Server) -> None:
    queue = server.queue()
    refused(server.call("PUT", queue, data={"lease_dead_letter_queue": queue}), 409, "Conflict")
