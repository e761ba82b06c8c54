r"""Messages as one JSON answer, made in pieces: none that has no room, and the event loop has turns between large ones.

As JSON a body can take six times its bytes: a control character becomes ``\u0001``. So what an answer takes is known
only as it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import orjson

from queuey.api.forms import Presenter, entries, json_page, plain_page, text_pieces
from queuey.future import others_turn
from queuey.http.exchange import Call
from queuey.model import Columns, Message, Page
from queuey.service.log import PartitionPage, ReadAnswer
from queuey.service.turns import TURN_ROWS, Turns

PIECE = 256 << 10
"""Bytes of bodies, or characters of one, that become JSON in one step: in 2 ms at worst, six times as large."""
PLAIN = 64 << 10
"""Bytes of bodies of a page that is first tried as one of plain messages: the trial is for nothing if a body has to be escaped."""
_EMPTY = json_page([])
_BEGIN, _END = _EMPTY[:-2], b"]}"


class JsonPage(Turns):
    """The messages of one answer, as far as there is room for them; the first one has room, however large it is.

    It counts the turns of whoever reads them, too: before others have theirs, what the answer takes so far is counted (G17).
    The context gives it back, for whole answers are counted where they are sent.
    """

    __slots__ = ("_call", "_held", "_pieces", "_unheld", "room", "rows")

    def __init__(self, call: Call, room: int) -> None:
        """:param room: bytes of JSON that the messages may take."""
        super().__init__()
        self.room = room
        """Bytes of JSON that are left; 0 once a message was left out."""
        self.rows = 0
        self._call = call
        self._pieces: list[bytes] = []
        """Each would be an answer of its own, and often there is only one."""
        self._held = self._unheld = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.ticket.give_back(self._held)

    async def add(self, answer: ReadAnswer, present: Presenter) -> ReadAnswer:
        """Add messages whose bodies were counted.

        :returns: what was added, with ``more`` true of each partition of which something was left out.
        :raises Throttled: there is no room for their bytes in the server.
        """
        pages = [
            PartitionPage(number, await self._add(number, found, present) if found.messages else found)
            for number, found in answer.pages
        ]
        if self.room:
            return answer
        return ReadAnswer(pages, answer.watermark, sum([found.size for _, found in pages]))

    def body(self, **beside: Any) -> bytes:
        """The whole answer.

        :param beside: its members beside ``status`` and ``messages``.
        """
        if not beside and len(self._pieces) <= 1:
            return self._pieces[0] if self._pieces else _EMPTY
        parts: list[bytes | memoryview] = [_BEGIN]
        for piece in self._pieces:
            parts += (memoryview(piece)[len(_BEGIN) : -len(_END)], b",")
        return b"".join([*parts[: max(len(parts) - 1, 1)], b"]", b"," if beside else b"", orjson.dumps(beside)[1:]])

    async def _add(self, number: int, found: Page, present: Presenter) -> Page:
        kept = 0
        for messages in _groups(found):
            if self.room <= 0:
                break
            if self.over:
                await self.give()
            made = plain_page(messages, number) if present is entries and found.size <= PLAIN else None
            if made is not None and len(made) <= self.room:
                kept += self._take(made, len(messages), len(made))
                continue
            shown = present(messages, number)
            escaped = await self._escape(shown[0]) if len(shown) == 1 else 0
            kept += self._keep(shown, escaped)
        return found if kept == len(found.messages) else Page(found.messages[:kept], True, found.corrupt if kept else 0)

    def count(self, rows: int, size: int = 0) -> None:
        self._rows += rows
        self._unheld += size

    @property
    def over(self) -> bool:
        """As of :class:`Turns`, and after each 256 KiB of bodies and of JSON."""
        return self._rows > TURN_ROWS or self._unheld > PIECE

    async def _end(self) -> None:
        if self._unheld:
            self._call.ticket.hold(self._unheld)
        self._held += self._unheld
        self._unheld = self._rows = 0
        await others_turn()

    async def _escape(self, entry: dict[str, Any]) -> int:
        """Make a large body JSON, others have their turns meanwhile; the bytes that it takes."""
        text = entry.get("body", "")
        if len(text) <= PIECE:
            return 0
        pieces = []
        for piece in text_pieces(text, PIECE):
            pieces.append(piece)
            self._unheld += len(piece)
            await self._end()
        entry["body"] = orjson.Fragment(b'"%b"' % b"".join(pieces))
        return sum(map(len, pieces))

    def _keep(self, shown: Sequence[dict[str, Any]], counted: int) -> int:
        """Add messages; how many had room.

        :param counted: bytes of theirs that were counted before.
        """
        piece = json_page(shown)
        if len(piece) > self.room and (self.rows or len(shown) > 1):
            if len(shown) == 1:
                self.room = 0
                return 0
            return sum([self._keep([one], 0) for one in shown if self.room])
        return self._take(piece, len(shown), len(piece) - counted)

    def _take(self, piece: bytes, rows: int, uncounted: int) -> int:
        """Add a piece that has room, and count its messages.

        :param uncounted: bytes of it that are not counted yet.
        :returns: ``rows``.
        """
        self._pieces.append(piece)
        self.rows += rows
        self.room = max(self.room - len(piece), 0)
        self.count(rows, uncounted)
        return rows


def _groups(page: Page) -> Iterable[Sequence[Message]]:
    """A page in parts with bodies of 256 KiB together, or one larger body alone."""
    messages = page.messages
    return _large_groups(messages) if page.size > PIECE else [messages] if messages else []


def _large_groups(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    begin = size = 0
    for at, body in enumerate(Columns.of(messages).bodies):
        if at > begin and size + len(body) > PIECE:
            yield messages[begin:at]
            begin, size = at, 0
        size += len(body)
    yield messages[begin:]
