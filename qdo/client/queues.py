"""Calls about queues and tokens: part of :class:`~qdo.client.Client`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from qdo.client.transport import ALLOWED, FORBIDDEN, Repeats, Transport, json_of
from qdo.client.values import ChangedQueues, NewToken, QueueInfo, QueueSettings
from qdo.client.wire import queue_fields, queue_path, token_fields
from queuey.errors import QueueNotFound
from queuey.ids import EPOCH_TICKS, format_timestamp, parse_timestamp

__all__ = ["QueueCalls"]


class QueueCalls:
    """Makes, changes, lists and removes queues, and makes tokens."""

    application: str
    _transport: Transport

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
        """Make a queue, or change an existing one to what is given.

        The number of partitions never falls.

        :param name: None lets the client draw a name.
        :param only_new: refuse an existing queue. Then a lost answer is not repeated.
        :raises QueueExists: with ``only_new``. Nothing changed.
        """
        fields = queue_fields(partitions, kind, consistency, principals)
        answer = self._transport.send(
            "POST",
            "v1",
            self.application,
            data={"queue_name": name or uuid.uuid4().hex} | fields,
            headers={"If-None-Match": "*"} if only_new else None,
            repeats=FORBIDDEN if only_new else ALLOWED,
        )
        return QueueSettings.from_wire(json_of(answer))

    def queues(
        self, *, start: str = "", page_size: int = 1000, with_counts: bool = False, mine: bool = False
    ) -> Iterator[QueueSettings]:
        """All queues by name. Each page is requested when the iteration reaches it.

        :param start: the first name; it need not exist.
        :param mine: queues of all applications that name the caller, without counts and principals.
        """
        params: dict[str, Any] = {"limit": page_size, "details": "true", "offset": start}
        params |= {name: "true" for name, asked in (("include_count", with_counts), ("mine", mine)) if asked}
        for page in self._transport.listed("v1", self.application, params=params):
            yield from map(QueueSettings.from_wire, page["queues"])

    def applications(self, *, start: str = "", page_size: int = 1000) -> Iterator[str]:
        """The names of all applications that have a key, in code point order. Only an operator's key may ask.

        Each page is requested when the iteration reaches it.

        :param start: the first name; it need not exist.
        :raises Forbidden: the key is not an operator's.
        """
        for page in self._transport.listed("v1", params={"limit": page_size, "offset": start}):
            yield from (application["application"] for application in page["applications"])

    def find_queue(self, name: str) -> QueueSettings | None:
        """The settings of a queue; None if it does not exist.

        A deep queue takes no longer than an empty one.
        """
        found = next(iter(self.queues(start=name, page_size=1)), None)
        return found if found is not None and found.name == name else None

    def queue_info(self, queue: str) -> QueueInfo:
        """Settings, depth, bytes and ends of a queue.

        A deep queue takes no longer than others, once it was asked for.
        """
        answer = self._transport.send("GET", *queue_path(self.application, queue), params={"info": "true"})
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
        """Change what is given, and keep the rest.

        :raises PartitionsCannotShrink: fewer partitions than now. Nothing changed.
        """
        fields = queue_fields(partitions, kind, consistency, principals)
        return QueueSettings.from_wire(
            json_of(self._transport.send("PUT", *queue_path(self.application, queue), data=fields))
        )

    def delete_queue(self, queue: str) -> None:
        """Remove a queue and all its messages."""
        self._transport.send("DELETE", *queue_path(self.application, queue), repeats=Repeats(done={404}))

    def news(self, queues: Sequence[str], since_ticks: int) -> tuple[set[str], int]:
        """Which of these queues got a message at a moment or later.

        It also says up to which moment that is known.

        :param queues: up to 100, with up to 200 partitions together. A queue that does not exist has got nothing. A queue
            that cannot be read at the moment counts as well, since it may have got something.
        :param since_ticks: inclusive; 0 for any message.
        :returns: names, and the watermark in ticks; 0 if none of the queues can be read.
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

    def arrivals(self, cursor: str | None = None, *, limit: int = 1000) -> ChangedQueues:
        """The queues of the application that got messages since an earlier answer.

        :param cursor: of the earlier answer; None begins with everything that the server remembers.
        """
        params = {"arrivals": "true", "details": "true", "limit": str(limit)} | ({"cursor": cursor} if cursor else {})
        answer = self._transport.send("GET", "v1", self.application, params=params)
        told = json_of(answer)
        return ChangedQueues(
            tuple(map(QueueSettings.from_wire, told["queues"])),
            answer.headers["Queuey-Cursor"],
            answer.headers["Queuey-More"] == "true",
            told["complete"],
        )

    def new_token(
        self,
        principal: str | None = None,
        *,
        queues: Sequence[str] | None = None,
        verbs: Sequence[str] | None = None,
        life_seconds: int | None = None,
    ) -> NewToken:
        """Make a token for the paths of this application.

        It is for ``principal`` or for the caller. None restricts nothing.
        """
        fields = token_fields(principal, queues, verbs, life_seconds)
        return NewToken.from_wire(json_of(self._transport.send("POST", "tokens", self.application, data=fields)))
