"""The broker of dramatiq against a real server: what dramatiq expects of each of its brokers, with its own worker."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound

from qdo.adapters.clients import is_done
from qdo.adapters.dramatiq import QueueyBroker
from qdo.client import Client, NewMessage
from qdo.worker.dead_letters import letters
from queuey.errors import ConfigurationError, InvalidParameter, StorageUnavailable
from tests.support.client import Server, emptied
from tests.support.dramatiq_actors import VISIBILITY, declared
from tests.support.loaded import Program
from tests.support.notes import go, kill_group, lines
from tests.support.servers import eventually

SECONDS = 60
JOIN = 60_000
"""Milliseconds."""


@pytest.fixture
def server(application: Server) -> Iterator[Server]:
    with emptied(application) as found:
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, server.application, server.key) as found:
        yield found


@pytest.fixture
def broker(server: Server) -> Iterator[QueueyBroker]:
    made = QueueyBroker(lambda: Client(server.url, server.application, server.key))
    made.emit_after("process_boot")
    yield made
    made.close()


@contextmanager
def working(broker: QueueyBroker) -> Iterator[None]:
    worker = dramatiq.Worker(broker, worker_timeout=200, worker_threads=2)
    worker.start()
    try:
        yield
    finally:
        worker.stop()


def test_actors_are_called_with_what_was_sent(broker: QueueyBroker, client: Client) -> None:
    seen: list[Any] = []

    @dramatiq.actor(broker=broker)  # type: ignore[untyped-decorator]
    def note(text: str, number: int = 0) -> None:
        seen.append((text, number))

    note.send("one")
    note.send("two", number=2)
    with working(broker):
        broker.join("default", timeout=JOIN)

    assert sorted(seen) == [("one", 0), ("two", 2)]
    eventually(lambda: is_done(client, "default", "dramatiq"))


def test_an_actor_that_fails_is_tried_again_and_then_a_dead_letter(broker: QueueyBroker, client: Client) -> None:
    attempts: list[int] = []

    @dramatiq.actor(broker=broker, max_retries=2, min_backoff=1, max_backoff=1)  # type: ignore[untyped-decorator]
    def fail() -> None:
        attempts.append(1)
        raise ValueError("no luck")

    fail.send()
    with working(broker):
        broker.join("default", timeout=JOIN)

    assert len(attempts) == 3
    eventually(lambda: len(list(letters(client, "default-dead"))) == 1)
    ((_, letter),) = letters(client, "default-dead")
    assert letter.story.reason == "ValueError: no luck"
    assert "ValueError: no luck" in (letter.story.traceback or "")


def test_a_message_does_not_end_before_what_follows_it_is_stored(
    broker: QueueyBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dramatiq only logs that it could not send the next attempt, and acknowledges this one."""
    attempts: list[int] = []
    append, refused = broker._append, iter([StorageUnavailable("away for a while")])

    @dramatiq.actor(broker=broker, max_retries=1, min_backoff=1, max_backoff=1)  # type: ignore[untyped-decorator]
    def fail() -> None:
        attempts.append(1)
        raise ValueError("no luck")

    def away_once(queue_name: str, new: NewMessage) -> None:
        if (error := next(refused, None)) is not None:
            raise error
        append(queue_name, new)

    fail.send()
    client.set_lease_group("default", "dramatiq", backoff={"first": 0, "most": 0})
    monkeypatch.setattr(broker, "_append", away_once)
    with working(broker):
        broker.join("default", timeout=JOIN)

    assert len(attempts) == 3
    eventually(lambda: len(list(letters(client, "default-dead"))) == 1)


def test_a_traceback_that_is_not_utf8_makes_a_dead_letter_too(broker: QueueyBroker, client: Client) -> None:
    broker.declare_queue("default")
    broker.enqueue(dramatiq.Message("default", "note", (), {}, {}))
    message = next(broker.consume("default", timeout=60_000))
    assert message is not None
    message.options["traceback"] = "ValueError: \udcff is no luck"

    broker.consume("default").nack(message)

    eventually(lambda: len(list(letters(client, "default-dead"))) == 1)
    ((_, letter),) = letters(client, "default-dead")
    assert letter.story.traceback == r"ValueError: \udcff is no luck"


def test_a_delay_is_a_delivery_time_in_the_store(broker: QueueyBroker, client: Client) -> None:
    seen: list[str] = []

    @dramatiq.actor(broker=broker)  # type: ignore[untyped-decorator]
    def note(text: str) -> None:
        seen.append(text)

    note.send_with_options(args=("later",), delay=3_600_000)
    note.send("now")
    with working(broker):
        eventually(lambda: seen)
        with pytest.raises(QueueJoinTimeout):
            broker.join("default", timeout=1)

    assert seen == ["now"]
    assert client.queue_info("default").scheduled == 1
    assert [queue.name for queue in client.queues()] == ["default"]


def test_a_message_for_an_unknown_actor_is_a_dead_letter(broker: QueueyBroker, client: Client) -> None:
    broker.declare_queue("default")
    broker.enqueue(dramatiq.Message("default", "nobody", (), {}, {}))
    client.append("default", b"no message")

    with working(broker):
        broker.join("default", timeout=JOIN)

    eventually(lambda: len(list(letters(client, "default-dead"))) == 2)
    assert sorted(letter.story.reason.partition(":")[0] for _, letter in letters(client, "default-dead")) == [
        "ActorNotFound",
        "no message of dramatiq",
    ]


def test_a_worker_that_stops_gives_back_what_it_has_not_begun(broker: QueueyBroker, client: Client) -> None:
    broker.declare_queue("default")
    for number in range(3):
        broker.enqueue(dramatiq.Message("default", "note", (number,), {}, {}))

    consumer = broker.consume("default", prefetch=2, timeout=1000)
    first = next(consumer)
    assert first is not None
    consumer.close()
    consumer.requeue([first])
    assert broker.settler.flush(SECONDS)

    again = client.receive("default", "dramatiq", 10)
    assert len(again) == 3
    assert {delivery.failures for delivery in again} == {0}


def test_a_consumer_has_no_more_than_its_prefetch(broker: QueueyBroker) -> None:
    broker.declare_queue("default")
    for number in range(3):
        broker.enqueue(dramatiq.Message("default", "note", (number,), {}, {}))
    consumer = broker.consume("default", prefetch=2, timeout=50)

    found = [next(consumer) for _ in range(3)]
    consumer.ack(found[0])
    found.append(next(consumer))

    assert [one is not None for one in found] == [True, True, False, True]


def test_a_queue_that_nobody_declared_is_refused(broker: QueueyBroker) -> None:
    with pytest.raises(QueueNotFound):
        broker.enqueue(dramatiq.Message("none", "note", (), {}, {}))
    with pytest.raises(QueueNotFound):
        broker.consume("none")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"timeout": "x"}, "timeout: is 'x'"),
        ({"interval": "x"}, "interval: is 'x'"),
        ({"interval": -1}, "interval: is -1"),
    ],
)
def test_a_join_that_cannot_wait_so_is_refused(broker: QueueyBroker, how: dict[str, Any], said: str) -> None:
    broker.declare_queue("default")

    with pytest.raises(InvalidParameter, match=f"{said}: expected a number of milliseconds"):
        broker.join("default", **how)


@pytest.mark.parametrize("delay", ["x", -5, True])
def test_a_delay_that_is_none_is_refused(broker: QueueyBroker, delay: Any) -> None:
    broker.declare_queue("default")

    with pytest.raises(InvalidParameter, match=r"delay: is .*: expected a number of milliseconds, 0 or more"):
        broker.enqueue(dramatiq.Message("default", "note", (), {}, {}), delay=delay)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group": 5}, "group: 5 is no text"),
        ({"visibility": "x"}, "visibility: is 'x': expected a number of seconds, 0 or more"),
        ({"visibility": -1}, "visibility: is -1: expected a number of seconds, 0 or more"),
        ({"make_client": 5}, "make_client is 5: expected a function that makes a Client"),
    ],
)
def test_an_option_of_a_wrong_type_is_refused_when_the_broker_is_made(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        QueueyBroker(**options)


def test_a_server_that_is_away_is_a_closed_connection() -> None:
    broker = QueueyBroker(lambda: Client("http://127.0.0.1:1", "demo", "key", retries=0))
    broker.declare_queue("default")

    with pytest.raises(ConnectionClosed):
        broker.enqueue(dramatiq.Message("default", "note", (), {}, {}))


def test_flush_removes_what_is_there_and_what_is_scheduled(broker: QueueyBroker, client: Client) -> None:
    broker.declare_queue("default")
    broker.flush_all()
    broker.enqueue(dramatiq.Message("default", "note", (), {}, {}))
    broker.enqueue(dramatiq.Message("default", "note", (), {}, {}), delay=60_000)

    broker.flush_all()

    info = client.queue_info("default")
    assert (info.depth, info.scheduled) == (0, 0)


@pytest.mark.drawn
def test_the_messages_of_a_killed_worker_come_again_once(server: Server, client: Client, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    variables = {
        "QUEUEY_URL": server.url,
        "QUEUEY_APPLICATION": server.application,
        "QUEUEY_KEY": server.key or "",
        "NOTES": str(notes),
    }
    broker = QueueyBroker(lambda: Client(server.url, server.application, server.key), visibility=VISIBILITY)
    hold = declared(broker, notes)
    for number in range(6):
        hold.send(number)
    command = [sys.executable, "-m", "tests.support.dramatiq_actors"]
    with (tmp_path / "said.txt").open("wb") as said:
        worker = Program(command, stdout=said, stderr=said, env={**os.environ, **variables})
    try:
        eventually(lambda: len(lines(notes)) == 2, seconds=SECONDS)
    finally:
        kill_group(worker)
    begun = [line.split()[1] for line in lines(notes)]
    go(notes)
    with working(broker):
        broker.join("hold", timeout=JOIN)
    broker.close()

    assert Counter(lines(notes)) == {f"{what} {number}": 1 for what in ("begin", "end") for number in range(6)} | {
        f"begin {number}": 2 for number in begun
    }
