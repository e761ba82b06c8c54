"""RabbitMQ: a queue for each subscription, of one of two kinds, behind an exchange for each topic.

RabbitMQ has no leases: what a consumer has belongs to its channel until that is closed. So that a receiver that forgets
its messages is measured as elsewhere, its channel is closed when it held one for ``visibility``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import pika
from pika.exceptions import AMQPConnectionError, AMQPError, UnroutableError

from qdo.bench.clock import SECOND
from qdo.bench.drivers import Consumer, DeadLetterDriver, Delivered, Driver, OutgoingMessage, Producer
from queuey.errors import OutcomeUnknown, ServerUnreachable, StorageUnavailable

DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/%2F"
ANSWER_SECONDS = 30.0
POP_PAUSE_SECONDS = 0.02
"""Between two looks of one that pops: they do not wait."""
_ON_DISK = pika.BasicProperties(delivery_mode=2)


def carried_out(call: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """The answer to a request.

    :raises StorageUnavailable: it was refused.
    :raises OutcomeUnknown: there was none; it may have been carried out. So may be what the server does not answer for: of
        several queues one may have the message.
    """
    try:
        return call(*values, **options)
    except UnroutableError as error:
        raise StorageUnavailable(f"{type(error).__name__}: {error}") from error
    except (AMQPError, OSError) as error:  # a message that the server does not answer for is one of these
        raise OutcomeUnknown(f"{type(error).__name__}: {error}") from error


class RabbitConnection:
    """A connection with one channel, both opened when they are needed."""

    def __init__(self, url: str, prepared: Callable[[Any], None]) -> None:
        """:param prepared: called with each new channel."""
        parameters = pika.URLParameters(url)
        # Nobody answers heartbeats between two calls.
        parameters.heartbeat = 0
        parameters.socket_timeout = parameters.blocked_connection_timeout = ANSWER_SECONDS
        self._parameters = parameters
        self._prepared = prepared
        self._connection: Any = None
        self._channel: Any = None

    def channel(self) -> Any:
        """An open one.

        :raises ServerUnreachable: there is none to be had, so nothing was asked.
        """
        if self._channel is not None and self._channel.is_open:
            return self._channel
        try:
            if self._connection is None or not self._connection.is_open:
                self._connection = pika.BlockingConnection(self._parameters)
            self._channel = self._connection.channel()
            self._prepared(self._channel)
        except (AMQPConnectionError, AMQPError, OSError) as error:
            self.close()
            # Most of these errors have no text but that of what they hold.
            raise ServerUnreachable(repr(error)) from error
        return self._channel

    def wait(self, seconds: float) -> None:
        """Let messages come, until one does or the time is over."""
        self._connection.process_data_events(time_limit=seconds)

    @property
    def server(self) -> str:
        """Its version."""
        self.channel()
        # The blocking connection keeps it to itself.
        return str(self._connection._impl.server_properties.get("version", "unknown"))  # noqa: SLF001

    def close(self) -> None:
        """The server takes back what was not acknowledged."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None and connection.is_open:
            try:
                connection.close()
            except (AMQPError, OSError):
                return


class RabbitDriver(Driver):
    """A RabbitMQ server: what its two kinds of queues have in common."""

    modes = frozenset(["receive", "pop"])
    option_names: ClassVar[Mapping[str, str]] = {"url": f"the server; default {DEFAULT_URL}"}
    kind: ClassVar[str]
    """Of its queues, by the name that RabbitMQ gives it."""

    def connection(self, prepared: Callable[[Any], None] = lambda channel: None) -> RabbitConnection:
        return RabbitConnection(self.target.options.get("url", DEFAULT_URL), prepared)

    def queue(self, topic: int, view: int) -> str:
        return f"{self.target.queue(topic)}-{view}"

    def prepare(self) -> None:
        connection = self.connection()
        channel = connection.channel()
        for topic in self.each_topic():
            exchange = self.target.queue(topic)
            carried_out(channel.exchange_declare, exchange, "fanout", durable=True)
            for view in range(self.target.workload.views):
                queue = self.queue(topic, view)
                carried_out(channel.queue_declare, queue, durable=True, arguments=self.arguments(channel, queue))
                carried_out(channel.queue_bind, queue, exchange)
        connection.close()

    def arguments(self, channel: Any, queue: str) -> dict[str, Any]:
        """Of a new queue."""
        return {"x-queue-type": self.kind}

    def remove(self) -> None:
        connection = self.connection()
        channel = connection.channel()
        for topic in range(self.target.workload.topics):
            for view in range(self.target.workload.views):
                carried_out(channel.queue_delete, self.queue(topic, view))
            carried_out(channel.exchange_delete, self.target.queue(topic))
        connection.close()

    def versions(self) -> Mapping[str, str]:
        connection = self.connection()
        found = connection.server
        connection.close()
        return {"rabbitmq": found, "pika": pika.__version__}

    def producer(self) -> Producer:
        return _RabbitProducer(self)

    def consumer(self, topic: int, subscription: int) -> Consumer:
        if self.target.workload.queuey.receiving.mode == "pop":
            return _RabbitPopper(self, self.queue(topic, subscription))
        return _RabbitConsumer(self, self.queue(topic, subscription))


class RabbitClassicDriver(RabbitDriver):
    """Classic queues."""

    kind = "classic"


class RabbitQuorumDriver(RabbitDriver, DeadLetterDriver):
    """Quorum queues, which are logs of a consensus. They alone count failures."""

    kind = "quorum"

    def arguments(self, channel: Any, queue: str) -> dict[str, Any]:
        kind = super().arguments(channel, queue)
        if self.max_failures is None:
            return kind
        carried_out(channel.queue_declare, f"{queue}-dead", durable=True, arguments=kind)
        return {
            **kind,
            "x-delivery-limit": self.max_failures - 1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": f"{queue}-dead",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }

    def letters(self, topic: int) -> Consumer:
        return _RabbitConsumer(self, f"{self.queue(topic, 0)}-dead")

    def remove(self) -> None:
        super().remove()
        if self.max_failures is not None:
            connection, workload = self.connection(), self.target.workload
            for topic, view in product(range(workload.topics), range(workload.views)):
                carried_out(connection.channel().queue_delete, f"{self.queue(topic, view)}-dead")
            connection.close()


class _RabbitProducer(Producer):
    """Sends one message after the other; each is confirmed by the server."""

    def __init__(self, driver: RabbitDriver) -> None:
        self._target = driver.target
        self._connection = driver.connection(lambda channel: channel.confirm_delivery())

    def send(self, topic: int, messages: Sequence[OutgoingMessage]) -> None:
        exchange = self._target.queue(topic)
        for at, one in enumerate(messages):
            try:
                channel = self._connection.channel()
                carried_out(channel.basic_publish, exchange, "", one.body, _ON_DISK, mandatory=True)
            except (ServerUnreachable, StorageUnavailable) as error:
                if at:
                    raise OutcomeUnknown(f"{at} of {len(messages)} messages are stored: {error}") from error
                raise

    def close(self) -> None:
        self._connection.close()


class _RabbitConsumer(Consumer):
    """Has the server push messages, as many as a request has."""

    def __init__(self, driver: RabbitDriver, queue: str) -> None:
        own = driver.target.workload.queuey.receiving
        self._clock = driver.target.clock
        self._connection = driver.connection(self._subscribe)
        self._queue = queue
        self._batch = own.batch
        self._visibility = int(own.visibility * SECOND)
        self._come: deque[tuple[int, bytes]] = deque()
        self._held: dict[int, int] = {}
        """Tags that were handed out, and until when they may be held."""
        self._turn = 0
        """Number of the channel: tags count anew in each."""

    def _subscribe(self, channel: Any) -> None:
        self._turn += 1
        self._come.clear()
        self._held.clear()
        channel.basic_qos(prefetch_count=self._batch)
        channel.basic_consume(self._queue, self._on_message)

    def _on_message(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self._come.append((method.delivery_tag, body))

    def receive(self, wait: float) -> Sequence[Delivered]:
        now = self._clock.now()
        if self._held and max(self._held.values()) <= now:  # closing gives all of them back, those of late receives too
            self._connection.close()
        self._connection.channel()
        until = now + int(wait * SECOND)
        while True:
            left = (until - self._clock.now()) / SECOND
            carried_out(self._connection.wait, 0 if self._come else max(left, 0))
            if self._come or left <= 0:
                break
        found = [self._come.popleft() for _ in range(min(self._batch, len(self._come)))]
        held_until = self._clock.now() + self._visibility
        self._held |= dict.fromkeys((tag for tag, _ in found), held_until)
        return [Delivered(body, (self._turn, tag)) for tag, body in found]

    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        """The server confirms no acknowledgement; it has read them when it answers a later request."""
        held = [self._settle(token, lambda channel, tag: channel.basic_ack(tag)) for token in tokens]
        if any(held):
            carried_out(self._connection.channel().basic_qos, prefetch_count=self._batch)
        return held

    def fail(self, tokens: Sequence[object]) -> None:
        for token in tokens:
            self._settle(token, lambda channel, tag: channel.basic_nack(tag, requeue=True))

    def _settle(self, token: Any, how: Callable[[Any, int], None]) -> bool:
        """Whether the channel of the message is still open."""
        turn, tag = token
        channel = self._connection.channel()
        if turn != self._turn or tag not in self._held:
            return False
        carried_out(how, channel, tag)
        del self._held[tag]
        return True

    def close(self) -> None:
        self._connection.close()


class _RabbitPopper(Consumer):
    """Takes messages that the server forgets as it hands them out."""

    def __init__(self, driver: RabbitDriver, queue: str) -> None:
        self._connection = driver.connection()
        self._clock = driver.target.clock
        self._queue = queue
        self._batch = driver.target.workload.queuey.receiving.batch

    def receive(self, wait: float) -> Sequence[Delivered]:
        until = self._clock.now() + int(wait * SECOND)
        found: list[Delivered] = []
        while len(found) < self._batch:
            method, _, body = carried_out(self._connection.channel().basic_get, self._queue, auto_ack=True)
            if method is not None:
                found.append(Delivered(body))
            elif found or self._clock.now() >= until:
                break
            else:
                self._clock.sleep_until(self._clock.now() + int(POP_PAUSE_SECONDS * SECOND))
        return found

    def close(self) -> None:
        self._connection.close()
