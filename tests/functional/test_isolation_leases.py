"""No lease group opens what another queue, or another right, keeps shut (G19)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import requests

from tests.support.client import Json, Server, refused
from tests.support.servers import RunningServer
from tests.support.trusting import TrustingServer, asking, own, token_key_name

JOE = "bid:joe@example.org"


@pytest.fixture
def running(trusting_shipped_server: TrustingServer) -> RunningServer:
    return trusting_shipped_server


def step(server: Server, queue: str, **body: Any) -> requests.Response:
    return server.call("POST", queue, "leases", "work", json=body)


def received(server: Server, queue: str, **how: Any) -> list[Json]:
    answer = step(server, queue, receive={"max": 9, **how})
    assert answer.status_code == 200, answer.text
    messages: list[Json] = answer.json()["messages"]
    return messages


def append_to(*queues: str) -> dict[str, Any]:
    return {"append": [{"queue": queue, "messages": [{"body": "result"}]} for queue in queues]}


@pytest.fixture
def token(running: RunningServer, server: Server) -> Iterator[Any]:
    """Makes callers with a token of some verbs."""
    signer = own(token_key_name(server))
    with ExitStack() as stack:

        def caller(sub: str, *verbs: str, **restriction: Any) -> Server:
            text = signer.token(sub=sub, app="queuey", verbs=list(verbs), **restriction)
            return stack.enter_context(asking(running, f"Bearer {text}"))

        yield caller


def test_a_step_appends_only_where_the_caller_may_append(server: Server, token: Any) -> None:
    mine, results = server.queue(principles=JOE), server.queue()
    server.fill(mine, "a")
    joe = token(JOE, "receive", "append")
    (message,) = received(joe, mine)

    for queue in (mine, results, "absent"):
        refused(step(joe, mine, acknowledge=[message["receipt"]], **append_to(queue)), 403, "Forbidden")
    assert server.bodies(results) == []
    assert step(joe, mine, acknowledge=[message["receipt"]]).json()["settled"]["acknowledged"] == 1


def test_a_step_that_may_not_append_to_one_queue_appends_to_none(server: Server, token: Any) -> None:
    jobs, results, secret = server.queue(), server.queue(), server.queue()
    server.fill(jobs, "a")
    worker = token("app:queuey", "receive", "append", queues=[jobs, results])
    (message,) = received(worker, jobs)

    refused(step(worker, jobs, acknowledge=[message["receipt"]], **append_to(results, secret)), 403, "Forbidden")
    assert server.bodies(results) == []
    done = step(worker, jobs, acknowledge=[message["receipt"]], **append_to(results)).json()
    assert (done["settled"]["acknowledged"], server.bodies(results)) == (1, ["result"])


def test_a_token_to_receive_allows_that_alone(server: Server, token: Any) -> None:
    name = server.queue()
    (message,) = server.fill(name, "a")
    worker = token("app:queuey", "receive")

    (handed,) = received(worker, name)
    assert handed["message_id"] == message
    for answer in (
        worker.get(name),
        worker.call("GET", name, "leases"),
        worker.call("GET", name, "leases", "work"),
        worker.call("PUT", name, "leases", "work", json={}),
        worker.call("DELETE", name, "leases", "work"),
        worker.call("DELETE", name, message),
        step(worker, name, **append_to(name)),
    ):
        refused(answer, 403, "Forbidden")


def test_a_receipt_counts_in_its_own_queue_and_group_alone(server: Server, other: Server) -> None:
    mine, another, theirs = server.queue(), server.queue(), other.queue()
    for asked, queue in ((server, mine), (server, another), (other, theirs)):
        asked.fill(queue, "a")
    receipts = [received(asked, queue)[0]["receipt"] for asked, queue in ((server, another), (other, theirs))]
    received(server, mine)

    for receipt in receipts:
        refused(step(server, mine, acknowledge=[receipt]), 400, "InvalidReceipt")
    elsewhere = server.call("POST", another, "leases", "play", json={"acknowledge": receipts[:1]})
    refused(elsewhere, 400, "InvalidReceipt")
    assert step(server, another, acknowledge=receipts[:1]).json()["settled"]["acknowledged"] == 1
    assert step(other, theirs, acknowledge=receipts[1:]).json()["settled"]["acknowledged"] == 1


def test_an_attempt_is_each_queues_own(server: Server, other: Server) -> None:
    mine, theirs = server.queue(), other.queue()
    server.fill(mine, "mine")
    other.fill(theirs, "theirs")

    bodies = [
        step(asked, queue, attempt="one", receive={"max": 1}).json()["messages"][0]["body"]
        for asked, queue in ((server, mine), (other, theirs), (server, mine))
    ]

    assert bodies == ["mine", "theirs", "mine"]


def test_a_dead_letter_queue_has_to_be_one_that_the_caller_may_append_to(server: Server, token: Any) -> None:
    jobs, secret = server.queue(), server.queue()
    manager = token("app:queuey", "configure", "append", queues=[jobs])

    refused(manager.call("PUT", jobs, "leases", "work", json={"dead_letter_queue": secret}), 403, "Forbidden")
    refused(manager.call("PUT", jobs, "leases", "work", json={"dead_letter_queue": "absent"}), 403, "Forbidden")
    assert server.call("PUT", jobs, "leases", "work", json={"dead_letter_queue": secret}).status_code == 200
    assert server.call("PUT", jobs, "leases", "more", json={"dead_letter_queue": "absent"}).status_code == 200


def several(server: Server, *queues: str, group: str = "work", **body: Any) -> requests.Response:
    return server.call("POST", params={"receive": group}, json={"queues": [*queues], **body})


def test_each_of_several_queues_has_to_allow_it(server: Server, other: Server, token: Any, anonymous: Server) -> None:
    mine, jobs, secret, public = (
        server.queue(principles=JOE),
        server.queue(),
        server.queue(),
        server.queue(type="public"),
    )
    for name in (mine, jobs, secret, public):
        server.fill(name, "a")
    joe, reader = token(JOE, "receive", "append"), token("app:queuey", "read", "append")
    worker = token("app:queuey", "receive", queues=[jobs, public])

    for asked, queues in (
        (joe, (mine, secret)),
        (joe, (secret, mine)),
        (joe, (mine, public)),
        (joe, (mine, "absent")),
        (worker, (jobs, public, secret)),
        (worker, (jobs, "absent")),
        (reader, (jobs,)),
        (server, (jobs, mine)),
    ):
        answer = several(asked, *queues, receive={"max": 9, "pop": True})
        refused(answer, 403, "Forbidden")
        assert "absent" not in answer.text
    assert several(anonymous, public, receive={}).status_code == step(anonymous, public, receive={}).status_code == 403
    refused(several(server, jobs, other.queue(), receive={}), 404, "InvalidQueueName")
    for asked, queues in ((joe, (mine,)), (worker, (jobs, public)), (server, (public, secret, jobs))):
        messages = several(asked, *queues, receive={"max": 9}).json()["messages"]
        assert {one["queue"] for one in messages} == {*queues} - ({jobs, public} if asked is server else {""})


def test_a_step_of_several_queues_appends_only_where_the_caller_may_append(server: Server, token: Any) -> None:
    jobs, results, secret = server.queue(), server.queue(), server.queue()
    server.fill(jobs, "a")
    worker = token("app:queuey", "receive", "append", queues=[jobs, results])
    (message,) = received(worker, jobs)
    done: dict[str, Any] = {"acknowledge": [message["receipt"]]}

    refused(several(worker, jobs, results, **done, **append_to(results, secret)), 403, "Forbidden")
    assert several(worker, jobs, results, **done, **append_to(results)).json()["settled"]["acknowledged"] == 1


def test_a_receipt_counts_in_the_queues_that_are_named_alone(server: Server, other: Server, token: Any) -> None:
    mine, another, hers, theirs = server.queue(), server.queue(), server.queue(principles=JOE), other.queue()
    server.fill(another, "a")
    other.fill(theirs, "a")
    joe = token(JOE, "receive")
    of_another, of_theirs = received(server, another)[0]["receipt"], received(other, theirs)[0]["receipt"]

    for asked, queue, receipt in ((joe, hers, of_another), (joe, hers, of_theirs), (server, mine, of_theirs)):
        refused(several(asked, queue, acknowledge=[receipt]), 400, "InvalidReceipt")
    assert several(server, mine, another, acknowledge=[of_another]).json()["settled"]["acknowledged"] == 1
