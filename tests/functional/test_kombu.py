"""The transport of kombu against a real server: what its users expect of queues, exchanges and acknowledgements."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kombu import Connection, Exchange, Queue
from kombu.exceptions import ChannelError
from kombu.pidbox import Mailbox

import qdo.adapters.kombu  # noqa: F401 -- makes queuey:// known
from qdo.client import Client, NewMessage
from qdo.worker.dead_letters import letters
from queuey.errors import ConfigurationError, InvalidApplicationKey, InvalidParameter, ServerUnreachable
from tests.support.client import Server, emptied
from tests.support.kombu_bodies import SECONDS, Bodies, jobs, send
from tests.support.kombu_tasks import broker_of
from tests.support.servers import eventually


@pytest.fixture
def server(application: Server) -> Iterator[Server]:
    with emptied(application) as found:
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, server.application, server.key) as found:
        yield found


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with Connection(broker_of(server), transport_options={"visibility": 20}) as found:
        yield found


@pytest.fixture
def other(server: Server) -> Iterator[Connection]:
    """Another process, as far as the server can tell."""
    with Connection(broker_of(server)) as found:
        yield found


def settled(client: Client, group: str = "kombu") -> bool:
    """Whether the group holds nothing any more."""
    return not any(part.held for part in client.lease_group("jobs", group).partitions)


def test_what_was_sent_comes_once_with_its_headers(connection: Connection, client: Client) -> None:
    queue = jobs(connection)
    send(connection, {"n": 1}, headers={"deep": {"a": [1, None]}})
    send(connection, b"\x00\xff", content_type="application/octet-stream", content_encoding="binary")

    seen = Bodies(connection, queue, accept=["json", "application/octet-stream"]).wait(2)

    assert sorted(seen, key=str) == [b"\x00\xff", {"n": 1}]
    assert {"deep": {"a": [1, None]}} in [message.headers for message in seen.messages]
    assert [message.delivery_info["redelivered"] for message in seen.messages] == [False, False]
    for message in seen.messages:
        message.ack()
    eventually(lambda: settled(client))
    with pytest.raises(socket.timeout):
        connection.drain_events(timeout=0)


def test_a_message_of_another_program_is_a_body(connection: Connection, client: Client) -> None:
    queue = jobs(connection)
    client.append("jobs", json={"n": 1})

    seen = Bodies(connection, queue).wait(1)

    assert [*seen] == [{"n": 1}]
    seen.messages[0].ack()


def test_prefetch_bounds_what_a_consumer_has(connection: Connection, client: Client) -> None:
    queue = jobs(connection)
    send(connection, *range(5))

    seen = Bodies(connection, queue, prefetch=2).wait(2)
    leased = sum(part.leased for part in client.lease_group("jobs", "kombu").partitions)
    for message in seen.messages:
        message.ack()
    seen.wait(4)

    assert leased == 2
    assert sorted(seen) == [0, 1, 2, 3]


def test_a_rejected_message_is_a_dead_letter_and_a_requeued_one_comes_again(
    connection: Connection, client: Client
) -> None:
    queue = jobs(connection)
    client.set_lease_group("jobs", "kombu", backoff={"first": 0, "most": 0})
    send(connection, "bad", "again")

    seen = Bodies(connection, queue).wait(2)
    {message.payload: message for message in seen.messages}["bad"].reject()
    {message.payload: message for message in seen.messages}["again"].requeue()
    seen.wait(3)
    seen.messages[-1].ack()

    assert seen[2] == "again"
    assert seen.messages[2].delivery_info["redelivered"]
    eventually(lambda: len(list(letters(client, "jobs-dead"))) == 1)
    ((_, letter),) = letters(client, "jobs-dead")
    assert letter.story.reason == "rejected by its consumer"


def test_a_lease_is_extended_while_a_consumer_has_the_message(server: Server, client: Client) -> None:
    with Connection(broker_of(server), transport_options={"visibility": 6}) as connection:
        queue = jobs(connection)
        send(connection, "long")
        seen = Bodies(connection, queue).wait(1)
        (lease,) = client.leases("jobs", "kombu")
        until = float(lease.visible_at) + 1
        eventually(lambda: float(next(iter(client.leases("jobs", "kombu"))).visible_at) > until)
        seen.messages[0].ack()
        eventually(lambda: settled(client))


def test_a_closed_channel_gives_back_what_is_not_acknowledged(
    connection: Connection, other: Connection, client: Client
) -> None:
    queue = jobs(connection)
    send(connection, *range(3))
    first = Bodies(connection, queue).wait(3)
    first.messages[0].ack()

    connection.close()
    second = Bodies(other, jobs(other)).wait(2)

    assert sorted([first[0], *second]) == [0, 1, 2]
    held = [*client.leases("jobs", "kombu")]
    assert [lease.failures for lease in held] == [0, 0]


def test_what_comes_once_a_channel_was_closed_is_given_back(connection: Connection, client: Client) -> None:
    """A channel that closes waits for an answer that is under way, but not for ever."""
    jobs(connection)
    send(connection, "late")
    channel = connection.channel()
    channel.close()
    (message,) = client.receive("jobs", "kombu")

    channel._took(message)

    (again,) = eventually(lambda: client.receive("jobs", "kombu"))
    assert (again.deliveries, again.failures) == (2, 0)


def test_a_message_is_got_without_a_consumer(connection: Connection, client: Client) -> None:
    queue = jobs(connection)
    assert queue.get() is None
    send(connection, 1, 2)

    first = queue.get()
    second = queue.get(no_ack=True)
    first.ack()

    assert {first.payload, second.payload} == {1, 2}
    eventually(lambda: settled(client))


def test_without_acknowledgements_a_message_is_done_when_it_is_delivered(
    connection: Connection, client: Client
) -> None:
    queue = jobs(connection)
    send(connection, 1, 2)

    Bodies(connection, queue, no_ack=True).wait(2)

    eventually(lambda: settled(client))


def test_an_eta_is_a_delivery_time_in_the_store(connection: Connection, client: Client) -> None:
    queue = jobs(connection)
    due = datetime.now(UTC) + timedelta(hours=1)
    send(connection, "later", headers={"eta": due.isoformat()})
    send(connection, "now", headers={"eta": (due - timedelta(hours=2)).isoformat()})
    send(connection, "whenever", headers={"eta": "no moment"})

    seen = Bodies(connection, queue).wait(2)

    assert sorted(seen) == ["now", "whenever"]
    assert client.queue_info("jobs").scheduled == 1


def test_a_message_that_expires_has_a_ttl(connection: Connection, client: Client) -> None:
    jobs(connection)
    send(connection, "short", expiration=90)

    with client.stream_ndjson("jobs", columns=["expires"]) as stream:
        (message,) = stream

    assert float(message.expires or 0) - float(message.timestamp) == pytest.approx(90, abs=1)


def test_a_queue_is_purged_counted_and_deleted(connection: Connection, client: Client) -> None:
    queue = jobs(connection)
    send(connection, *range(3))

    assert queue.queue_declare(passive=True).message_count == 3
    assert queue.purge() == 3
    assert queue.queue_declare(passive=True).message_count == 0
    queue.delete()
    assert client.find_queue("jobs") is None
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        queue.queue_declare(passive=True)


def test_a_queue_with_a_strange_name_has_one_on_the_server(connection: Connection, client: Client) -> None:
    queue = Queue("mail for Ann & Bob", durable=True)(connection.default_channel)
    queue.declare()
    send(connection, "hello", key=queue.name)

    seen = Bodies(connection, queue).wait(1)

    assert [*seen] == ["hello"]
    seen.messages[0].ack()
    assert [found.name for found in client.queues() if found.name.startswith("mail_for_Ann")]


@pytest.mark.parametrize(
    ("kind", "bound", "key"), [("direct", "red", "red"), ("topic", "colour.#", "colour.red"), ("fanout", "", "x")]
)
def test_an_exchange_leads_to_the_queues_that_another_process_bound(
    connection: Connection, other: Connection, kind: str, bound: str, key: str
) -> None:
    exchange = Exchange("paint", type=kind)
    for name in ("one", "two"):
        Queue(name, exchange, bound)(other.default_channel).declare()
    exchange(connection.default_channel).declare()

    send(connection, "wet", exchange="paint", key=key)
    send(connection, "dry", exchange="paint", key="other" if kind != "fanout" else key)

    for name in ("one", "two"):
        seen = Bodies(other, Queue(name)).wait(1 if kind != "fanout" else 2)
        assert "wet" in seen
        assert ("dry" in seen) is (kind == "fanout")
        for message in seen.messages:
            message.ack()


def test_a_message_that_is_sent_again_is_in_no_queue_twice(
    connection: Connection, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes away when it has stored the message in the first of two queues."""
    exchange, append, asked = Exchange("paint", type="fanout"), Client.append, list[str]()

    def goes_away(self: Client, queue: str, *message: Any) -> Any:
        asked.append(queue)
        if len(asked) == 2:
            raise ServerUnreachable("it goes away")
        return append(self, queue, *message)

    for name in ("one", "two"):
        Queue(name, exchange)(connection.default_channel).declare()
    with monkeypatch.context() as failing:
        failing.setattr(Client, "append", goes_away)
        policy = {"max_retries": 2, "interval_start": 0}
        send(connection, "wet", "wet", exchange="paint", key="", retry=True, retry_policy=policy)

    assert asked[2] == asked[0]
    assert [len([*client.iterate(name)]) for name in ("one", "two")] == [2, 2]


def test_a_message_that_is_passed_on_is_another_one(connection: Connection, client: Client) -> None:
    """Its properties are those of the one that was received, as tools of Celery do it."""
    queue = jobs(connection)
    send(connection, "on")
    (message,) = Bodies(connection, queue).wait(1).messages

    send(connection, "on", **message.properties)

    assert len([*client.iterate("jobs")]) == 2


def test_an_unbound_queue_gets_nothing_more(connection: Connection, other: Connection) -> None:
    exchange = Exchange("paint", type="direct")
    queue = Queue("one", exchange, "red")(other.default_channel)
    queue.declare()
    queue.unbind_from(exchange, "red")
    exchange(connection.default_channel).declare()

    send(connection, "wet", exchange="paint", key="red")

    assert queue.get() is None


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout"])
def test_a_transient_queue_leaves_nothing_on_the_server(
    connection: Connection, other: Connection, client: Client, kind: str
) -> None:
    exchange = Exchange("news", type=kind)
    queues = [Queue(name, exchange, "today", auto_delete=True, durable=False) for name in ("a", "b")]
    exchange(connection.default_channel).declare()
    send(connection, "yesterday", exchange="news", key="today", delivery_mode=1)
    for queue in queues:
        queue(other.default_channel).declare()
    send(connection, "today", exchange="news", key="today", delivery_mode=1)

    for queue in queues:
        assert [*Bodies(other, queue, no_ack=True).wait(1)] == ["today"]

    assert {found.name for found in client.queues()} <= {"kombu.news", "kombu.", "kombu-bindings"}


def test_a_transient_queue_that_is_consumed_hears_what_it_is_bound_to_later(
    connection: Connection, other: Connection
) -> None:
    """To another exchange, and by another key to the same one; and nothing any more once it is unbound."""
    news, sport = (Exchange(name, type="direct")(connection.default_channel) for name in ("news", "sport"))
    news.declare()
    sport.declare()
    queue = Queue("mine", Exchange("news"), "today", auto_delete=True, durable=False)(other.default_channel)
    queue.declare()
    seen = Bodies(other, queue, no_ack=True)
    send(connection, "first", exchange="news", key="today", delivery_mode=1)
    seen.wait(1)

    queue.bind_to(Exchange("news"), "tomorrow")
    queue.bind_to(Exchange("sport"), "today")
    send(connection, "second", exchange="news", key="tomorrow", delivery_mode=1)
    seen.wait(2)
    send(connection, "third", exchange="sport", key="today", delivery_mode=1)
    seen.wait(3)
    queue.unbind_from(Exchange("news"), "tomorrow")
    send(connection, "nobody's", exchange="news", key="tomorrow", delivery_mode=1)
    send(connection, "last", exchange="news", key="today", delivery_mode=1)

    assert [*seen.wait(4)] == ["first", "second", "third", "last"]


@pytest.mark.parametrize(
    "header",
    ["[" * 10_000, json.dumps({"properties": {"body_encoding": "rot13"}, "headers": {}, "content-encoding": "utf-8"})],
)
def test_a_message_with_a_strange_header_ends_no_consumer(connection: Connection, client: Client, header: str) -> None:
    """It would come to the next one, and end that."""
    queue = jobs(connection)
    client.append("jobs", NewMessage("strange", headers={"queuey-kombu": header}, content_type="text/plain"))

    (message,) = Bodies(connection, queue, accept=["text/plain"]).wait(1).messages

    assert message.body == b"strange"


def test_a_reply_comes_through_the_default_exchange(connection: Connection, other: Connection) -> None:
    replies = Queue("replies-1", auto_delete=True, durable=False)(other.default_channel)
    replies.declare()

    send(connection, "reply", key="replies-1", delivery_mode=1)

    assert [*Bodies(other, replies, no_ack=True).wait(1)] == ["reply"]


def test_a_node_answers_a_broadcast(connection: Connection, other: Connection) -> None:
    mailbox, over = Mailbox("nodes", type="fanout"), threading.Event()
    node = mailbox(other).Node(
        "one", channel=other.default_channel, handlers={"greet": lambda _, name: f"hello {name}"}
    )
    node.listen(callback=node.handle_message)

    def answer() -> None:
        while not over.is_set():
            with contextlib.suppress(socket.timeout):
                other.drain_events(timeout=0.1)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        answers = [mailbox(connection).multi_call("greet", {"name": name}, timeout=SECONDS, limit=1) for name in "ab"]
    finally:
        over.set()
        thread.join()

    assert answers == [[{"one": "hello a"}], [{"one": "hello b"}]]


def test_an_unknown_kind_of_exchange_is_refused(connection: Connection) -> None:
    with pytest.raises(ChannelError, match="no exchanges of type headers"):
        Exchange("h", type="headers")(connection.default_channel).declare()


def test_an_unknown_option_is_refused(server: Server) -> None:
    with pytest.raises(ConfigurationError, match="visibility_timeout, which Queuey's transport does not know"):
        Connection(broker_of(server), transport_options={"visibility_timeout": 1}).connect()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"group": 5}, "group: 5 is no text"),
        ({"visibility": "x"}, "visibility: is 'x': expected a number of seconds, 0 or more"),
    ],
)
def test_an_option_of_a_wrong_type_is_refused(server: Server, given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Connection(broker_of(server), transport_options=given).connect()


def test_a_wrong_key_is_no_broken_connection(server: Server) -> None:
    connection = Connection(broker_of(server).replace(str(server.key), "f" * 32))

    with pytest.raises(InvalidApplicationKey):
        connection.ensure_connection(max_retries=1)


def test_a_server_that_is_away_is_a_broken_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        connection = Connection(f"queuey://:key@127.0.0.1:{taken.getsockname()[1]}/demo")

        with pytest.raises(connection.connection_errors) as caught:
            connection.connect()

    assert isinstance(caught.value, ServerUnreachable)


def test_the_environment_names_the_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)

    with Connection("queuey://").clone() as connection:  # as Celery has it, from a pool
        queue = jobs(connection)
        send(connection, "hello")
        assert [*Bodies(connection, queue, no_ack=True).wait(1)] == ["hello"]


def test_a_strange_message_in_its_log_ends_no_transient_queue(
    connection: Connection, other: Connection, client: Client
) -> None:
    exchange = Exchange("news", type="fanout")
    queue = Queue("mine", exchange, auto_delete=True, durable=False)
    exchange(connection.default_channel).declare()
    queue(other.default_channel).declare()
    strange = {"properties": {"delivery_info": ["x"]}, "headers": {}, "content-encoding": "utf-8"}
    client.append("kombu.news", NewMessage("strange", headers={"queuey-kombu": json.dumps(strange)}))

    send(connection, "good", exchange="news", key="")

    assert Bodies(other, queue, no_ack=True).wait(2)[-1] == "good"


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"hello",
        b"{}",
        b'"news"',
        b'{"a": 1, "b": 2, "c": 3, "d": 4}',
        b'["news", "direct", "today"]',
        b'["news", "direct", [], "q"]',
    ],
)
def test_a_message_that_is_no_binding_keeps_nobody_from_sending(
    connection: Connection, client: Client, body: bytes
) -> None:
    client.create_queue("kombu-bindings")
    client.append("kombu-bindings", body)
    queue = jobs(connection)

    send(connection, "good", exchange="jobs", key="jobs")

    assert [*Bodies(connection, queue, no_ack=True).wait(1)] == ["good"]


def test_an_eta_that_is_too_late_is_refused(connection: Connection) -> None:
    jobs(connection)
    late = datetime.now(UTC) + timedelta(days=400)

    with pytest.raises(InvalidParameter, match=r"eta: .* is later than 365 days from now"):
        send(connection, "later", headers={"eta": late.isoformat()})
