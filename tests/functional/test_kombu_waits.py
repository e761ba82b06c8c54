"""A connection of kombu that is closed leaves no request waiting at the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery.exceptions import TimeoutError as ResultTimeout
from kombu import Connection, Consumer, Exchange, Queue

from qdo.adapters.kombu.receiving import LeaseReceiver
from queuey.errors import KeyReused, QueueyError
from tests.support.client import Server
from tests.support.kombu_tasks import broker_of, celery_client
from tests.support.live import own_server, until_waiting
from tests.support.servers import RunningServer, eventually

shipped_server = own_server
SECONDS = 90
JOBS, MORE = Queue("jobs", Exchange("jobs"), "jobs"), Queue("more", Exchange("more"), "more")
NEWS = Queue("news-1", Exchange("news", type="fanout"), auto_delete=True, durable=False)


@pytest.fixture
def server(shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[Server]:
    with Server(shipped_server, next_fresh()) as found:
        yield found
        until_waiting(found, 0)


@pytest.fixture
def withdrawn(monkeypatch: pytest.MonkeyPatch) -> list[QueueyError]:
    """What ended receives before their time."""
    found: list[QueueyError] = []
    receive = LeaseReceiver._receive

    def noted(self: LeaseReceiver, attempt: object) -> None:
        try:
            receive(self, attempt)  # type: ignore[arg-type]
        except QueueyError as error:
            found.append(error)
            raise

    monkeypatch.setattr(LeaseReceiver, "_receive", noted)
    monkeypatch.setattr("qdo.adapters.kombu.receiving.WAIT_SECONDS", 60.0)
    return found


def consuming(connection: Connection, *queues: Queue) -> tuple[Consumer, list[object]]:
    """A consumer, and the bodies that it gets."""
    bodies: list[object] = []

    def take(body: object, message: object) -> None:
        bodies.append(body)
        message.ack()  # type: ignore[attr-defined]

    consumer = Consumer(connection.channel(), [*queues], callbacks=[take])
    consumer.consume()
    return consumer, bodies


def test_a_closed_connection_waits_for_no_messages(server: Server, withdrawn: list[QueueyError]) -> None:
    with Connection(broker_of(server)) as connection:
        consuming(connection, JOBS, NEWS)
        until_waiting(server, 2)

    assert [type(error) for error in withdrawn] == [KeyReused]
    until_waiting(server, 0)


def test_a_queue_that_is_added_is_received_from_at_once(server: Server, withdrawn: list[QueueyError]) -> None:
    with Connection(broker_of(server)) as connection, Connection(broker_of(server)) as other:
        consumer, bodies = consuming(connection, JOBS)
        until_waiting(server, 1)
        other.Producer().publish("hello", routing_key="more", declare=[MORE])
        consumer.add_queue(MORE)
        consumer.consume()
        while not bodies:
            connection.drain_events(timeout=SECONDS)
        assert [type(error) for error in withdrawn] == [KeyReused]

    assert bodies == ["hello"]


def test_a_cancelled_consumer_waits_for_no_messages(server: Server, withdrawn: list[QueueyError]) -> None:
    with Connection(broker_of(server)) as connection:
        consumer, _ = consuming(connection, JOBS, NEWS)
        until_waiting(server, 2)
        consumer.cancel()
        eventually(lambda: withdrawn, seconds=SECONDS)
        until_waiting(server, 0)

    assert {type(error) for error in withdrawn} == {KeyReused}


def test_a_program_that_sends_tasks_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    with celery_client(server, tmp_path) as tasks:
        result = tasks.add.delay(1, 2)
        assert not tasks.app.control.inspect(timeout=0.1).ping()
        with pytest.raises(ResultTimeout):
            result.get(timeout=0.1)
        until_waiting(server, 1)

    until_waiting(server, 0)
