"""What the channels of one connection share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from qdo.adapters.clients import make_job_queue
from qdo.adapters.kombu.bindings import BINDINGS, BindingTable
from qdo.adapters.kombu.inbox import ConnectionInbox
from qdo.adapters.kombu.options import ServerAddress, TransportOptions
from qdo.adapters.kombu.payloads import LOG_LIFE_SECONDS, is_persistent, log_name, message_of, queue_name
from qdo.adapters.kombu.transient import TransientQueue, transient_queues
from qdo.adapters.settling import Settler
from qdo.client import Client
from queuey.errors import QueueNotFound, QueueyError

__all__ = ["Broker"]

log = logging.getLogger(__name__)

T = TypeVar("T")


class Broker:
    """The server, as the channels of one connection see it. Calls of several threads come one after the other."""

    def __init__(self, address: ServerAddress, options: TransportOptions) -> None:
        self.address = address
        self.options = options
        self.inbox = ConnectionInbox()
        self.settler = Settler(address.client, options.group)
        self.bindings = BindingTable(self.ask)
        self._client = address.client()
        self._hasty = address.client(retries=1)
        self._lock = threading.RLock()
        self._transient_names: set[str] = set()

    def ask(self, what: Callable[[Client], T]) -> T:
        """Make calls with the client that threads share."""
        with self._lock:
            return what(self._client)

    def ask_hastily(self, what: Callable[[Client], T]) -> T:
        """As :meth:`ask`, but an answer that does not come soon is not waited for."""
        with self._lock:
            return what(self._hasty)

    def check(self) -> None:
        """:raises QueueyError: the server is away, or does not know the application or the key."""
        self.ask_hastily(lambda client: client.find_queue(BINDINGS))

    def close(self) -> None:
        """Settle what has ended, and end the connections."""
        for arrived in self.inbox.close():
            arrived.channel.give_back(arrived)
        self.settler.close()
        with self._lock:
            self._client.close()
            self._hasty.close()

    # Queues

    def declare(self, name: str) -> None:
        self.ask(lambda client: make_job_queue(client, queue_name(name)))

    def delete(self, name: str) -> None:
        """Delete a queue and its bindings."""
        self.bindings.unbind(lambda binding: binding.queue == name)
        with suppress(QueueNotFound):
            self.ask(lambda client: client.delete_queue(queue_name(name)))

    def has(self, name: str) -> bool:
        return self.ask(lambda client: client.find_queue(queue_name(name))) is not None

    def depth(self, name: str) -> int:
        """Messages that are not acknowledged. 0 for a queue that does not exist."""
        try:
            return self.ask(lambda client: client.queue_info(queue_name(name))).depth or 0
        except QueueNotFound:
            return 0

    def purge(self, name: str) -> int:
        """Remove all messages.

        :returns: about how many there were.
        """
        count = self.depth(name)
        if count:
            self.ask(lambda client: [*client.watch_task(queue_name(name), client.purge(queue_name(name)).name)])
        return count

    # Transient queues

    def transient(self, name: str) -> TransientQueue | None:
        return transient_queues.get(self._key(name))

    def was_transient(self, name: str) -> bool:
        """Whether this connection declared a queue of this name, and said that it ends with its consumer."""
        return name in self._transient_names

    def declare_transient(self, name: str) -> TransientQueue:
        self._transient_names.add(name)
        return transient_queues.declare(self._key(name), self.ask)

    def delete_transient(self, name: str) -> None:
        transient_queues.delete(self._key(name))

    def _key(self, name: str) -> tuple[str, str, str]:
        return self._client.url, self._client.application, name

    # Sending

    def send(self, payload: dict[str, Any], queue: str) -> None:
        """Send a message to a queue. If there is none, it stands in the log of the default exchange for a while."""
        try:
            self._append(payload, queue_name(queue))
        except QueueNotFound:
            if is_persistent(payload):
                log.warning("there is no queue %s: a message for it is in %s for an hour", queue, log_name(""))
            self._send_to_log(payload, "")

    def route(self, payload: dict[str, Any], exchange: str, kind: str, key: str) -> None:
        """Send a message to an exchange: to each queue that it leads to, and to those that follow it."""
        queues = self.bindings.queues(exchange, key)
        for queue in queues:
            self.send(payload, queue)
        if kind != "direct" or not queues:
            self._send_to_log(payload, exchange)

    def _append(self, payload: dict[str, Any], queue: str) -> None:
        new = message_of(payload, queue)
        self.ask(lambda client: client.append(queue, new))

    def _send_to_log(self, payload: dict[str, Any], exchange: str) -> None:
        """Send what is for those that listen now. If the server is away, it is dropped: it would be old news."""
        name = log_name(exchange)
        new = message_of(payload, name, LOG_LIFE_SECONDS)
        try:
            with self._lock:
                try:
                    self._hasty.append(name, new)
                except QueueNotFound:
                    self._hasty.create_queue(name)
                    self._hasty.append(name, new)
        except QueueyError as error:
            if is_persistent(payload) or not error.retriable:
                raise
            log.warning("a message of exchange %s is dropped: %s", exchange, error)
