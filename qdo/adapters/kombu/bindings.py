"""Which queues an exchange leads to, for all processes of an application.

A binding is a message of the queue ``kombu-bindings``. It is written when a process declares it, and read by those that send.
Transient queues have no bindings here: they follow the log of the exchange.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from kombu.transport.virtual.exchange import TopicExchange

from qdo.adapters.kombu.payloads import LIFE_SECONDS
from qdo.client import Client, Message, NewMessage
from queuey.errors import QueueNotFound

__all__ = ["BINDINGS", "Binding", "BindingTable"]

log = logging.getLogger(__name__)

BINDINGS = "kombu-bindings"
FRESH_SECONDS = 10.0
"""A sender knows bindings of other processes after this time."""
RENEW_SECONDS = 30 * 86_400
"""A binding that was written longer ago is written again when it is declared."""

T = TypeVar("T")


class Ask(Protocol):
    """Makes calls with a client that threads share."""

    def __call__(self, what: Callable[[Client], T]) -> T: ...


class Binding(NamedTuple):
    """From an exchange to a queue, for messages whose routing key fits."""

    exchange: str
    kind: str
    """Of the exchange: ``direct``, ``topic`` or ``fanout``."""
    key: str
    queue: str

    def takes(self, key: str) -> bool:
        """Whether a message with this routing key goes to the queue.

        >>> Binding("events", "topic", "worker.#", "q").takes("worker.online")
        True
        """
        if self.kind == "topic":
            pattern = TopicExchange(None).key_to_pattern(self.key)
            return re.match(pattern, key) is not None
        return self.kind == "fanout" or self.key == key


class BindingTable:
    """The bindings of an application, as they were read last, and those of this process."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._known: dict[Binding, list[Message]] = {}
        """Each with the messages that say so: two processes may have written it at once."""
        self._read_at: float | None = None

    def bind(self, binding: Binding) -> None:
        self._refresh(FRESH_SECONDS)
        written = [float(one.timestamp) for one in self._known.get(binding, ())]
        if not written or max(written) < time.time() - RENEW_SECONDS:
            self._ask(lambda client: _write(client, binding))
            self._refresh(0)

    def unbind(self, fits: Callable[[Binding], bool]) -> None:
        """Forget bindings."""
        self._refresh(0)
        gone = [binding for binding in self._known if fits(binding)]
        places = [message for binding in gone for message in self._known.pop(binding)]
        if places:
            self._ask(lambda client: client.delete(BINDINGS, places))

    def queues(self, exchange: str, key: str) -> list[str]:
        """The queues for a message, without repeats."""
        self._refresh(FRESH_SECONDS)
        fitting = (one.queue for one in self._known if one.exchange == exchange and one.takes(key))
        return [*dict.fromkeys(fitting)]

    def _refresh(self, seconds: float) -> None:
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= seconds:
            self._known = self._ask(_read)
            self._read_at = now


def _read(client: Client) -> dict[Binding, list[Message]]:
    found: dict[Binding, list[Message]] = {}
    try:
        for message in client.iterate(BINDINGS):
            if (binding := _binding_in(message)) is not None:
                found.setdefault(binding, []).append(message)
    except QueueNotFound:
        return {}
    return found


def _binding_in(message: Message) -> Binding | None:
    """The binding that a message says; None for any other message. It must not keep an application from sending."""
    try:
        found = json.loads(message.body)
    except (ValueError, RecursionError):
        found = None
    is_one = isinstance(found, list) and len(found) == len(Binding._fields)
    if not is_one or not all(isinstance(part, str) for part in found):
        log.warning("message %s of %s is no binding, and is passed over", message.id.hex, BINDINGS)
        return None
    return Binding(*found)


def _write(client: Client, binding: Binding) -> None:
    new = NewMessage.of_json([*binding], ttl_seconds=LIFE_SECONDS)
    try:
        client.append(BINDINGS, new)
    except QueueNotFound:
        client.create_queue(BINDINGS)
        client.append(BINDINGS, new)
