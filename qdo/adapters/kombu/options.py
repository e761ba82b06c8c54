"""What a transport takes from its URL and from ``broker_transport_options``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from qdo.adapters.clients import check_receiving
from qdo.client import Client
from queuey.errors import ConfigurationError

__all__ = ["ServerAddress", "TransportOptions"]

OF_KOMBU = frozenset(
    {"client_properties", "confirm_publish", "errback", "interval_max", "interval_start", "interval_step"}
    | {"max_retries", "retry_errors"}
)
"""Options that kombu itself reads, for any transport."""
ORDERS: Mapping[str, Literal["first", "weighted"]] = {"priority": "first", "round_robin": "weighted"}


@dataclass(frozen=True)
class TransportOptions:
    """Options of the transport."""

    group: str = "kombu"
    """The lease group of all consumers."""
    visibility: float | None = None
    """Seconds after which the messages of a consumer that died come again; None for the group's setting, 30 s."""
    queue_order_strategy: str = "round_robin"
    """``priority``: a queue is looked at only if those before it have no messages."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TransportOptions:
        """:raises ConfigurationError: an option is unknown, or its value is none."""
        known = cls.__dataclass_fields__.keys()
        if unknown := given.keys() - known - OF_KOMBU:
            raise ConfigurationError(
                f"broker_transport_options has {', '.join(sorted(unknown))}, which Queuey's transport does not know: "
                f"it knows {', '.join(sorted(known))}"
            )
        options = cls(**{name: value for name, value in given.items() if name in known})
        if options.queue_order_strategy not in ORDERS:
            raise ConfigurationError(f"queue_order_strategy is {' or '.join(sorted(ORDERS))}")
        check_receiving(options.group, options.visibility)
        return options

    @property
    def order(self) -> Literal["first", "weighted"]:
        return ORDERS[self.queue_order_strategy]


@dataclass(frozen=True)
class ServerAddress:
    """A server, an application and its key. Without a URL the environment names them."""

    url: str | None
    application: str | None
    key: str | None

    @classmethod
    def of(cls, connection: Any, default_port: int) -> ServerAddress:
        """:param connection: of kombu."""
        application = (connection.virtual_host or "").strip("/") or None
        if not connection.hostname:
            return cls(None, application, connection.password or None)
        scheme = "https" if connection.ssl else "http"
        host = f"[{connection.hostname}]" if ":" in connection.hostname else connection.hostname
        return cls(f"{scheme}://{host}:{connection.port or default_port}", application, connection.password or None)

    def client(self, retries: int = 5) -> Client:
        return Client(self.url, self.application, self.key, retries=retries)
