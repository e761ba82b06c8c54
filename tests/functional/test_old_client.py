"""The clients of 2012 against today's server: queuey-py 0.2, the push server, Qdo 0.1's use of storage."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from tests.support.client import new_name
from tests.support.old_client import HTTPError, OldClient, PushClient
from tests.support.servers import APPLICATIONS, RunningServer

KEY = APPLICATIONS["queuey"][0]


def base(running: RunningServer) -> str:
    return f"{running.url}/v1/queuey/"


@pytest.fixture
def running(shipped_server: RunningServer) -> RunningServer:
    """What these clients send and get is the same over each store, as ``test_alike`` says."""
    return shipped_server


@pytest.fixture
def client(running: RunningServer) -> Iterator[OldClient]:
    old = OldClient(KEY, base(running))
    old.connect()
    yield old
    old.close()


@pytest.fixture
def queue(client: OldClient) -> str:
    return client.create_queue(partitions=3, queue_name=new_name())


def test_connect_asks_the_heartbeat_with_head(client: OldClient) -> None:
    client.connect()


def test_a_queue_is_created_with_a_name_drawn_or_given(client: OldClient) -> None:
    name = new_name()

    assert len(client.create_queue()) == 32
    assert client.create_queue(partitions=3, queue_name=name) == name
    assert client.create_queue(partitions=3, queue_name=name) == name


def test_a_text_posted_is_read(client: OldClient, queue: str) -> None:
    client.post(queue, data="one message", headers={"X-Partition": "1"})

    (found,) = client.messages(queue)

    assert found["body"] == "one message"
    assert set(found) >= {"message_id", "timestamp", "partition", "body"}


def test_a_text_posted_as_the_old_default_form_type_is_raw(client: OldClient, queue: str) -> None:
    client.post(queue, data="a=1&b=2")

    assert [message["body"] for message in client.messages(queue, partition="1,2,3")] == ["a=1&b=2"]


def test_a_list_becomes_a_batch(client: OldClient, queue: str) -> None:
    answer = client.post(queue, data=["a", "b", "c"], headers={"X-Partition": "1"})

    assert answer.status_code == 201
    assert len(answer.json()["messages"]) == 3
    assert sorted(message["body"] for message in client.messages(queue, partition="1,2,3")) == ["a", "b", "c"]


def test_messages_after_an_id_leave_the_message_of_that_id_out(client: OldClient, queue: str) -> None:
    for text in ("a", "b", "c"):
        client.post(queue, data=text, headers={"X-Partition": "2"})
    first = client.messages(queue, partition=2)[0]

    later = client.messages(queue, partition=2, since=first["message_id"])

    assert [message["body"] for message in later] == ["b", "c"]


def test_paging_with_a_limit_of_two_moves_on_by_one(client: OldClient, queue: str) -> None:
    """Qdo's loop: two messages from the position on, of which the position's own is dropped."""
    for number in range(6):
        client.post(queue, data=str(number), headers={"X-Partition": "1"})

    seen, since = [], ""
    while found := client.messages(queue, since=since, limit=2):
        seen.append(found[0]["body"])
        since = found[0]["message_id"]

    assert seen == list("012345")


def test_messages_descending(client: OldClient, queue: str) -> None:
    for text in ("a", "b"):
        client.post(queue, data=text, headers={"X-Partition": "1"})

    assert [message["body"] for message in client.messages(queue, order="descending")] == ["b", "a"]


def test_details_of_one_queue_are_asked_with_the_old_words(client: OldClient, queue: str) -> None:
    answer = client.get(params={"details": True, "limit": 1, "offset": queue})

    (found,) = answer.json()["queues"]
    assert (found["queue_name"], found["partitions"]) == (queue, 3)


def test_a_list_of_all_queues_has_no_limit(client: OldClient, queue: str) -> None:
    assert queue in {found["queue_name"] for found in client.get().json()["queues"]}


def test_a_message_is_replaced_and_deleted_by_id(client: OldClient, queue: str) -> None:
    answer = client.post(queue, data="old", headers={"X-Partition": "3"})
    key = answer.json()["messages"][0]["key"]

    client.put(f"{queue}/3%3A{key}", data="new", headers={"X-TTL": "300"})
    assert client.messages(queue, partition=3)[0]["body"] == "new"

    client.delete(f"{queue}/3%3A{key}")
    assert client.messages(queue, partition=3) == []


def test_a_refusal_is_an_error_with_status_and_answer(client: OldClient) -> None:
    with pytest.raises(HTTPError) as caught:
        client.messages("no-such-queue")

    assert caught.value.status == 404
    assert "InvalidQueueName" in caught.value.response.json()["error_msg"]


def test_a_queue_is_deleted(client: OldClient, queue: str) -> None:
    client.delete(queue)

    with pytest.raises(HTTPError) as caught:
        client.get(queue)
    assert caught.value.status == 404


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@contextmanager
def forgetful(running: RunningServer) -> Iterator[str]:
    """A relay that hands on all that is asked, and swallows the answers of its first connection: a timeout."""
    ends: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(8) as threads:

        def relay() -> None:
            for swallow in (True, False):
                near, far = listening.accept()[0], socket.create_connection(("127.0.0.1", running.port))
                ends.extend((near, far))
                threads.submit(hand_on, near, far, swallow=False)
                threads.submit(hand_on, far, near, swallow=swallow)

        threads.submit(relay)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1/queuey/"
        for end in ends:
            hang_up(end)
    for end in ends:
        end.close()


def hand_on(source: socket.socket, target: socket.socket, *, swallow: bool) -> None:
    """All that comes from one side until it closes; then the connection is over for both."""
    with suppress(OSError):
        while piece := source.recv(65536):
            if not swallow:
                target.sendall(piece)
    hang_up(source)
    hang_up(target)


def hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def test_a_post_is_repeated_after_a_timeout_and_stores_again(
    running: RunningServer, client: OldClient, queue: str
) -> None:
    """The old client has no idempotency key: the server can't know, and must not guess."""
    with forgetful(running) as url:
        careless = OldClient(KEY, url, timeout=3.0)
        careless.post(queue, data="twice", headers={"X-Partition": "1"})
        careless.close()

    assert [message["body"] for message in client.messages(queue)] == ["twice", "twice"]


def test_a_post_is_given_up_after_the_last_timeout(queue: str) -> None:
    with silent_port() as port:
        hopeless = OldClient(KEY, f"http://127.0.0.1:{port}/v1/queuey/", retries=2, timeout=0.2)
        with pytest.raises(Exception, match="timed out"):
            hopeless.post(queue, data="x")
        hopeless.close()


def test_a_server_that_is_down_is_left_for_another_once_and_for_all(running: RunningServer, queue: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else gets it
        down, up = f"http://127.0.0.1:{taken.getsockname()[1]}/v1/queuey/", base(running)
        client = OldClient(KEY, f"{down},{up}")
        client.app_url, client._urls = down, [down, up]

        client.connect()
        client.post(queue, data="moved", headers={"X-Partition": "1"})

    assert client.app_url == up
    assert [message["body"] for message in client.messages(queue)] == ["moved"]
    client.close()


@pytest.fixture
def push(running: RunningServer) -> Iterator[PushClient]:
    client = PushClient(KEY, base(running).rstrip("/"))
    yield client
    client.close()


def test_push_makes_a_queue_per_token_or_of_an_empty_post(push: PushClient) -> None:
    token = uuid.uuid4().hex

    assert push.new_queue(token) == token
    assert len(push.new_queue()) == 32


def test_push_notifications_are_read_in_order_and_on_from_a_key(push: PushClient) -> None:
    queue = push.new_queue()
    sent = [push.new_message(queue, {"title": f"nöte {number}", "action": "new"}) for number in range(3)]

    assert push.get_messages(queue) == sent
    assert push.get_messages(queue, since=sent[1]["key"]) == sent[1:]
    assert push.get_messages(queue, since=sent[1]["timestamp"]) == sent[1:]
    assert push.get_messages(queue, limit=1) == sent[:1]


def test_push_marks_what_was_read_with_a_message(push: PushClient) -> None:
    queue = push.new_queue()
    first = push.new_message(queue, {"title": "a"})

    push.mark_read(queue, first["key"])

    assert [message.get("action") for message in push.get_messages(queue)] == [None, "read"]


def test_qdo_makes_its_two_queues_from_several_workers_at_once(client: OldClient) -> None:
    for name in ("qdo_error", "qdo_status"):
        for _ in range(2):
            assert client.create_queue(partitions=7, queue_name=name) == name
        assert client.get(params={"details": True, "limit": 1, "offset": name}).json()["queues"][0]["partitions"] == 7


def test_qdo_keeps_a_position_as_a_message_that_it_puts_again_and_again(client: OldClient) -> None:
    """Section 13.2: PUT at an id of the worker's own making, read back by id and by listing newest first."""
    client.create_queue(partitions=7, queue_name="qdo_status")
    mine = uuid.uuid1().hex
    place = f"qdo_status/3%3A{mine}"

    for processed in ("", "a" * 32, "b" * 32):
        status = {"partition": "work-3", "processed": processed, "last_worker": "host-1"}
        answer = client.put(place, data=json.dumps(status), headers={"X-TTL": "2592000"})
        assert answer.status_code == 200
        (found,) = client.get(place).json()["messages"]
        assert json.loads(found["body"]) == status
        assert found["message_id"] == mine

    newest = client.messages("qdo_status", partition="3", limit=1000, order="descending")
    assert json.loads(next(m["body"] for m in newest if m["message_id"] == mine))["processed"] == "b" * 32


def test_qdo_saves_a_failed_message_in_the_error_queue(client: OldClient) -> None:
    client.create_queue(partitions=7, queue_name="qdo_error")
    failed = json.dumps({"body": "x", "message_id": "0" * 32, "queue": f"work-{new_name()}"})

    client.post("qdo_error", data=failed, headers={"X-TTL": "2592000"})

    assert failed in [
        message["body"] for message in client.messages("qdo_error", partition="1,2,3,4,5,6,7", limit=1000)
    ]
