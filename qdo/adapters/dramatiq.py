"""A broker of dramatiq.

::

    import dramatiq
    from qdo.adapters.dramatiq import QueueyBroker

    dramatiq.set_broker(QueueyBroker())  # QUEUEY_URL, QUEUEY_APPLICATION and QUEUEY_KEY name the server

A queue of dramatiq is a queue of Queuey with a lease group. A delay is a delivery time in the store, so there are no delay
queues. A message that dramatiq gives up becomes a dead letter.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import dramatiq
from dramatiq.errors import ConnectionClosed, DecodeError, QueueJoinTimeout, QueueNotFound
from dramatiq.logging import get_logger

from qdo.adapters.clients import ThreadClients, check_receiving, is_done, make_job_queue
from qdo.adapters.settling import Settler
from qdo.client import Client, Delivery, NewMessage
from qdo.client.given import check_seconds
from qdo.client.refusals import may_pass
from queuey import errors
from queuey.errors import ConfigurationError, QueueyError

__all__ = ["LeasedProxy", "QueueyBroker"]

LIFE_SECONDS = 33_554_432
"""Of a message: the longest TTL there is, 388 days."""
MOST_MESSAGES = 100
"""In one answer."""
MOST_WAIT_SECONDS = 20.0
PAUSE_SECONDS = 1.0
"""Before messages are asked for again after an error that may pass."""
MOST_REASON, MOST_TRACEBACK = 1000, 4000
"""Characters that go with a dead letter."""


class LeasedProxy(dramatiq.MessageProxy):
    """A message with its lease."""

    def __init__(self, message: dramatiq.Message[Any], delivery: Delivery) -> None:
        super().__init__(message)
        self.delivery = delivery
        self.is_followed = True
        """What dramatiq sent because of how it ended is stored: another attempt, the next step of a pipeline, a callback."""


class QueueyBroker(dramatiq.Broker):
    """Sends to a server and receives from it. It asks for nothing before it sends or receives."""

    def __init__(
        self,
        make_client: Callable[[], Client] = Client,
        *,
        middleware: list[dramatiq.Middleware] | None = None,
        group: str = "dramatiq",
        visibility: float | None = None,
    ) -> None:
        """:param make_client: called once in each thread.
        :param middleware: as for any broker.
        :param group: the lease group of all workers.
        :param visibility: seconds after which the messages of a worker that died come again; None for the group's setting,
            30 s.
        :raises ConfigurationError: the first is no function, no group can have this name, or a lease cannot be this long.
        """
        check_receiving(group, visibility)
        if not callable(make_client):
            raise ConfigurationError(f"make_client is {make_client!r}: expected a function that makes a Client")
        super().__init__(middleware)
        self.group, self.visibility = group, visibility
        self.settler = Settler(make_client, group)
        self.clients = ThreadClients(make_client)
        self._ended = threading.local()
        """Its ``message`` was processed by this thread, and middleware sends what follows."""

    def close(self) -> None:
        """Settle what has ended, and end the connections."""
        self.settler.close()
        self.clients.close()

    def declare_queue(self, queue_name: str) -> None:
        """The queue is made when a message is sent to it, or asked for."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: dramatiq.Message[Any], *, delay: int | None = None) -> dramatiq.Message[Any]:
        """Store a message.

        :param delay: milliseconds, up to 366 days.
        :raises dramatiq.errors.QueueNotFound: the queue was never declared.
        :raises dramatiq.errors.ConnectionClosed: the server is away; nothing is stored.
        :raises queuey.errors.OutcomeUnknown: the answer was lost, so it may be stored.
        :raises queuey.errors.InvalidParameter: the delay is no number of milliseconds from 0 on.
        """
        if delay is not None:
            check_seconds("delay", delay, 0, "milliseconds")
        self._check(message.queue_name)
        self.emit_before("enqueue", message, delay)
        new = NewMessage(
            message.encode(),
            LIFE_SECONDS,
            delay_seconds=None if delay is None else delay / 1000,
            content_type="application/json" if isinstance(dramatiq.get_encoder(), dramatiq.JSONEncoder) else None,
        )
        try:
            self._append(message.queue_name, new)
        except QueueyError as error:
            if (ended := getattr(self._ended, "message", None)) is not None:
                ended.is_followed = False  # dramatiq only logs this error
            if error.retriable:
                raise ConnectionClosed(error) from error
            raise
        self.emit_after("enqueue", message, delay)
        return message

    def emit_after(self, signal: str, *args: Any, **more: Any) -> None:
        """As any broker, but a message is known while what follows it is sent."""
        if signal == "process_message" and isinstance(args[0], LeasedProxy):
            self._ended.message = args[0]
        try:
            super().emit_after(signal, *args, **more)
        finally:
            if signal == "process_message":
                self._ended.message = None

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> dramatiq.Consumer:
        """:raises dramatiq.errors.QueueNotFound: the queue was never declared."""
        self._check(queue_name)
        return _LeaseConsumer(self, queue_name, prefetch, timeout / 1000)

    def make(self, queue_name: str) -> None:
        """Make a queue of the server, if there is none."""
        make_job_queue(self.clients.get(), queue_name)

    def flush(self, queue_name: str) -> None:
        """Remove all messages of a queue, those with a delay as well."""
        client = self.clients.get()
        try:
            task = client.purge(queue_name)
        except errors.QueueNotFound:
            return
        for _ in client.watch_task(queue_name, task.name):
            """Wait for its end."""

    def flush_all(self) -> None:
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None, interval: int = 100) -> None:
        """Wait until all messages of a queue are done or given up, those with a delay as well. It is for tests.

        :param timeout: milliseconds.
        :param interval: milliseconds between two looks.
        :raises dramatiq.errors.QueueJoinTimeout: some are left after this time.
        :raises queuey.errors.InvalidParameter: ``timeout`` is no number, or ``interval`` is no time to wait.
        """
        self._check(queue_name)
        if timeout is not None:
            check_seconds("timeout", timeout, unit="milliseconds")
        check_seconds("interval", interval, 0, "milliseconds")
        until = None if timeout is None else time.monotonic() + timeout / 1000
        while not is_done(self.clients.get(), queue_name, self.group):
            if until is not None and time.monotonic() >= until:
                raise QueueJoinTimeout(queue_name)
            time.sleep(interval / 1000)

    def _check(self, queue_name: str) -> None:
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)

    def _append(self, queue_name: str, new: NewMessage) -> None:
        client = self.clients.get()
        try:
            client.append(queue_name, new)
        except errors.QueueNotFound:
            self.make(queue_name)
            client.append(queue_name, new)


class _LeaseConsumer(dramatiq.Consumer):
    """The messages of one queue, for one thread. Other threads acknowledge."""

    def __init__(self, broker: QueueyBroker, queue_name: str, prefetch: int, wait_seconds: float) -> None:
        self._logger = get_logger(__name__, type(self))
        self._broker, self._queue_name = broker, queue_name
        self._prefetch, self._wait_seconds = prefetch, min(wait_seconds, MOST_WAIT_SECONDS)
        self._received: deque[Delivery] = deque()
        self._held: set[str] = set()
        """Receipts of messages that were received and are not settled."""
        self._changed = threading.Condition()

    def __next__(self) -> dramatiq.MessageProxy | None:
        if not self._received:
            self._receive()
        while self._received:
            delivery = self._received.popleft()
            try:
                return LeasedProxy(dramatiq.Message.decode(delivery.body), delivery)
            except DecodeError as error:
                self._logger.warning("message %s is none of dramatiq: it is a dead letter now", delivery.id.hex)
                self._end(delivery)
                self._broker.settler.reject(delivery, _printable(f"no message of dramatiq: {error.error!r}"))
        return None

    def ack(self, message: Any) -> None:
        """The message is done; or it comes again, if what was to follow it is not stored."""
        self._end(message.delivery)
        if message.is_followed:
            self._broker.settler.acknowledge(message.delivery)
        else:
            self._broker.settler.release(message.delivery)

    def nack(self, message: Any) -> None:
        """The message becomes a dead letter, with the error of its last attempt."""
        if not message.is_followed:
            self.ack(message)
            return
        error, traceback = message._exception, message.options.get("traceback") or ""  # noqa: SLF001 -- dramatiq has no other way
        reason = f"{type(error).__name__}: {error}" if error is not None else "given up by dramatiq"
        self._end(message.delivery)
        self._broker.settler.reject(message.delivery, _printable(reason), _sendable(traceback)[-MOST_TRACEBACK:])

    def requeue(self, messages: Iterable[Any]) -> None:
        """Give messages back. That is no failure."""
        for message in messages:
            self._give_back(message.delivery)

    def close(self) -> None:
        while self._received:
            self._give_back(self._received.popleft())
        self._broker.settler.flush()

    def _receive(self) -> None:
        with self._changed:
            free = self._changed.wait_for(lambda: len(self._held) < self._prefetch, self._wait_seconds)
            most = min(self._prefetch - len(self._held), MOST_MESSAGES)
        if not free:
            return
        try:
            deliveries = self._broker.clients.get().receive(
                self._queue_name,
                self._broker.group,
                most,
                wait=self._wait_seconds,
                visibility=self._broker.visibility,
            )
        except errors.QueueNotFound:
            self._broker.make(self._queue_name)
        except QueueyError as error:
            if not may_pass(error):
                raise
            self._logger.warning("Queue %s cannot be read at the moment: %s", self._queue_name, error)
            time.sleep(PAUSE_SECONDS)
        else:
            for delivery in deliveries:
                delivery.keep()
            with self._changed:
                self._held.update(delivery.receipt or "" for delivery in deliveries)
            self._received.extend(deliveries)

    def _give_back(self, delivery: Delivery) -> None:
        self._end(delivery)
        self._broker.settler.release(delivery, 0, count=False)

    def _end(self, delivery: Delivery) -> None:
        with self._changed:
            self._held.discard(delivery.receipt or "")
            self._changed.notify_all()


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)[:MOST_REASON]


def _sendable(text: str) -> str:
    r"""UTF-8 has a form for it.

    >>> _sendable("\udcff")
    '\\udcff'
    """
    return text.encode("utf-8", "backslashreplace").decode()
