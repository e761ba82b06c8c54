"""Queuey over HTTP: typed calls with time limits, repeated where a repeat is safe.

The errors are those of :mod:`queuey.errors`, found by the code that the server sent: the same name
is raised here as there.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from json import dumps
from typing import Any, Self

import requests

from qdo.client.following import Following
from qdo.client.offsets import OffsetCalls
from qdo.client.streams import ARROW, NDJSON, ArrowStream, MessageStream
from qdo.client.transport import Transport, json_of
from qdo.client.values import (
    Appended,
    Arrivals,
    GroupOffset,
    Located,
    Message,
    Moment,
    NewMessage,
    NewToken,
    Page,
    PartitionInfo,
    QueueInfo,
    QueueSettings,
    StreamEnd,
    Survey,
    SurveyedSpan,
    address,
)
from qdo.client.wire import (
    Partitions,
    addresses,
    append_headers,
    appended_from,
    can_go_raw,
    in_calls,
    queue_fields,
    queue_path,
    read_params,
    token_fields,
)
from queuey.errors import InvalidParameter, QueueNotFound
from queuey.ids import EPOCH_TICKS, MessageId, format_timestamp, parse_timestamp

__all__ = [
    "Appended",
    "Arrivals",
    "ArrowStream",
    "Client",
    "GroupOffset",
    "Located",
    "Message",
    "MessageStream",
    "Moment",
    "NewMessage",
    "NewToken",
    "Page",
    "PartitionInfo",
    "QueueInfo",
    "QueueSettings",
    "StreamEnd",
    "Survey",
    "SurveyedSpan",
]


_ABSENT: Any = object()
"""No value of JSON: ``null`` is one."""


def _new(message: NewMessage | bytes | str) -> NewMessage:
    return message if isinstance(message, NewMessage) else NewMessage(message)


class Client(OffsetCalls):
    """One application's queues on one server. Use one per thread; a context manager that closes its connections."""

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
        :param token: of a user, or of the server's own; shown in place of the key.
        :param timeout_seconds: of connecting, and of waiting for the next bytes of an answer.
        :param retries: repeats of one call at most; the calls say which outcomes are never repeated.
        :param sleep: how to wait between repeats and polls.
        """
        self.application = application
        self._transport = Transport(url, key, token, timeout_seconds=timeout_seconds, retries=retries, sleep=sleep)
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    # Queues.

    def create_queue(
        self,
        name: str | None = None,
        *,
        partitions: int | None = None,
        kind: str | None = None,
        consistency: str | None = None,
        principals: Sequence[str] | None = None,
        only_new: bool = False,
    ) -> QueueSettings:
        """Make a queue, or change an existing one to what is named here; partitions never fall.

        :param name: None draws one.
        :param only_new: an existing queue is refused; then a lost answer is not repeated.
        :raises QueueExists: with ``only_new``; nothing changed.
        """
        fields = queue_fields(partitions, kind, consistency, principals)
        answer = self._transport.send(
            "POST",
            "v1",
            self.application,
            data={"queue_name": name or uuid.uuid4().hex} | fields,
            headers={"If-None-Match": "*"} if only_new else None,
            repeatable=not only_new,
        )
        return QueueSettings.from_wire(json_of(answer))

    def queues(
        self, *, start: str = "", page_size: int = 1000, with_counts: bool = False, mine: bool = False
    ) -> Iterator[QueueSettings]:
        """All queues by name, asked for page by page as they are taken.

        :param start: the first name; it need not exist.
        :param mine: those that name the caller, of whatever application; without counts and principals.
        """
        params: dict[str, Any] = {"limit": page_size, "details": "true", "offset": start}
        params |= {name: "true" for name, asked in (("include_count", with_counts), ("mine", mine)) if asked}
        for page in self._transport.listed("v1", self.application, params=params):
            yield from map(QueueSettings.from_wire, page["queues"])

    def find_queue(self, name: str) -> QueueSettings | None:
        """Its settings, or None where there is no queue of that name; as quick for a deep queue as for an empty one."""
        found = next(iter(self.queues(start=name, page_size=1)), None)
        return found if found is not None and found.name == name else None

    def queue_info(self, queue: str) -> QueueInfo:
        """Settings, depth and ends of a queue; counting takes time in proportion to the depth."""
        answer = self._transport.send("GET", *self._queue(queue), params={"info": "true"})
        return QueueInfo.from_wire(json_of(answer))

    def update_queue(
        self,
        queue: str,
        *,
        partitions: int | None = None,
        kind: str | None = None,
        consistency: str | None = None,
        principals: Sequence[str] | None = None,
    ) -> QueueSettings:
        """Change what is named, keep the rest.

        :raises PartitionsCannotShrink: fewer partitions than now; nothing changed.
        """
        fields = queue_fields(partitions, kind, consistency, principals)
        return QueueSettings.from_wire(json_of(self._transport.send("PUT", *self._queue(queue), data=fields)))

    def new_token(
        self,
        principal: str | None = None,
        *,
        queues: Sequence[str] | None = None,
        verbs: Sequence[str] | None = None,
        life_seconds: int | None = None,
    ) -> NewToken:
        """A token for this application's paths, of ``principal`` or of who asks; None is no restriction."""
        fields = token_fields(principal, queues, verbs, life_seconds)
        return NewToken.from_wire(json_of(self._transport.send("POST", "tokens", self.application, data=fields)))

    def delete_queue(self, queue: str) -> None:
        """Remove a queue and all its messages."""
        self._transport.send("DELETE", *self._queue(queue), done_if_repeated={404})

    # Writing.

    def append(
        self,
        queue: str,
        message: NewMessage | bytes | str | None = None,
        *,
        json: Any = _ABSENT,
        headers: Mapping[str, str] | None = None,
    ) -> Appended:
        """Store one message.

        Has an idempotency key, made here if the message brings none, so a repeat stores nothing twice (G7).

        :param json: in place of a message: this value is stored as JSON, with its content type.
        :param headers: more headers for the request, such as ``traceparent``.
        :raises InvalidParameter: the body is neither text nor bytes, or JSON has no form for the value; nothing is sent.
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
            "POST", *self._queue(queue), data=new.raw, headers={**(headers or {}), **append_headers(new, once)}
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
        """Store all of these messages or none; ids rise in their order.

        :param messages: of JSON values, :meth:`NewMessage.of_json`.
        :param idempotency_key: of the whole request; made here if None.
        :raises InvalidParameter: one of them is neither text nor bytes, or all of it is one text or one mapping; nothing is sent.
        """
        if isinstance(messages, str | bytes | bytearray | memoryview | Mapping | NewMessage):
            kind = type(messages).__name__
            raise InvalidParameter(
                problems={"messages": f"a {kind} is no list of messages: give a list, or use append"}
            )
        entries = [_new(message).to_wire() for message in messages]
        once = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex, "Content-Type": "application/json"}
        answer = self._transport.send(
            "POST",
            *self._queue(queue),
            data=dumps({"messages": entries}).encode(),
            headers={**(headers or {}), **once},
        )
        return appended_from(answer)

    def append_arrow(self, queue: str, stream: Any, *, idempotency_key: str | None = None) -> int:
        """Store all messages of an Arrow IPC stream, or none; ids rise in their order.

        :param stream: bytes, or a buffer of pyarrow. Columns: ``body`` and of ``partition``, ``key``, ``ttl`` in seconds,
            ``content_type``, ``deliver_at`` and ``idempotency_key``; null is absent.
        :param idempotency_key: of the whole request; made here if None.
        :returns: how many are stored, by this request or by an earlier one with the same key.
        :raises KeyReused: an earlier request with this key was another; nothing is stored.
        """
        headers = {
            "Content-Type": ARROW,
            "Prefer": "return=minimal",
            "Idempotency-Key": idempotency_key or uuid.uuid4().hex,
        }
        data = memoryview(stream)
        answer = self._transport.send("POST", *self._queue(queue), params={"batch": "true"}, data=data, headers=headers)
        return int(json_of(answer)["stored"])

    def put(
        self,
        queue: str,
        where: Located | str | Sequence[Located | str],
        body: bytes | str,
        *,
        ttl_seconds: int | None = None,
        content_type: str | None = None,
        key: str | None = None,
    ) -> bool:
        """Store one body at these places, in place of what is there.

        :param where: up to 100; text is ``<partition>:<id>``.
        :param key: told beside the body; it chooses no partition here.
        :returns: True if a reader may have passed one of the places already, and will not see it.
        """
        headers = {"X-TTL": str(ttl_seconds)} if ttl_seconds is not None else {}
        if content_type is not None:
            headers["Content-Type"] = content_type
        data = NewMessage(body).raw
        params = None if key is None else {"key": key}
        answer = self._transport.send(
            "PUT", *self._queue(queue), addresses(where), params=params, data=data, headers=headers
        )
        return bool(json_of(answer).get("late", False))

    def delete(self, queue: str, where: Located | str | Sequence[Located | str]) -> None:
        """Remove messages; those that are not there are no error. Cancels what is scheduled."""
        for some in in_calls(where):
            self._transport.send("DELETE", *self._queue(queue), addresses(some))

    # Reading.

    def get(self, queue: str, where: Located | str | Sequence[Located | str]) -> list[Message]:
        """Messages by place, in the order asked; those that are not there are left out."""
        found: list[Message] = []
        for some in in_calls(where):
            answer = self._transport.send("GET", *self._queue(queue), addresses(some))
            found += map(Message.from_wire, json_of(answer)["messages"])
        return found

    def get_raw(self, queue: str, where: Located | str) -> Message:
        """One message, its body as it was sent.

        :raises MessageNotFound: it expired, was deleted, or never was.
        """
        answer = self._transport.send("GET", *self._queue(queue), address(where), params={"raw": "true"})
        return Message(
            MessageId.parse(answer.headers["Queuey-Message-Id"]),
            int(answer.headers["Queuey-Partition"]),
            answer.content,
            answer.headers.get("Content-Type"),
        )

    def read(
        self,
        queue: str,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        cursor: str | None = None,
        partitions: Partitions = "all",
        limit: int = 100,
        newest_first: bool = False,
        with_bodies: bool = True,
        wait_seconds: int = 0,
    ) -> Page:
        """One page of a queue, up to its watermark.

        :param since: where to start, inclusive.
        :param until: where to end, inclusive; with ``newest_first`` it lies before ``since``.
        :param cursor: of an earlier page; takes the place of ``since`` and ``partitions``.
        :param limit: messages per partition, 1 to 1000.
        :param wait_seconds: how long an answer without messages is held back for some to come, up to 20.
        :raises CursorLost: the queue was deleted, and maybe made anew, since the cursor was given.
        """
        params = read_params(since, until, cursor, partitions, newest_first, with_bodies) | {"limit": str(limit)}
        if wait_seconds:
            params["wait"] = str(wait_seconds)
        answer = self._transport.send("GET", *self._queue(queue), params=params)
        return Page(
            tuple(map(Message.from_wire, json_of(answer)["messages"])),
            answer.headers["Queuey-Cursor"],
            answer.headers["Queuey-Watermark"],
            answer.headers["Queuey-More"] == "true",
        )

    def survey(
        self,
        queue: str,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        cursor: str | None = None,
        partitions: Partitions = "all",
        count: int | None = None,
        every: int | None = None,
    ) -> Survey:
        """What lies in spans, up to the watermark, without their messages; where to cut them.

        :param since, until, cursor, partitions: as for :meth:`read`.
        :param count: count so many messages of each partition at most; None counts none.
        :param every: with ``count``: mark each so many-th id.
        :raises CursorLost: as :meth:`read`.
        """
        params = read_params(since, until, cursor, partitions, newest_first=False, with_bodies=True)
        numbers = {"count": count, "every": every}
        params |= {"survey": "true"} | {name: str(number) for name, number in numbers.items() if number is not None}
        answer = self._transport.send("GET", *self._queue(queue), params=params)
        told = json_of(answer)
        return Survey(
            told["partitions"],
            {entry["partition"]: SurveyedSpan.from_wire(entry) for entry in told["spans"]},
            answer.headers["Queuey-Cursor"],
            answer.headers["Queuey-Watermark"],
        )

    def news(self, queues: Sequence[str], since_ticks: int) -> tuple[set[str], int]:
        """In which of these queues something came at a moment or later, and up to which moment this is known.

        :param queues: up to 100, with up to 200 partitions together; those that are not there have nothing. One that cannot be read just
            now counts as well: something may have come.
        :param since_ticks: inclusive; 0 for whatever is there.
        :returns: names, and the watermark in ticks; 0 if none of them can be read.
        """
        params = {"queues": ",".join(queues), "limit": "1", "columns": "message_id"}
        if since_ticks > EPOCH_TICKS:
            params["since"] = format_timestamp(since_ticks)
        answer = self._transport.send("GET", "v1", self.application, params=params)
        told = json_of(answer)
        found = {entry["queue"] for entry in told["messages"]}
        found |= {entry["queue"] for entry in told["refused"] if entry["code"] != QueueNotFound.__name__}
        watermark = answer.headers["Queuey-Watermark"]
        return found, 0 if watermark.startswith("-") else parse_timestamp(watermark)

    def arrivals(self, cursor: str | None = None, *, limit: int = 1000) -> Arrivals:
        """The queues of the application that got messages since an earlier answer.

        :param cursor: of that answer; None begins with what the server remembers.
        """
        params = {"arrivals": "true", "details": "true", "limit": str(limit)} | ({"cursor": cursor} if cursor else {})
        answer = self._transport.send("GET", "v1", self.application, params=params)
        told = json_of(answer)
        return Arrivals(
            tuple(map(QueueSettings.from_wire, told["queues"])),
            answer.headers["Queuey-Cursor"],
            answer.headers["Queuey-More"] == "true",
            told["complete"],
        )

    def pages(self, queue: str, *, until: Moment | None = None, **wanted: Any) -> Iterator[Page]:
        """Pages up to the watermark of the first one, so that a busy queue comes to an end.

        :param wanted: as for :meth:`read`.
        """
        page = self.read(queue, until=until, **wanted)
        upto = page.watermark if until is None and not wanted.get("newest_first") else until
        yield page
        while page.more:
            page = self.read(queue, until=upto, **(wanted | {"cursor": page.cursor}))
            yield page

    def iterate(self, queue: str, *, limit: int = 1000, **wanted: Any) -> Iterator[Message]:
        """The messages of :meth:`pages`: in order within each partition, not among them."""
        for page in self.pages(queue, limit=limit, **wanted):
            yield from page.messages

    def follow(
        self,
        queue: str,
        *,
        since: Moment | None = None,
        cursor: str | None = None,
        partitions: Partitions = "all",
        with_bodies: bool = True,
    ) -> Iterator[Page]:
        """Pages without end: what is there, then what comes, as it comes.

        Goes on by itself where a connection broke or a server was away, once the first answer has come; no
        message is missed or comes twice. Keep a page's cursor to go on in another process.

        :raises CursorLost, QueueNotFound: the queue was deleted.
        """
        params = read_params(since, None, cursor, partitions, newest_first=False, with_bodies=with_bodies)
        return Following(self._transport, self._queue(queue), params, sleep=self._sleep).pages()

    def stream_ndjson(
        self,
        queue: str,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        cursor: str | None = None,
        partitions: Partitions = "all",
        with_bodies: bool = True,
        columns: Sequence[str] | None = None,
    ) -> MessageStream:
        """All messages up to the watermark in one answer, partition after partition.

        :param columns: besides id and partition, of body, content_type, key and expires; None is what ``with_bodies`` says.
        :raises BrokenStream: while iterating, if the answer broke off.
        """
        params = read_params(since, until, cursor, partitions, newest_first=False, with_bodies=with_bodies)
        if columns is not None:
            params["columns"] = ",".join(("message_id", "partition", *columns))
        return MessageStream(self._stream(queue, NDJSON, params))

    def read_arrow(
        self,
        queue: str,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        cursor: str | None = None,
        partitions: Partitions = "all",
        columns: Sequence[str] | None = None,
    ) -> ArrowStream:
        """As :meth:`stream_ndjson`, in record batches of pyarrow.

        :param columns: of queue, partition, message_id, timestamp, content_type, key, body, expires, and id, which is 16 bytes; None
            is the first five and body.
        """
        params = read_params(since, until, cursor, partitions, newest_first=False, with_bodies=True)
        if columns is not None:
            params["columns"] = ",".join(columns)
        return ArrowStream(self._stream(queue, ARROW, params))

    def _stream(self, queue: str, media_type: str, params: Mapping[str, str]) -> requests.Response:
        # Identity: what a proxy packs would have to be unpacked between the socket and Arrow's reader.
        headers = {"Accept": media_type, "Accept-Encoding": "identity"}
        return self._transport.send("GET", *self._queue(queue), params=params, headers=headers, stream=True)

    def _queue(self, name: str) -> tuple[str, str, str]:
        return queue_path(self.application, name)
