"""Lease groups through two servers over one keyspace, with the read delay that they have without any setting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.client import Json, Server, refused
from tests.support.lease_requests import GROUP, step
from tests.support.live import until_waiting
from tests.support.servers import eventually


def receive(server: Server, queue: str, **wanted: Any) -> list[Json]:
    """Messages, once the read delay of those that were appended before is over."""
    found = eventually(lambda: step(server, queue, receive=wanted)["messages"], seconds=60)
    assert isinstance(found, list)
    return found


def test_what_one_server_hands_out_the_other_settles(first: Server, second: Server) -> None:
    queue, results = first.queue(), first.queue()
    for number in range(2):
        first.add(queue, str(number))
    (zero,) = receive(first, queue, visibility=600)
    (one,) = receive(second, queue, visibility=600)
    assert [zero["body"], one["body"]] == ["0", "1"]
    body: dict[str, Any] = {
        "acknowledge": [zero["receipt"]],
        "append": [{"queue": results, "messages": [{"body": "result"}]}],
        "attempt": "once",
    }
    answered = [step(server, queue, **body) for server in (second, first, second)]
    assert answered[0]["settled"]["acknowledged"] == 1
    assert answered[1] == answered[2] == answered[0]
    assert eventually(lambda: first.bodies(results), seconds=60) == ["result"]
    again = first.call("POST", queue, "leases", GROUP, json=body | {"attempt": "twice"})
    refused(again, 409, "StaleReceipt")
    assert step(first, queue, acknowledge=[one["receipt"]])["settled"]["acknowledged"] == 1
    for server in (first, second):
        (held,) = server.call("GET", queue, "leases", GROUP).json()["partitions"]
        assert held["held"] == 0


def test_receivers_at_both_servers_wait_for_what_comes_to_one(first: Server, second: Server) -> None:
    queue = first.queue(partitions=2)
    second.add(queue, "known to both")
    assert receive(first, queue, pop=True)
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(step, server, queue, receive={"wait": 60}) for server in (first, second)]
        with Server(first.running) as other:
            for number in range(2):
                other.add(queue, str(number), x_partition=1 + number)
        found = [message["body"] for each in waiting for message in each.result(70)["messages"]]
    assert sorted(found) == ["0", "1"]


def test_receivers_at_both_servers_hear_of_a_partition_that_one_adds(first: Server, second: Server) -> None:
    queue = first.queue(partitions=1)
    second.add(queue, "known to both")
    assert receive(first, queue, pop=True)
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(step, server, queue, receive={"wait": 60}) for server in (first, second)]
        with Server(first.running) as other:
            for server in (first, second):
                until_waiting(server, 1)
            assert other.call("PUT", queue, data={"partitions": "2"}).status_code == 200
            for number in range(2):
                other.add(queue, str(number), x_partition=2)
        found = [message["body"] for each in waiting for message in each.result(70)["messages"]]
    assert sorted(found) == ["0", "1"]


def test_what_one_server_releases_a_receiver_at_the_other_gets(first: Server, second: Server) -> None:
    queue = first.queue()
    first.add(queue, "a")
    (one,) = receive(first, queue, visibility=600)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(step, second, queue, receive={"wait": 60})
        until_waiting(second, 1)
        step(first, queue, release=[{"receipt": one["receipt"], "delay": 0}])
        (again,) = waiting.result(70)["messages"]
    assert again["deliveries"] == 2


def test_servers_of_a_weak_group_learn_of_each_other(first: Server, second: Server) -> None:
    queue = first.queue()
    assert first.call("PUT", queue, "leases", GROUP, json={"exact": False}).json()["settings"]["k"] == "auto"
    for number in range(4):
        first.add(queue, str(number))
    (zero,) = receive(first, queue, visibility=600)
    (one,) = receive(second, queue, visibility=600)
    for server, message in ((second, zero), (first, one)):
        assert step(server, queue, acknowledge=[message["receipt"]])["settled"]["acknowledged"] == 1
    popped = [receive(server, queue, pop=True)[0] for server in (second, first)]
    assert sorted(message["body"] for message in (zero, one, *popped)) == ["0", "1", "2", "3"]
    (held,) = second.call("GET", queue, "leases", GROUP).json()["partitions"]
    assert held["held"] == 0


def test_a_group_that_is_set_at_one_server_is_so_at_the_other(first: Server, second: Server) -> None:
    queue = first.queue()
    assert first.call("PUT", queue, "leases", GROUP, json={"visibility": 7}).status_code == 200
    assert second.call("GET", queue, "leases", GROUP).json()["settings"]["visibility"] == 7
    assert second.call("PUT", queue, "leases", GROUP, json={"visibility": 8}).status_code == 200
    assert first.call("GET", queue, "leases", GROUP).json()["settings"]["visibility"] == 8
    assert second.call("GET", queue, "leases").json()["groups"] == [{"group": GROUP}]
    assert first.call("DELETE", queue, "leases", GROUP).status_code == 200
    refused(second.call("GET", queue, "leases", GROUP), 404, "LeaseGroupNotFound")
