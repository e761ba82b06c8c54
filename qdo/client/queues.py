"""Calls about queues and tokens: part of :class:`~qdo.client.Client`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from qdo.client.transport import Transport, json_of
from qdo.client.values import Arrivals, NewToken, QueueInfo, QueueSettings
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
        """Change what is named, keep the rest.

        :raises PartitionsCannotShrink: fewer partitions than now; nothing changed.
        """
        fields = queue_fields(partitions, kind, consistency, principals)
        return QueueSettings.from_wire(
            json_of(self._transport.send("PUT", *queue_path(self.application, queue), data=fields))
        )

    def delete_queue(self, queue: str) -> None:
        """Remove a queue and all its messages."""
        self._transport.send("DELETE", *queue_path(self.application, queue), done_if_repeated={404})

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
