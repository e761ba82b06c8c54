"""A partition that one server adds is known to another as soon as a call names it, however long settings are cached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from botocore.credentials import Credentials

from tests.support import on_cassandra, servers
from tests.support.client import Json, Server, new_name, refused
from tests.support.lease_requests import receive, step
from tests.support.servers import APPLICATIONS
from tests.support.services.fixtures import Keyspaces, Reached
from tests.support.sqs_clients import sqs_client

REMEMBERING = "write_budget_ms = 0\nread_delay_ms = 0\nclock_error_ms = 10000\ncache_ms = 60000\n"
"""Lines of ``[cassandra]``: settings of a queue are used for a minute, and what is appended is read at once."""


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, cassandra_node: Reached, keyspaces: Keyspaces
) -> Iterator[tuple[Server, Server]]:
    with keyspaces() as name, ExitStack() as stack:
        on_cassandra.init(cassandra_node, name)
        text = on_cassandra.settings(cassandra_node, name, REMEMBERING, rest="[sqs]\nauth = open\n")
        several = [
            stack.enter_context(servers.shipped(tmp_path_factory.mktemp(each), settings=text, name=each))
            for each in ("adding", "remembering")
        ]
        yield stack.enter_context(Server(several[0])), stack.enter_context(Server(several[1]))


@pytest.fixture
def adding(pair: tuple[Server, Server]) -> Server:
    return pair[0]


@pytest.fixture
def remembering(pair: tuple[Server, Server]) -> Server:
    return pair[1]


@pytest.fixture
def queue(adding: Server, remembering: Server) -> str:
    """It has two partitions, and the second server knew it when it had one."""
    name = adding.queue(partitions=1)
    remembering.add(name)
    assert adding.call("PUT", name, data={"partitions": 2}).status_code == 200
    return name


def leased(server: Server, queue: str, group: str = "workers") -> Json:
    """A message of the new partition."""
    server.add(queue, "new", x_partition=2)
    (found,) = receive(server, queue, group, wait=20, visibility=600, partitions=[2])
    return found


def test_a_message_goes_there(remembering: Server, queue: str) -> None:
    assert remembering.post(queue, x_partition=2).status_code == 201


def test_messages_of_a_batch_go_there(remembering: Server, queue: str) -> None:
    assert remembering.post_batch(queue, {"body": "b", "partition": 2}).status_code == 201


def test_a_span_is_read_there(adding: Server, remembering: Server, queue: str) -> None:
    adding.add(queue, "new", x_partition=2)
    assert remembering.bodies(queue, partitions="2") == ["new"]


def test_an_offset_is_kept_there(adding: Server, remembering: Server, queue: str) -> None:
    id_ = adding.add(queue, x_partition=2)["key"]
    body = {"offsets": [{"partition": 2, "message_id": id_}], "generation": 1}
    answer = remembering.call("PUT", queue, "offsets", "mail", json=body)
    assert answer.status_code == 200, answer.text


def test_a_message_is_fetched_by_its_id(adding: Server, remembering: Server, queue: str) -> None:
    key = "2:" + adding.add(queue, "new", x_partition=2)["key"]
    assert [message["body"] for message in remembering.fetch(queue, key)] == ["new"]


def test_a_message_is_overwritten_by_its_id(adding: Server, remembering: Server, queue: str) -> None:
    key = "2:" + adding.add(queue, "new", x_partition=2)["key"]
    assert remembering.call("PUT", queue, key, data=b"other").status_code == 200
    assert [message["body"] for message in adding.fetch(queue, key)] == ["other"]


def test_receivers_name_it(adding: Server, remembering: Server, queue: str) -> None:
    adding.add(queue, "new", x_partition=2)
    (found,) = receive(remembering, queue, wait=20, partitions=[2])
    assert found["body"] == "new"


@pytest.mark.parametrize("action", ["acknowledge", "release"])
def test_a_receipt_of_it_is_settled(adding: Server, remembering: Server, queue: str, action: str) -> None:
    receipt = leased(adding, queue)["receipt"]
    body: dict[str, Any] = {action: [receipt if action == "acknowledge" else {"receipt": receipt}]}
    assert step(remembering, queue, **body)["settled"][f"{action.removesuffix('e')}ed"] == 1


def test_receipts_of_several_queues_are_settled(adding: Server, remembering: Server, queue: str) -> None:
    body = {"queues": [remembering.queue(), queue], "acknowledge": [leased(adding, queue)["receipt"]]}
    answer = remembering.call("POST", params={"receive": "workers"}, json=body)
    assert answer.json()["settled"]["acknowledged"] == 1


def test_a_settle_appends_there(adding: Server, remembering: Server, queue: str) -> None:
    appends = [{"queue": queue, "messages": [{"body": "result", "partition": 2}]}]
    step(remembering, remembering.queue(), append=appends)
    assert adding.bodies(queue, partitions="2") == ["result"]


def test_clients_of_sqs_delete_what_was_received_from_it(adding: Server, remembering: Server) -> None:
    here, there = (sqs_client(one.url, Credentials(one.application, "any")) for one in (adding, remembering))
    name = new_name()
    url = here.create_queue(QueueName=name)["QueueUrl"]
    there.receive_message(QueueUrl=url)
    assert adding.call("PUT", name, data={"partitions": 2}).status_code == 200
    receipt = leased(adding, name, "sqs")["receipt"]

    there.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=900)
    there.delete_message(QueueUrl=url, ReceiptHandle=receipt)

    (_, second) = adding.call("GET", name, "leases", "sqs").json()["partitions"]
    assert second["held"] == 0


def test_what_no_server_has_is_refused(remembering: Server, queue: str) -> None:
    refused(remembering.post(queue, x_partition=3), 400, "partition")


def test_who_is_named_on_one_server_is_let_in_by_the_other(adding: Server, remembering: Server, queue: str) -> None:
    with remembering.seen_by(APPLICATIONS["other"][0]) as other:
        refused(other.get(queue), 403)
        adding.call("PUT", queue, data={"principles": "app:other"})
        assert other.get(queue).status_code == 200
