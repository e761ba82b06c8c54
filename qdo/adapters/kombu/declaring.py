"""Queues, exchanges and bindings, as a channel of kombu declares them."""

from __future__ import annotations

from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import virtual

from qdo.adapters.kombu.bindings import Binding
from qdo.adapters.kombu.broker import Broker

__all__ = ["DeclaringChannel"]


class DeclaringChannel(virtual.Channel):
    """Declares, binds and removes queues and exchanges."""

    broker: Broker

    def exchange_declare(self, exchange: str | None = None, type: str = "direct", *given: Any, **more: Any) -> None:  # noqa: A002 -- kombu's name
        if (type or "direct") not in self.exchange_types:
            known = ", ".join(sorted(self.exchange_types))
            raise ChannelError(f"exchange {exchange}: Queuey's transport has {known}, but no exchanges of type {type}")
        super().exchange_declare(exchange, type, *given, **more)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **more: Any,
    ) -> None:
        exchange = exchange or "amq.direct"
        binding = Binding(exchange, self.typeof(exchange).type, routing_key or "", queue)
        if (transient := self.broker.transient(queue)) is not None:
            transient.bind(binding, self.broker.ask)
            if transient.is_consumed:
                transient.follow(self.broker.address.client)
        elif not self.state.has_binding(queue, exchange, routing_key):
            self.broker.bindings.bind(binding)
        if exchange in self.state.exchanges:
            super().queue_bind(queue, exchange, routing_key, arguments, **more)

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **more: Any
    ) -> None:
        exchange = exchange or "amq.direct"
        where = (exchange, routing_key or "", queue)

        def fits(one: Binding) -> bool:
            return (one.exchange, one.key, one.queue) == where

        if (transient := self.broker.transient(queue)) is not None:
            transient.unbind(fits)
        else:
            self.broker.bindings.unbind(fits)
        super().queue_unbind(queue, exchange, routing_key, arguments, **more)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **more: Any) -> None:
        if self.broker.was_transient(queue):
            self.broker.delete_transient(queue)
        elif not (if_empty and self._size(queue)):
            self.broker.delete(queue)
        self.state.queue_bindings_delete(queue)

    def _new_queue(self, queue: str, exclusive: bool = False, auto_delete: bool = False, **more: Any) -> None:
        if exclusive or auto_delete:
            self.broker.declare_transient(queue)
        else:
            self.broker.declare(queue)

    def _queue_bind(self, *given: Any) -> None:
        """It is done."""

    def _has_queue(self, queue: str, **more: Any) -> bool:
        return self.broker.transient(queue) is not None or self.broker.has(queue)

    def _size(self, queue: str) -> int:
        return 0 if self.broker.transient(queue) is not None else self.broker.depth(queue)

    def _purge(self, queue: str) -> int:
        return 0 if self.broker.transient(queue) is not None else self.broker.purge(queue)
