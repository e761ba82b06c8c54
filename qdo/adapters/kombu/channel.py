"""A channel of kombu on Queuey."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import Any

from kombu.transport import virtual

from qdo.adapters.kombu.declaring import DeclaringChannel
from qdo.adapters.kombu.inbox import Arrived
from qdo.adapters.kombu.payloads import begin_sending, payload_of, queue_name
from qdo.adapters.kombu.receiving import LeaseReceiver
from qdo.adapters.kombu.transient import Listener
from qdo.client import Client, Delivery, Message
from qdo.client.values import address
from queuey.errors import ConfigurationError, QueueyError

__all__ = ["LeaseQoS", "QueueyChannel"]

log = logging.getLogger(__name__)

MOST_HELD = 1000
"""Messages of a consumer without a prefetch count."""
MOST_QUEUES = 100
"""That one receive looks at."""


class LeaseQoS(virtual.QoS):
    """What a channel holds: messages whose leases are its own, by delivery tag."""

    def __init__(self, channel: QueueyChannel, prefetch_count: int = 0) -> None:
        self.channel = channel
        self.held: dict[str, Delivery] = {}
        self._prefetch_count = prefetch_count

    @property
    def prefetch_count(self) -> int:
        return self._prefetch_count

    @prefetch_count.setter
    def prefetch_count(self, count: int | None) -> None:
        self._prefetch_count = count or 0
        self.channel.look_again()

    @property
    def room(self) -> int:
        """How many more messages the channel may have."""
        return (self._prefetch_count or MOST_HELD) - len(self.held)

    def can_consume(self) -> bool:
        return self.room > 0

    def can_consume_max_estimate(self) -> int:
        return max(self.room, 0)

    def append(self, message: Any, delivery_tag: str) -> None:
        """It is held since it was received."""

    def get(self, delivery_tag: str) -> Any:
        return self.held[delivery_tag]

    def ack(self, delivery_tag: str) -> None:
        if (delivery := self._end(delivery_tag)) is not None:
            self.channel.broker.settler.acknowledge(delivery)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """:param requeue: try it again after the group's back-off. Otherwise it becomes a dead letter."""
        if (delivery := self._end(delivery_tag)) is not None:
            settler = self.channel.broker.settler
            settler.release(delivery) if requeue else settler.reject(delivery, "rejected by its consumer")

    def restore_unacked(self) -> list[Any]:
        """Give everything back. That is no failure."""
        for tag in [*self.held]:
            self.give_back(tag)
        return []

    def give_back(self, tag: str) -> None:
        """Let another consumer have it. That is no failure."""
        if (delivery := self._end(tag)) is not None:
            self.channel.broker.settler.release(delivery, 0, count=False)

    def restore_unacked_once(self, stderr: Any = None) -> None:
        self.restore_unacked()

    def _end(self, tag: str) -> Delivery | None:
        found = self.held.pop(tag, None)
        self.channel.look_again()
        return found


class QueueyChannel(DeclaringChannel):
    """Declares, sends and consumes.

    A queue is a queue of Queuey with a lease group. One that is exclusive or deletes itself is a transient queue. Any thread
    may acknowledge.
    """

    QoS = LeaseQoS
    supports_fanout = True
    body_encoding = None
    from_transport_options = ()

    def __init__(self, connection: Any, **more: Any) -> None:
        self.broker = connection.broker
        self._client: Client | None = None
        self._receiver: LeaseReceiver | None = None
        self._no_ack: set[str] = set()
        self._listeners: dict[str, Listener] = {}
        """Of the transient queues that are consumed. Such a queue ends with its consumer."""
        self._consumed: dict[str, str] = {}
        """Queues that are consumed, by their names on the server."""
        super().__init__(connection, **more)
        self._qos = LeaseQoS(self)

    # Sending

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **more: Any) -> None:
        """Store a message. It is stored once this returns, and in no queue twice if kombu has to send it again."""
        self._inplace_augment_message(message, exchange, routing_key)
        begin_sending(message)
        if exchange:
            self.broker.route(message, exchange, self.typeof(exchange).type, routing_key or "")
        else:
            self.broker.send(message, routing_key)

    # Consuming

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **more: Any
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **more)
        if no_ack:
            self._no_ack.add(queue)
        if (transient := self.broker.transient(queue)) is not None:
            listener = partial(self._heard, queue)
            self._listeners[queue] = listener
            transient.follow(self.broker.address.client)
            transient.listen(listener)
        else:
            self._consume()

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        self._no_ack.discard(queue)
        if queue is None:
            return
        listener = self._listeners.pop(queue, None)
        if listener is None:
            self._consume()
        elif (transient := self.broker.transient(queue)) is not None and transient.is_heard_by(listener):
            self.broker.delete_transient(queue)

    def basic_get(self, queue: str, no_ack: bool = False, **more: Any) -> Any:
        try:
            payload = self._get(queue)
        except Empty:
            return None
        if no_ack:
            self.qos.ack(payload["properties"]["delivery_tag"])
        return self.Message(payload, channel=self)

    def deliver(self, arrived: Arrived) -> None:
        """Call the consumer of a message; give it back if there is none any more."""
        message, tag = arrived.message, _tag_of(arrived.message)
        if isinstance(message, Delivery):
            if message.is_lost:  # another consumer may have it
                self.qos.held.pop(tag, None)
                self.look_again()
            if tag not in self.qos.held:
                return
        callback = None if self.closed else self.connection._callbacks.get(arrived.queue)  # noqa: SLF001
        if callback is None:
            self.give_back(arrived)
            return
        if arrived.queue in self._no_ack:
            self.qos.ack(tag)
        callback(payload_of(message, tag))

    def give_back(self, arrived: Arrived) -> None:
        """Nobody here takes this message."""
        if isinstance(arrived.message, Delivery):
            self.qos.give_back(_tag_of(arrived.message))
        elif (transient := self.broker.transient(arrived.queue)) is not None:
            transient.put_back(arrived.message)

    def look_again(self) -> None:
        """There may be room for messages."""
        if self._receiver is not None:
            self._receiver.look_again()

    def close(self) -> None:
        """Cancel the consumers, and give back what is not acknowledged."""
        if self.closed:
            return
        receiver, client = self._receiver, self._client
        if receiver is not None:
            receiver.stop()
        self.qos.restore_unacked()
        super().close()
        if client is not None:
            self.broker.settler.flush()
            client.close()

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        if (transient := self.broker.transient(queue)) is not None:
            transient.follow(self.broker.address.client)
            found: Message | None = transient.take()
        else:
            options = self.broker.options
            took = self.broker.ask(
                lambda client: client.receive(queue_name(queue), options.group, visibility=options.visibility)
            )
            found = took[0] if took else None
            if isinstance(found, Delivery):
                found.keep()
                self.qos.held[_tag_of(found)] = found
        if found is None:
            raise Empty
        return payload_of(found, _tag_of(found))

    def _consume(self) -> None:
        """Receive from the queues that are consumed now."""
        names = {queue_name(queue): queue for queue in self._active_queues if self.broker.transient(queue) is None}
        if len(names) > MOST_QUEUES:
            raise ConfigurationError(f"a channel consumes {len(names)} queues: it takes up to {MOST_QUEUES}")
        self._consumed = names
        if self._receiver is None and names:
            self._client = self.broker.address.client()
            self._receiver = LeaseReceiver(
                self._client,
                self.broker.options,
                self.broker.ask_hastily,
                lambda: self.qos.room,
                self._took,
                self._failed,
            )
        if self._receiver is not None:
            self._receiver.consume([*names])

    def _heard(self, queue: str, message: Message, may_wait: bool) -> bool:
        """Called by the thread that follows a transient queue."""
        inbox = self.broker.inbox
        return (inbox.put_when_there_is_room if may_wait else inbox.put)(Arrived(self, queue, message))

    def _took(self, message: Delivery) -> None:
        """Called by the thread that receives."""
        self.qos.held[_tag_of(message)] = message
        arrived = Arrived(self, self._consumed.get(message.queue, message.queue), message)
        if self.closed or not self.broker.inbox.put(arrived):  # the answer came after the time that a close waits
            self.give_back(arrived)

    def _failed(self, error: QueueyError) -> None:
        self.broker.inbox.fail(error)


def _tag_of(message: Message) -> str:
    """The delivery tag: the receipt, or the place of a message without a lease."""
    return (isinstance(message, Delivery) and message.receipt) or address(message)
