"""Calls that store and remove messages: part of each client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qdo.client.encoding import to_json
from qdo.client.endpoint import Endpoint
from qdo.client.given import check_list
from qdo.client.steps import Steps, call
from qdo.client.streams import ARROW
from qdo.client.tracing import current_trace, traced_headers
from qdo.client.values import BATCH_TYPE, Appended, HasLocation, NewMessage
from qdo.client.wire import addresses, append_headers, appended_from, can_go_raw, in_calls, put_headers, queue_path
from queuey.errors import InvalidParameter
from queuey.ids import unique_bytes

__all__ = ["AppendCalls"]

_ABSENT: Any = object()
"""No value of JSON; ``null`` is one."""


def _new(message: NewMessage | bytes | str) -> NewMessage:
    return message if isinstance(message, NewMessage) else NewMessage(message)


def _own_or_new(idempotency_key: str | None) -> str:
    """The key that was given, or a new one. An empty one is given: the server refuses it, where a new one would store twice."""
    return unique_bytes().hex() if idempotency_key is None else idempotency_key


class AppendCalls:
    """Stores, replaces and removes messages."""

    application: str
    _endpoint: Endpoint

    @call
    def append(
        self,
        queue: str,
        message: NewMessage | bytes | str | None = None,
        *,
        json: Any = _ABSENT,
        headers: Mapping[str, str] | None = None,
    ) -> Steps[Appended]:
        """Store one message.

        The request has an idempotency key, made here if the message brings none. So a repeat stores nothing twice (G7).

        :param json: in place of a message: this value is stored as JSON, with its content type.
        :param headers: more headers for the request. Without ``traceparent`` it has that of the span that is current, in a
            program that uses OpenTelemetry. The message keeps it.
        :raises InvalidParameter: the body is neither text nor bytes, or JSON has no form for the value. Nothing is sent.
        """
        if (message is None) == (json is _ABSENT):
            raise InvalidParameter(problems={"message": "give a message or json, one of them"})
        new = NewMessage.of_json(json) if message is None else _new(message)
        once = _own_or_new(new.idempotency_key)
        if not can_go_raw(new):
            entry = replace(new, idempotency_key=None).to_wire()
            try:
                return (yield from self._append_all(queue, [entry], once, headers))[0]
            except InvalidParameter as error:
                raise _of_one(error) from None
        answer = yield from self._endpoint.ask(
            "POST",
            *queue_path(self.application, queue),
            data=new.raw,
            headers={**traced_headers(headers), **append_headers(new, once)},
        )
        return appended_from(answer)[0]

    @call
    def append_batch(
        self,
        queue: str,
        messages: Iterable[NewMessage | bytes | str],
        *,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Steps[list[Appended]]:
        """Store all of these messages, or none of them.

        Their ids rise in the order given.

        :param messages: for JSON values use :meth:`NewMessage.of_json`.
        :param idempotency_key: of the whole request; made here if None.
        :raises InvalidParameter: a message is neither text nor bytes, or ``messages`` is one text or one mapping. Nothing is
            sent.
        """
        if isinstance(messages, str | bytes | bytearray | memoryview | Mapping | NewMessage):
            kind = type(messages).__name__
            raise InvalidParameter(
                problems={"messages": f"a {kind} is no list of messages: give a list, or use append"}
            )
        check_list("messages", messages, "a list of messages")
        entries = [_new(message).to_wire() for message in messages]
        return self._append_all(queue, entries, _own_or_new(idempotency_key), headers)

    def _append_all(
        self, queue: str, entries: Sequence[Mapping[str, Any]], once: str, headers: Mapping[str, str] | None
    ) -> Steps[list[Appended]]:
        answer = yield from self._endpoint.ask(
            "POST",
            *queue_path(self.application, queue),
            data=to_json({"messages": entries}),
            headers={**traced_headers(headers), "Idempotency-Key": once, "Content-Type": BATCH_TYPE},
        )
        return appended_from(answer)

    @call
    def append_arrow(self, queue: str, stream: Any, *, idempotency_key: str | None = None) -> Steps[int]:
        """Store all messages of an Arrow IPC stream, or none of them.

        Their ids rise in the order given.

        :param stream: bytes, or a buffer of pyarrow. The column ``body`` is required; ``partition``, ``key``, ``ttl`` in
            seconds, ``content_type``, ``deliver_at`` and ``idempotency_key`` may follow. Null means absent.
        :param idempotency_key: of the whole request; made here if None.
        :returns: messages that are stored, by this request or by an earlier one with the same key.
        :raises KeyReused: an earlier request with this key was different. Nothing is stored.
        :raises InvalidParameter: this is no stream. Nothing is sent.
        """
        headers = {
            "Content-Type": ARROW,
            "Prefer": "return=minimal",
            "Idempotency-Key": _own_or_new(idempotency_key),
            **current_trace(),
        }
        try:
            data = memoryview(stream)
        except TypeError as error:
            problem = f"a {type(stream).__name__} is no Arrow stream: give bytes, or a buffer of pyarrow"
            raise InvalidParameter(problems={"stream": problem}) from error
        answer = yield from self._endpoint.ask(
            "POST", *queue_path(self.application, queue), params={"batch": "true"}, data=data, headers=headers
        )
        return int(answer.json()["stored"])

    @call
    def put(
        self,
        queue: str,
        where: HasLocation | str | Sequence[HasLocation | str],
        body: NewMessage | bytes | str,
        *,
        ttl_seconds: int | None = None,
        content_type: str | None = None,
        key: str | None = None,
    ) -> Steps[bool]:
        """Store one message at these places, and replace what is there.

        A request whose answer is lost is sent again, and then also replaces what another client has written meanwhile. So
        let one client at a time write to a place.

        :param where: up to 100 places; as text ``<partition>:<id>``.
        :param body: alone, or a message: its TTL, content type, key and headers count then, and no other of its fields.
        :param key: of messages that this creates. It chooses no partition here. A message that is there keeps its own.
        :returns: True if a reader may have passed one of the places already, and will not see the message.
        :raises InvalidParameter: a message that is there has another key, or none; nothing is stored.
        """
        new = (
            body
            if isinstance(body, NewMessage)
            else NewMessage(body, ttl_seconds, None, key, content_type=content_type)
        )
        answer = yield from self._endpoint.ask(
            "PUT",
            *queue_path(self.application, queue),
            addresses(where),
            params=None if new.key is None else {"key": new.key},
            data=new.raw,
            headers=put_headers(new),
        )
        return bool(answer.json().get("late", False))

    @call
    def delete(self, queue: str, where: HasLocation | str | Sequence[HasLocation | str]) -> Steps[None]:
        """Remove messages, also those that are scheduled.

        A message that does not exist is no error.

        :raises InvalidMessageId: one of these is no place. Nothing is removed.
        """
        for some in in_calls(where):
            yield from self._endpoint.ask("DELETE", *queue_path(self.application, queue), some)


def _of_one(error: InvalidParameter) -> InvalidParameter:
    """A refusal of a batch of one, which names fields by their place, as that of its only message."""
    if not any(field.startswith("0.") for field in error.problems):
        return error
    return InvalidParameter(problems={field.removeprefix("0."): text for field, text in error.problems.items()})
