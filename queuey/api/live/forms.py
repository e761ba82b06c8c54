"""The wire forms of live readers: server-sent events, or lines of JSON.

Each message carries a cursor to continue from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from queuey.api.forms import PLAIN_COLUMNS, entries_of
from queuey.http.exchange import EVENTS, NDJSON
from queuey.model import Message

RECONNECT_MS = 1000
"""How long a browser is asked to wait before it connects again."""
_LINE = orjson.OPT_APPEND_NEWLINE


class EventForm:
    """``text/event-stream``.

    An event's id is a cursor, so ``Last-Event-ID`` continues right after it.
    """

    media_type = EVENTS

    def __init__(self, columns: Sequence[str] | None, *, several: bool) -> None:
        self._columns = columns
        self._several = several

    def rows(self, queue: str, messages: Sequence[Message], partition: int, cursors: Iterable[str]) -> bytes:
        """Messages, each with its cursor."""
        shown = entries_of(self._columns, queue)(messages, partition)
        if self._several:
            shown = [{"queue": queue, **entry} for entry in shown]
        return b"".join(
            [
                b"id: %b\nevent: message\ndata: %b\n\n" % (cursor.encode(), orjson.dumps(entry))
                for entry, cursor in zip(shown, cursors, strict=True)
            ]
        )

    def note(self, name: str, said: Mapping[str, Any], cursor: str | None = None) -> bytes:
        """Any event other than a message."""
        place = b"" if cursor is None else b"id: %b\n" % cursor.encode()
        retry = b"retry: %d\n" % RECONNECT_MS if name == "open" else b""
        return b"%b%bevent: %b\ndata: %b\n\n" % (retry, place, name.encode(), orjson.dumps(said))


class LineForm:
    """``application/x-ndjson``.

    A message is an entry with its ``cursor``. Any other line has one member, named after it.
    """

    media_type = NDJSON

    def __init__(self, columns: Sequence[str] | None, *, several: bool) -> None:
        wanted = columns or PLAIN_COLUMNS
        self._columns = (*wanted, "queue") if several and "queue" not in wanted else wanted

    def rows(self, queue: str, messages: Sequence[Message], partition: int, cursors: Iterable[str]) -> bytes:
        """See :class:`EventForm`."""
        shown = entries_of(self._columns, queue)(messages, partition)
        return b"".join(
            [
                orjson.dumps({**entry, "cursor": cursor}, option=_LINE)
                for entry, cursor in zip(shown, cursors, strict=True)
            ]
        )

    def note(self, name: str, said: Mapping[str, Any], cursor: str | None = None) -> bytes:
        """See :class:`EventForm`."""
        place = {} if cursor is None else {"cursor": cursor}
        return orjson.dumps({name: {**said, **place}}, option=_LINE)


LiveForm = EventForm | LineForm
