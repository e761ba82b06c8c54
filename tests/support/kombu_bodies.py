"""Sending to queues of kombu, and consuming them."""

from __future__ import annotations

from typing import Any

from kombu import Connection, Consumer, Exchange, Producer, Queue

SECONDS = 90


class Bodies(list[Any]):
    """The bodies that a consumer got."""

    def __init__(self, connection: Connection, *queues: Queue, prefetch: int = 10, **more: Any) -> None:
        self.connection = connection
        self.messages: list[Any] = []
        self.consumer = Consumer(
            connection.channel(), [*queues], callbacks=[self._take], prefetch_count=prefetch, **more
        )
        self.consumer.consume()

    def _take(self, body: Any, message: Any) -> None:
        self.append(body)
        self.messages.append(message)

    def wait(self, number: int) -> Bodies:
        """Drain until there are this many."""
        while len(self) < number:
            self.connection.drain_events(timeout=SECONDS)
        return self


def jobs(connection: Connection) -> Queue:
    """A plain durable queue."""
    queue = Queue("jobs", Exchange("jobs"), "jobs")(connection.default_channel)
    queue.declare()
    return queue


def send(connection: Connection, *bodies: Any, exchange: str = "", key: str = "jobs", **more: Any) -> None:
    producer = Producer(connection.default_channel, auto_declare=False)
    for body in bodies:
        producer.publish(body, exchange=exchange, routing_key=key, **more)
