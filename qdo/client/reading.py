"""Calls that read messages: part of :class:`~qdo.client.Client`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import requests

from qdo.client.following import Following
from qdo.client.streams import ARROW, NDJSON, ArrowStream, MessageStream
from qdo.client.transport import Transport, json_of
from qdo.client.values import Located, Message, Moment, Page, Survey, SurveyedSpan, address
from qdo.client.wire import Partitions, addresses, in_calls, queue_path, read_params
from queuey.ids import MessageId

__all__ = ["ReadCalls"]


class ReadCalls:
    """Reads messages: by id, by page, as a stream, or as they come."""

    application: str
    _transport: Transport
    _sleep: Callable[[float], None]

    def get(self, queue: str, where: Located | str | Sequence[Located | str]) -> list[Message]:
        """Messages by place, in the order asked; those that are not there are left out."""
        found: list[Message] = []
        for some in in_calls(where):
            answer = self._transport.send("GET", *queue_path(self.application, queue), addresses(some))
            found += map(Message.from_wire, json_of(answer)["messages"])
        return found

    def get_raw(self, queue: str, where: Located | str) -> Message:
        """One message, its body as it was sent.

        :raises MessageNotFound: it expired, was deleted, or never was.
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
        :param until: where to end, inclusive; with ``newest_first`` it lies before ``since``.
        :param cursor: of an earlier page; takes the place of ``since`` and ``partitions``.
        :param limit: messages per partition, 1 to 1000.
        :param wait_seconds: how long an answer without messages is held back for some to come, up to 20.
        :raises CursorLost: the queue was deleted, and maybe made anew, since the cursor was given.
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
        answer = self._transport.send("GET", *queue_path(self.application, queue), params=params)
        told = json_of(answer)
        return Survey(
            told["partitions"],
            {entry["partition"]: SurveyedSpan.from_wire(entry) for entry in told["spans"]},
            answer.headers["Queuey-Cursor"],
            answer.headers["Queuey-Watermark"],
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
        return self._transport.send(
            "GET", *queue_path(self.application, queue), params=params, headers=headers, stream=True
        )
