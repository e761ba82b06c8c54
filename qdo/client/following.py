"""Following a queue: messages as they come, through connections that break.

Every message brings the cursor that goes on right behind it. A connection may break, a server may stop or be killed, a
line may be cut: the next connection begins behind the last whole line. So no message is missed or comes twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from random import random
from typing import Any

import requests
from urllib3.exceptions import HTTPError

from qdo.client.streams import NDJSON
from qdo.client.transport import Transport
from qdo.client.values import Message, Page
from queuey.errors import BrokenStream, QueueyError, error_classes

log = logging.getLogger(__name__)

SILENCE_SECONDS = 40.0
"""A server sends something at least every 30 seconds. A connection that is silent for longer than this is given up."""
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.2, 10.0
"""Pauses before another connection grow from the first to the last. Chance makes each up to half as long."""
UNREADABLE_TIMES = 5
"""If a line at one place cannot be read this many times, it is no accident of one connection."""

_PIECE_BYTES = 1 << 16

Json = dict[str, Any]


class Following:
    """Follows one queue without end. Iterate :meth:`pages` once."""

    def __init__(
        self,
        transport: Transport,
        path: tuple[str, ...],
        params: Mapping[str, str],
        *,
        sleep: Callable[[float], None],
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._transport = transport
        self._path = path
        self._params = dict(params)
        self._sleep = sleep
        self._silence_seconds = silence_seconds
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._watermark = ""
        self._cursor = ""
        self._stuck_at = ""
        """The cursor behind which a line could not be read."""
        self._unread = 0
        """How many times in a row."""

    def pages(self) -> Iterator[Page]:
        """Messages as they come. Messages that arrive together share a page.

        :raises BrokenStream: at one place, something comes again and again that is no line of a stream.
        :raises QueueyError: an error that waiting does not mend; before the first line, any error except a broken
            connection.
        """
        while True:
            try:
                with self._connect() as response:
                    yield from self._read(response)
                trouble: Exception = BrokenStream("the answer ended without its end mark")
            except BrokenStream as error:
                if not self._cursor or self._is_stuck():
                    raise
                trouble = error
            except QueueyError as error:
                if not self._cursor or not error.retriable:
                    raise
                trouble = error
            except (HTTPError, OSError) as error:  # the answer had begun, and broke off
                trouble = error
            log.warning("still following %s: %s", self._path[-1], trouble)
            self._rest()

    def _is_stuck(self) -> bool:
        """Whether the line behind this cursor cannot be read, however often the server sends it."""
        self._unread = self._unread + 1 if self._cursor == self._stuck_at else 1
        self._stuck_at = self._cursor
        return self._unread >= UNREADABLE_TIMES

    def _connect(self) -> requests.Response:
        params = {"columns": self._params["columns"]} if "columns" in self._params else {}
        params |= {"cursor": self._cursor} if self._cursor else self._params
        return self._transport.send(
            "GET",
            *self._path,
            params={**params, "follow": "true"},
            headers={"Accept": NDJSON, "Accept-Encoding": "identity"},
            stream_seconds=self._silence_seconds,
        )

    def _read(self, response: requests.Response) -> Iterator[Page]:
        rest, messages = b"", list[Message]()
        while piece := response.raw.read1(_PIECE_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            trouble: QueueyError | None = None
            for line in lines:
                try:
                    self._take(json.loads(line), messages)
                except (ValueError, LookupError, TypeError, AttributeError):
                    trouble = BrokenStream("what came is no line of a stream")
                except QueueyError as error:
                    trouble = error
                if trouble is not None:
                    break
            self._pause_seconds = FIRST_PAUSE_SECONDS
            if messages:
                yield Page(tuple(messages), self._cursor, self._watermark, more=False)
                messages.clear()
            if trouble is not None:
                raise trouble

    def _take(self, entry: Json, messages: list[Message]) -> None:
        """Process one line.

        :raises QueueyError: the line says that nothing more comes.
        """
        if "message_id" in entry:
            message, self._cursor = Message.from_wire(entry), entry["cursor"]
            messages.append(message)
            return
        (said,) = entry.values()
        self._watermark = said.get("watermark", self._watermark)
        self._cursor = said.get("cursor", self._cursor)
        if "code" in said:
            found = error_classes().get(said["code"], QueueyError)
            raise found(said["detail"])

    def _rest(self) -> None:
        self._sleep(self._pause_seconds * (1 - random() / 2))  # noqa: S311 - spreads, hides nothing
        self._pause_seconds = min(self._pause_seconds * 2, LAST_PAUSE_SECONDS)
