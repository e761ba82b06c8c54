"""Calls that read messages: part of each client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from qdo.client.endpoint import Endpoint
from qdo.client.following import Following, FollowLimits
from qdo.client.given import check_list
from qdo.client.moments import Moment
from qdo.client.steps import Items, Listing, Reply, Steps, call, listing
from qdo.client.streams import ARROW, NDJSON
from qdo.client.values import HasLocation, Message, Page, SpanCount, SpanCounts
from qdo.client.wire import Partitions, addresses, in_calls, joined, queue_names, queue_path, read_params
from queuey.errors import InvalidParameter
from queuey.ids import MessageId

__all__ = ["ReadCalls"]


A = TypeVar("A")
F = TypeVar("F")
M = TypeVar("M")
T = TypeVar("T")


class ReadCalls(ABC, Generic[M, A, F]):
    """Reads messages: by id, by page, as a stream, or as they come.

    ``M`` and ``A`` are the streams of messages and of record batches that a client gives, ``F`` the pages of one that
    follows.
    """

    application: str
    _endpoint: Endpoint

    @abstractmethod
    def _message_stream(self, answer: Reply) -> M:
        """The messages of an answer whose body is unread."""

    @abstractmethod
    def _arrow_stream(self, answer: Reply) -> A:
        """The record batches of an answer whose body is unread."""

    @abstractmethod
    def _followed(self, following: Following) -> F:
        """The pages of queues that are followed."""

    @call
    def get(self, queue: str, where: HasLocation | str | Sequence[HasLocation | str]) -> Steps[list[Message]]:
        """Messages by place, in the order asked for.

        Messages that do not exist are left out.
        """
        found: list[Message] = []
        for some in in_calls(where):
            answer = yield from self._endpoint.ask("GET", *queue_path(self.application, queue), some)
            found += map(Message.from_wire, answer.json()["messages"])
        return found

    @call
    def get_raw(self, queue: str, where: HasLocation | str) -> Steps[Message]:
        """One message, with its body as it was sent, and without key and headers: :meth:`get` gives those too.

        :raises MessageNotFound: the message expired, was deleted, or never existed.
        """
        answer = yield from self._endpoint.ask(
            "GET", *queue_path(self.application, queue), addresses(where), params={"raw": "true"}
        )
        return Message(
            MessageId.parse(answer.headers["Queuey-Message-Id"]),
            int(answer.headers["Queuey-Partition"]),
            answer.body,
            answer.headers.get("Content-Type"),
        )

    @call
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
    ) -> Steps[Page]:
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
        answer = yield from self._endpoint.ask("GET", *queue_path(self.application, queue), params=params)
        return Page(
            tuple(map(Message.from_wire, answer.json()["messages"])),
            answer.headers["Queuey-Cursor"],
            answer.headers["Queuey-Watermark"],
            answer.headers["Queuey-More"] == "true",
        )

    @call
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
        unseen: bool = False,
    ) -> Steps[SpanCounts]:
        """What lies in spans, without the messages, and where to cut the spans.

        Spans end at the watermark.

        :param unseen: spans go on behind the watermark, to what was acknowledged by now. On Cassandra a read shows it once it
            is older than the read delay.
        :param since, until, cursor, partitions: as for :meth:`read`.
        :param count: messages that are counted in each partition, at most; None counts none.
        :param step: with ``count``: also return every ``step``-th id.
        :raises CursorLost: as :meth:`read`.
        """
        params = read_params(since, until, cursor, partitions, newest_first=False, with_bodies=True)
        numbers = {"count": count, "every": step}
        params |= {"survey": "true"} | ({"unseen": "true"} if unseen else {})
        params |= {name: str(number) for name, number in numbers.items() if number is not None}
        answer = yield from self._endpoint.ask("GET", *queue_path(self.application, queue), params=params)
        told = answer.json()
        return SpanCounts(
            told["partitions"],
            {entry["partition"]: SpanCount.from_wire(entry) for entry in told["spans"]},
            answer.headers["Queuey-Cursor"],
            answer.headers["Queuey-Watermark"],
        )

    @listing
    def pages(self, /, queue: str, *, until: Moment | None = None, **wanted: Any) -> Listing[Page]:
        """Pages up to the watermark of the first page.

        So also a busy queue comes to an end.

        :param wanted: as for :meth:`read`.
        """
        return self._paged(queue, {"until": until, **wanted}, lambda page: [page])

    @listing
    def iterate(self, /, queue: str, *, limit: int = 1000, **wanted: Any) -> Listing[Message]:
        """The messages of :meth:`pages`, in order within each partition.

        Between partitions there is no order.
        """
        return self._paged(queue, {"limit": limit, **wanted}, lambda page: page.messages)

    def _paged(self, queue: str, wanted: Mapping[str, Any], found: Callable[[Page], Iterable[T]]) -> Listing[T]:
        page = yield from ReadCalls.read.steps(self, queue, **wanted)
        yield Items(found(page))
        if wanted.get("until") is None and not wanted.get("newest_first"):
            wanted = {**wanted, "until": page.watermark}
        while page.more:
            page = yield from ReadCalls.read.steps(self, queue, **{**wanted, "cursor": page.cursor})
            yield Items(found(page))

    def follow(
        self,
        queue: str | Sequence[str],
        *,
        since: Moment | None = None,
        cursor: str | None = None,
        partitions: Partitions = "all",
        with_bodies: bool = True,
        end_after_seconds: float | None = None,
        idle_seconds: float | None = None,
    ) -> F:
        """Pages without end: the messages that are there, then new ones as they come.

        Once the first answer has come, it goes on by itself after a broken connection or while a server is away. No message
        is missed or comes twice. To go on in another process, keep the cursor of a page. What is returned has a ``close``,
        ``aclose`` in asyncio, which ends it, also from another thread, task or signal handler: at once while it waits for
        messages, and at the latest after the attempt or pause of up to 10 seconds of a connection that is broken.

        :param queue: or up to 100 queues, with up to 200 partitions together. Then each page is of one ``queue``, and a page
            with ``refused`` says once that a queue cannot be read; the others go on.
        :param partitions: of one queue. Several are followed in all of their partitions.
        :param end_after_seconds: end by itself after this time; a message that comes later is not given. A connection that is
            being made then may take longer.
        :param idle_seconds: after this time without messages a page without any is given, so that the caller can do something
            else; also while a server is away, after each attempt.
        :raises CursorLost, QueueNotFound: the queue was deleted, or the last of several.
        """
        limits = FollowLimits(end_after_seconds, idle_seconds)
        params = read_params(since, None, cursor, partitions, newest_first=False, with_bodies=with_bodies)
        if isinstance(queue, str):
            return self._followed(Following(self._endpoint, queue_path(self.application, queue), params, limits))
        if partitions != "all":
            raise InvalidParameter(problems={"partitions": "several queues are followed in all of their partitions"})
        params.pop("partitions", None)
        params |= {"queues": queue_names(queue)}
        return self._followed(Following(self._endpoint, ("v1", self.application), params, limits))

    @call
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
    ) -> Steps[M]:
        """All messages up to the watermark in one answer, one partition after the other.

        :param columns: besides id and partition, any of body, content_type, key, headers and expires; None is what ``with_bodies``
            says.
        :raises BrokenStream: while iterating, if the answer breaks off.
        """
        params = read_params(since, until, cursor, partitions, newest_first=False, with_bodies=with_bodies)
        if columns is not None:
            check_list("columns", columns, "a list of names")
            params["columns"] = joined("columns", ("message_id", "partition", *columns))
        return self._message_stream((yield from self._stream(queue, NDJSON, params)))

    @call
    def read_arrow(
        self,
        queue: str,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        cursor: str | None = None,
        partitions: Partitions = "all",
        columns: Sequence[str] | None = None,
    ) -> Steps[A]:
        """Like :meth:`stream_ndjson`, in record batches of pyarrow.

        :param columns: any of queue, partition, message_id, timestamp, content_type, key, body, headers, expires, and id, which has
            16 bytes. None is the first five and body.
        """
        params = read_params(since, until, cursor, partitions, newest_first=False, with_bodies=True)
        if columns is not None:
            params["columns"] = joined("columns", columns)
        return self._arrow_stream((yield from self._stream(queue, ARROW, params)))

    def _stream(self, queue: str, media_type: str, params: Mapping[str, str]) -> Steps[Reply]:
        # Identity: the client would have to unpack what a proxy packs, between the socket and Arrow's reader.
        headers = {"Accept": media_type, "Accept-Encoding": "identity"}
        path, seconds = queue_path(self.application, queue), self._endpoint.timeout_seconds
        return self._endpoint.ask("GET", *path, params=params, headers=headers, stream_seconds=seconds)
