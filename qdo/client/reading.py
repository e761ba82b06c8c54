"""Calls that read messages: part of :class:`~qdo.client.Client`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import requests

from qdo.client.following import Following
from qdo.client.streams import ARROW, NDJSON, ArrowStream, MessageStream
from qdo.client.transport import Transport, json_of
from qdo.client.values import HasLocation, Message, Moment, Page, SpanCount, SpanCounts, address
from qdo.client.wire import Partitions, addresses, in_calls, queue_path, read_params
from queuey.ids import MessageId

__all__ = ["ReadCalls"]


class ReadCalls:
    """Reads messages: by id, by page, as a stream, or as they come."""

    application: str
    _transport: Transport
    _sleep: Callable[[float], None]

    def get(self, queue: str, where: HasLocation | str | Sequence[HasLocation | str]) -> list[Message]:
        """Messages by place, in the order asked for.

        Messages that do not exist are left out.
        """
        found: list[Message] = []
        for some in in_calls(where):
            answer = self._transport.send("GET", *queue_path(self.application, queue), addresses(some))
            found += map(Message.from_wire, json_of(answer)["messages"])
        return found

    def get_raw(self, queue: str, where: HasLocation | str) -> Message:
        """One message, with its body as it was sent, and without key and headers: :meth:`get` gives those too.

        :raises MessageNotFound: the message expired, was deleted, or never existed.
        """
        answer = self._transport.send(
            "GET", *queue_path(self.application, queue), address(where), params={"raw": "true"}
        )
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
        :param until: where to end, inclusive. With ``newest_first`` it lies before ``since``.
        :param cursor: of an earlier page; it takes the place of ``since`` and ``partitions``.
        :param limit: messages of each partition, 1 to 1000.
        :param wait_seconds: the server may hold back an answer without messages this long, up to 20, for one to come.
        :raises CursorLost: the queue was deleted, and maybe made anew, since the server gave the cursor.
        """
        params = read_params(since, until, cursor, partitions, newest_first, with_bodies) | {"limit": str(limit)}
        if wait_seconds:
            params["wait"] = str(wait_seconds)
        answer = self._transport.send("GET", *queue_path(self.application, queue), params=params)
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
        step: int | None = None,
    ) -> SpanCounts:
        """What lies in spans, without the messages, and where to cut the spans.

        Spans end at the watermark.

        :param since, until, cursor, partitions: as for :meth:`read`.
        :param count: messages that are counted in each partition, at most; None counts none.
        :param step: with ``count``: also return every ``step``-th id.
        :raises CursorLost: as :meth:`read`.
        """
        params = read_params(since, until, cursor, partitions, newest_first=False, with_bodies=True)
        numbers = {"count": count, "every": step}
        params |= {"survey": "true"} | {name: str(number) for name, number in numbers.items() if number is not None}
        answer = self._transport.send("GET", *queue_path(self.application, queue), params=params)
        told = json_of(answer)
        return SpanCounts(
            told["partitions"],
            {entry["partition"]: SpanCount.from_wire(entry) for entry in told["spans"]},
            answer.headers["Queuey-Cursor"],
            answer.headers["Queuey-Watermark"],
        )

    def pages(self, queue: str, *, until: Moment | None = None, **wanted: Any) -> Iterator[Page]:
        """Pages up to the watermark of the first page.

        So also a busy queue comes to an end.

        :param wanted: as for :meth:`read`.
        """
        page = self.read(queue, until=until, **wanted)
        upto = page.watermark if until is None and not wanted.get("newest_first") else until
        yield page
        while page.more:
            page = self.read(queue, until=upto, **(wanted | {"cursor": page.cursor}))
            yield page

    def iterate(self, queue: str, *, limit: int = 1000, **wanted: Any) -> Iterator[Message]:
        """The messages of :meth:`pages`, in order within each partition.

        Between partitions there is no order.
        """
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
        """Pages without end: the messages that are there, then new ones as they come.

        Once the first answer has come, it goes on by itself after a broken connection or while a server is away. No message
        is missed or comes twice. To go on in another process, keep the cursor of a page.

        :raises CursorLost, QueueNotFound: the queue was deleted.
        """
        params = read_params(since, None, cursor, partitions, newest_first=False, with_bodies=with_bodies)
        return Following(self._transport, queue_path(self.application, queue), params, sleep=self._sleep).pages()

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
        """All messages up to the watermark in one answer, one partition after the other.

        :param columns: besides id and partition, any of body, content_type, key, headers and expires; None is what ``with_bodies``
            says.
        :raises BrokenStream: while iterating, if the answer breaks off.
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
        """Like :meth:`stream_ndjson`, in record batches of pyarrow.

        :param columns: any of queue, partition, message_id, timestamp, content_type, key, body, headers, expires, and id, which has
            16 bytes. None is the first five and body.
        """
        params = read_params(since, until, cursor, partitions, newest_first=False, with_bodies=True)
        if columns is not None:
            params["columns"] = ",".join(columns)
        return ArrowStream(self._stream(queue, ARROW, params))

    def _stream(self, queue: str, media_type: str, params: Mapping[str, str]) -> requests.Response:
        # Identity: the client would have to unpack what a proxy packs, between the socket and Arrow's reader.
        headers = {"Accept": media_type, "Accept-Encoding": "identity"}
        path, seconds = queue_path(self.application, queue), self._transport.timeout_seconds
        return self._transport.send("GET", *path, params=params, headers=headers, stream_seconds=seconds)
