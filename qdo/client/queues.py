"""Calls about queues and tokens: part of each client."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Unpack

from qdo.client.endpoint import Endpoint
from qdo.client.given import check_text
from qdo.client.queue_info import QueueInfo
from qdo.client.steps import ALLOWED, FORBIDDEN, Listing, Steps, call, listing
from qdo.client.values import ChangedQueues, NewToken, QueueSettings
from qdo.client.wire import QueueFields, queue_fields, queue_names, queue_path, token_fields
from queuey.errors import InvalidParameter, QueueNotFound
from queuey.ids import EPOCH_TICKS, format_timestamp, parse_timestamp

__all__ = ["QueueCalls"]


class QueueCalls:
    """Makes, changes, lists and removes queues, and makes tokens."""

    application: str
    _endpoint: Endpoint

    @call
    def create_queue(
        self,
        name: str | None = None,
        *,
        only_new: bool = False,
        **settings: Unpack[QueueFields],
    ) -> Steps[QueueSettings]:
        """Make a queue, or change an existing one to what is given.

        The number of partitions never falls.

        :param name: None lets the client draw a name.
        :param settings: ``partitions``; ``kind``, ``user`` or ``public``; ``consistency``; ``retention``, ``ttl`` or ``acknowledged``;
            ``principals``, a list; and
            ``leases``, what lease groups of the queue begin with: settings by name, as for :meth:`set_lease_group`, where None
            is the default again.
        :param only_new: refuse an existing queue. Then a lost answer is not repeated.
        :raises InvalidParameter: the name is empty or no text, or there is no such setting.
        :raises QueueExists: with ``only_new``. Nothing changed.
        """
        if name == "":
            # The server would draw one.
            raise InvalidParameter(problems={"queue_name": "must not be empty"})
        name = uuid.uuid4().hex if name is None else name
        check_text("queue_name", name)
        fields = queue_fields(settings)
        answer = yield from self._endpoint.ask(
            "POST",
            "v1",
            self.application,
            data={"queue_name": name} | fields,
            headers={"If-None-Match": "*"} if only_new else None,
            repeats=FORBIDDEN if only_new else ALLOWED,
        )
        return QueueSettings.from_wire(answer.json())

    @listing
    def queues(
        self, *, start: str = "", page_size: int = 1000, with_counts: bool = False, mine: bool = False
    ) -> Listing[QueueSettings]:
        """All queues by name. Each page is requested when the iteration reaches it.

        :param start: the first name; it need not exist.
        :param mine: queues of all applications that name the caller, without counts and principals.
        """
        params: dict[str, Any] = {"limit": page_size, "details": "true", "offset": start}
        params |= {name: "true" for name, asked in (("include_count", with_counts), ("mine", mine)) if asked}
        return self._endpoint.listed(
            "v1", self.application, params=params, read=lambda page: map(QueueSettings.from_wire, page["queues"])
        )

    @listing
    def applications(self, *, start: str = "", page_size: int = 1000) -> Listing[str]:
        """The names of all applications that have a key, in code point order. Only an operator's key may ask.

        Each page is requested when the iteration reaches it.

        :param start: the first name; it need not exist.
        :raises Forbidden: the key is not an operator's.
        """
        params = {"limit": page_size, "offset": start}
        return self._endpoint.listed(
            "v1", params=params, read=lambda page: (entry["application"] for entry in page["applications"])
        )

    @call
    def find_queue(self, name: str) -> Steps[QueueSettings | None]:
        """The settings of a queue; None if it does not exist.

        A deep queue takes no longer than an empty one.
        """
        check_text("name", name)
        params = {"limit": 1, "details": "true", "offset": name}
        answer = yield from self._endpoint.ask("GET", "v1", self.application, params=params)
        found = map(QueueSettings.from_wire, answer.json()["queues"])
        return next((queue for queue in found if queue.name == name), None)

    @call
    def queue_info(self, queue: str) -> Steps[QueueInfo]:
        """Settings, depth, bytes and ends of a queue.

        A deep queue takes no longer than others, once it was asked for.
        """
        answer = yield from self._endpoint.ask("GET", *queue_path(self.application, queue), params={"info": "true"})
        return QueueInfo.from_wire(answer.json(), answer.headers.get("ETag", ""))

    @call
    def update_queue(
        self,
        queue: str,
        *,
        if_match: str | None = None,
        **settings: Unpack[QueueFields],
    ) -> Steps[QueueSettings]:
        """Change what is given, and keep the rest.

        :param if_match: the ``tag`` of what :meth:`queue_info` gave: change nothing if somebody else has changed the settings
            since then. Then a lost answer is not repeated: the repeat would be refused for what the first request changed.
        :param settings: as for :meth:`create_queue`. Lease groups that exist keep theirs.
        :raises PartitionsCannotShrink: fewer partitions than now. Nothing changed.
        :raises SettingsChanged: the settings are not those of ``if_match``. Nothing changed.
        """
        answer = yield from self._endpoint.ask(
            "PUT",
            *queue_path(self.application, queue),
            data=queue_fields(settings),
            headers=None if if_match is None else {"If-Match": if_match},
            repeats=ALLOWED if if_match is None else FORBIDDEN,
        )
        return QueueSettings.from_wire(answer.json())

    @call
    def delete_queue(self, queue: str) -> Steps[None]:
        """Remove a queue and all its messages.

        A lost answer is not repeated: a repeat could remove a queue of this name that was made in between.
        """
        yield from self._endpoint.ask("DELETE", *queue_path(self.application, queue), repeats=FORBIDDEN)

    @call
    def news(self, queues: Sequence[str], since_ticks: int) -> Steps[tuple[set[str], int]]:
        """Which of these queues got a message at a moment or later.

        It also says up to which moment that is known.

        :param queues: up to 100, with up to 200 partitions together. A queue that does not exist has got nothing. A queue
            that cannot be read at the moment counts as well, since it may have got something.
        :param since_ticks: inclusive; 0 for any message.
        :returns: names, and the watermark in ticks; 0 if none of the queues can be read.
        """
        params = {"queues": queue_names(queues), "limit": "1", "columns": "message_id"}
        if since_ticks > EPOCH_TICKS:
            params["since"] = format_timestamp(since_ticks)
        answer = yield from self._endpoint.ask("GET", "v1", self.application, params=params)
        told = answer.json()
        found = {entry["queue"] for entry in told["messages"]}
        found |= {entry["queue"] for entry in told["refused"] if entry["code"] != QueueNotFound.__name__}
        if len(told["refused"]) == len({*queues}):
            return found, 0  # none of them can be read
        return found, parse_timestamp(answer.headers["Queuey-Watermark"])

    @call
    def arrivals(self, cursor: str | None = None, *, limit: int = 1000) -> Steps[ChangedQueues]:
        """The queues of the application that got messages since an earlier answer.

        :param cursor: of the earlier answer; None begins with everything that the server remembers.
        """
        params = {"arrivals": "true", "details": "true", "limit": str(limit)} | ({"cursor": cursor} if cursor else {})
        answer = yield from self._endpoint.ask("GET", "v1", self.application, params=params)
        told = answer.json()
        return ChangedQueues(
            tuple(map(QueueSettings.from_wire, told["queues"])),
            answer.headers["Queuey-Cursor"],
            answer.headers["Queuey-More"] == "true",
            told["complete"],
        )

    @call
    def new_token(
        self,
        principal: str | None = None,
        *,
        queues: Sequence[str] | None = None,
        verbs: Sequence[str] | None = None,
        life_seconds: int | None = None,
    ) -> Steps[NewToken]:
        """Make a token for the paths of this application.

        It is for ``principal`` or for the caller. None restricts nothing.
        """
        fields = token_fields(principal, queues, verbs, life_seconds)
        answer = yield from self._endpoint.ask("POST", "tokens", self.application, data=fields)
        return NewToken.from_wire(answer.json())
