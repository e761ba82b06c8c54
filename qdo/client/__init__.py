"""Queuey over HTTP: typed calls with time limits and safe repeats.

Errors are those of :mod:`queuey.errors`. The client finds the class by the code that the server sent, so the same name
is raised on both sides.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from json import dumps
from typing import Any, Self

from qdo.client.lease_values import (
    Delivery,
    Extend,
    ExtendAll,
    Lease,
    LeaseGroup,
    LeasePartition,
    Receive,
    Reject,
    Release,
    Settle,
    Settled,
)
from qdo.client.leases import LeaseCalls
from qdo.client.offsets import OffsetCalls
from qdo.client.queues import QueueCalls
from qdo.client.reading import ReadCalls
from qdo.client.streams import ARROW, ArrowStream, MessageStream
from qdo.client.transport import Transport, json_of
from qdo.client.values import (
    BATCH_TYPE,
    Appended,
    ChangedQueues,
    GroupOffset,
    HasLocation,
    Message,
    Moment,
    NewMessage,
    NewToken,
    Page,
    PartitionInfo,
    QueueInfo,
    QueueSettings,
    SpanCount,
    SpanCounts,
    StreamEnd,
)
from qdo.client.wire import addresses, append_headers, appended_from, can_go_raw, in_calls, put_headers, queue_path
from queuey.errors import InvalidParameter

__all__ = [
    "Appended",
    "ArrowStream",
    "ChangedQueues",
    "Client",
    "Delivery",
    "Extend",
    "ExtendAll",
    "GroupOffset",
    "HasLocation",
    "Lease",
    "LeaseGroup",
    "LeasePartition",
    "Message",
    "MessageStream",
    "Moment",
    "NewMessage",
    "NewToken",
    "Page",
    "PartitionInfo",
    "QueueInfo",
    "QueueSettings",
    "Receive",
    "Reject",
    "Release",
    "Settle",
    "Settled",
    "SpanCount",
    "SpanCounts",
    "StreamEnd",
]


_ABSENT: Any = object()
"""No value of JSON; ``null`` is one."""


def _new(message: NewMessage | bytes | str) -> NewMessage:
    return message if isinstance(message, NewMessage) else NewMessage(message)


class Client(QueueCalls, ReadCalls, OffsetCalls, LeaseCalls):
    """The queues of one application on one server.

    Use one client in each thread; as a context manager it closes itself.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:5000",
        application: str = "demo",
        key: str | None = None,
        *,
        token: str | None = None,
        timeout_seconds: float = 30.0,
        retries: int = 5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """:param key: application key; None asks anonymously, which public queues allow.
        :param token: of a user, or of the server's own making; it takes the place of the key.
        :param timeout_seconds: for connecting, and for the next bytes of an answer.
        :param retries: repeats of one call, at most. Each call says which outcomes are never repeated.
        :param sleep: waits between repeats and polls.
        """
        self.application = application
        self._transport = Transport(url, key, token, timeout_seconds=timeout_seconds, retries=retries, sleep=sleep)
        self._sleep = sleep
        self._extender = self._new_extender()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections. Leases are not extended any more."""
        self._extender.close()
        self._transport.close()

    def append(
        self,
        queue: str,
        message: NewMessage | bytes | str | None = None,
        *,
        json: Any = _ABSENT,
        headers: Mapping[str, str] | None = None,
    ) -> Appended:
        """Store one message.

        The request has an idempotency key, made here if the message brings none. So a repeat stores nothing twice (G7).

        :param json: in place of a message: this value is stored as JSON, with its content type.
        :param headers: more headers for the request, such as ``traceparent``.
        :raises InvalidParameter: the body is neither text nor bytes, or JSON has no form for the value. Nothing is sent.
        """
        if (message is None) == (json is _ABSENT):
            raise InvalidParameter(problems={"message": "give a message or json, one of them"})
        new = NewMessage.of_json(json) if message is None else _new(message)
        once = new.idempotency_key or uuid.uuid4().hex
        if not can_go_raw(new):
            return self.append_batch(
                queue, [replace(new, idempotency_key=None)], idempotency_key=once, headers=headers
            )[0]
        answer = self._transport.send(
            "POST",
            *queue_path(self.application, queue),
            data=new.raw,
            headers={**(headers or {}), **append_headers(new, once)},
        )
        return appended_from(answer)[0]

    def append_batch(
        self,
        queue: str,
        messages: Iterable[NewMessage | bytes | str],
        *,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[Appended]:
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
        entries = [_new(message).to_wire() for message in messages]
        once = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex, "Content-Type": BATCH_TYPE}
        answer = self._transport.send(
            "POST",
            *queue_path(self.application, queue),
            data=dumps({"messages": entries}).encode(),
            headers={**(headers or {}), **once},
        )
        return appended_from(answer)

    def append_arrow(self, queue: str, stream: Any, *, idempotency_key: str | None = None) -> int:
        """Store all messages of an Arrow IPC stream, or none of them.

        Their ids rise in the order given.

        :param stream: bytes, or a buffer of pyarrow. The column ``body`` is required; ``partition``, ``key``, ``ttl`` in
            seconds, ``content_type``, ``deliver_at`` and ``idempotency_key`` may follow. Null means absent.
        :param idempotency_key: of the whole request; made here if None.
        :returns: messages that are stored, by this request or by an earlier one with the same key.
        :raises KeyReused: an earlier request with this key was different. Nothing is stored.
        """
        headers = {
            "Content-Type": ARROW,
            "Prefer": "return=minimal",
            "Idempotency-Key": idempotency_key or uuid.uuid4().hex,
        }
        data = memoryview(stream)
        answer = self._transport.send(
            "POST", *queue_path(self.application, queue), params={"batch": "true"}, data=data, headers=headers
        )
        return int(json_of(answer)["stored"])

    def put(
        self,
        queue: str,
        where: HasLocation | str | Sequence[HasLocation | str],
        body: NewMessage | bytes | str,
        *,
        ttl_seconds: int | None = None,
        content_type: str | None = None,
        key: str | None = None,
    ) -> bool:
        """Store one message at these places, and replace what is there.

        :param where: up to 100 places; as text ``<partition>:<id>``.
        :param body: alone, or a message: its TTL, content type, key and headers count then, and no other of its fields.
        :param key: stored with the body. It chooses no partition here.
        :returns: True if a reader may have passed one of the places already, and will not see the message.
        """
        new = (
            body
            if isinstance(body, NewMessage)
            else NewMessage(body, ttl_seconds, None, key, content_type=content_type)
        )
        answer = self._transport.send(
            "PUT",
            *queue_path(self.application, queue),
            addresses(where),
            params=None if new.key is None else {"key": new.key},
            data=new.raw,
            headers=put_headers(new),
        )
        return bool(json_of(answer).get("late", False))

    def delete(self, queue: str, where: HasLocation | str | Sequence[HasLocation | str]) -> None:
        """Remove messages, also those that are scheduled.

        A message that does not exist is no error.
        """
        for some in in_calls(where):
            self._transport.send("DELETE", *queue_path(self.application, queue), addresses(some))
