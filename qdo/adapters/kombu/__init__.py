"""A transport of kombu: Celery, and whatever else is built on kombu, on Queuey.

To import this module makes ``queuey://`` known to kombu::

    import qdo.adapters.kombu
    from celery import Celery

    app = Celery(broker="queuey://:KEY@127.0.0.1:5000/demo")

:mod:`~qdo.adapters.kombu.channel` has the operations, :mod:`~qdo.adapters.kombu.transient` the queues of events, replies and
broadcasts.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import TRANSPORT_ALIASES, virtual

from qdo.adapters.kombu.broker import Broker
from qdo.adapters.kombu.channel import QueueyChannel
from qdo.adapters.kombu.options import ServerAddress, TransportOptions
from queuey._version import __version__
from queuey.errors import QueueyError, error_classes

__all__ = ["QueueyTransport"]

MOST_AT_ONCE = 100
"""Messages that one turn of an event loop delivers."""

_RETRIABLE: tuple[type[QueueyError], ...] = tuple(error for error in error_classes().values() if error.retriable)


class QueueyTransport(virtual.Transport):
    """Connections to one server."""

    Channel = QueueyChannel
    default_port = 5000
    driver_type = driver_name = "queuey"
    connection_errors = (*virtual.Transport.connection_errors, *_RETRIABLE)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset({"direct", "topic", "fanout"})
    )

    def __init__(self, client: Any, **more: Any) -> None:
        super().__init__(client, **more)
        self._options = TransportOptions.of(client.transport_options)
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        if self._broker is None:
            self._broker = Broker(ServerAddress.of(self.client, self.default_port), self._options)
        return self._broker

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """No host: kombu would put its default into each copy of a connection, and then the environment would not count."""
        return {"port": self.default_port}

    def driver_version(self) -> str:
        return __version__

    def establish_connection(self) -> Any:
        """:raises QueueyError: the server is away, or does not know the application or the key."""
        self.broker.check()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message.

        :raises TimeoutError: none came in time.
        :raises QueueyError: messages cannot be received, and waiting does not mend it.
        :raises ConnectionError: the connection is closed.
        """
        if connection is None:  # kombu's word for one that is closed
            raise ConnectionError("the connection was closed")
        arrived = self.broker.inbox.take(timeout)
        arrived.channel.deliver(arrived)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        loop.add_reader(self.broker.inbox.fd, self.on_readable, connection, loop)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        loop.remove_reader(self.broker.inbox.fd)

    def on_readable(self, connection: Any, loop: Any) -> None:
        try:
            for _ in range(MOST_AT_ONCE):
                self.drain_events(connection, timeout=0)
        except TimeoutError:
            """Nothing is left."""


TRANSPORT_ALIASES.setdefault("queuey", "qdo.adapters.kombu:QueueyTransport")
