r"""Messages as one JSON answer, made in pieces.

No piece is made without room for it, and the event loop has turns between large ones. As JSON a body can take six times
its bytes: a control character becomes ``\u0001``. So the size of an answer is known only once it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""Bytes of bodies, or characters of one, that become JSON in one step: 2 ms at worst, when they grow sixfold."""
PLAIN = 64 << 10
"""A page with fewer bytes of bodies is first tried as plain messages. The trial is wasted if a body needs escapes."""
Plain = Callable[[Sequence[Message], int], bytes | None]
"""Makes a page of messages, or None if it cannot."""
EMPTY = json_page([])
"""The answer without messages."""
_BEGIN, _END = EMPTY[:-2], b"]}"


class JsonPage(Turns):
    """The messages of one answer, as many as there is room for.

    The first message has room, however large it is. The page also counts its reader's turns: before others have theirs,
    the bytes of the answer so far are counted (G17). The context gives these bytes back, since the sender of a whole
    answer counts it again.
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

    async def add(self, answer: ReadAnswer, present: Presenter, plain: Plain | None = None) -> ReadAnswer:
        """Add messages whose bodies are counted already.

        :param plain: presents most messages faster than ``present``.
        :returns: the added messages, with ``more`` true for each partition whose messages did not all have room.
        :raises Throttled: the server has no room for their bytes.
        """
        if present is entries:
            plain = plain_page
        pages = [
            PartitionPage(number, await self._add(number, found, present, plain) if found.messages else found)
            for number, found in answer.pages
        ]
        if self.room:
            return answer
        return ReadAnswer(pages, answer.watermark, sum([found.size for _, found in pages]))

    def body(self, **beside: Any) -> bytes:
        """The whole answer.

        :param beside: its members other than ``status`` and ``messages``.
        """
        if not beside and len(self._pieces) <= 1:
            return self._pieces[0] if self._pieces else EMPTY
        parts: list[bytes | memoryview] = [_BEGIN]
        for piece in self._pieces:
            parts += (memoryview(piece)[len(_BEGIN) : -len(_END)], b",")
        return b"".join([*parts[: max(len(parts) - 1, 1)], b"]", _end_beside(beside)])

    async def _add(self, number: int, found: Page, present: Presenter, plain: Plain | None) -> Page:
        kept = 0
        for messages in _groups(found):
            if self.room <= 0:
                break
            if self.over:
                await self.give()
            made = plain(messages, number) if plain is not None and found.size <= PLAIN else None
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
        """See :class:`Turns`; also after each 256 KiB of bodies and of JSON."""
        return self._rows > TURN_ROWS or self._unheld > PIECE

    async def _end(self) -> None:
        if self._unheld:
            self._call.ticket.hold(self._unheld)
        self._held += self._unheld
        self._unheld = self._rows = 0
        await others_turn()

    async def _escape(self, entry: dict[str, Any]) -> int:
        """Turn a large body into JSON while others have their turns; returns its bytes."""
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
        """Add messages; returns how many had room.

        :param counted: bytes of these messages that were counted before.
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

        :param uncounted: bytes of the piece that are not counted yet.
        :returns: ``rows``.
        """
        self._pieces.append(piece)
        self.rows += rows
        self.room = max(self.room - len(piece), 0)
        self.count(rows, uncounted)
        return rows


def with_beside(page: bytes, beside: Mapping[str, Any]) -> bytes:
    """An answer with members beside ``status`` and ``messages``."""
    return page[:-1] + _end_beside(beside) if beside else page


def _end_beside(beside: Mapping[str, Any]) -> bytes:
    return b",%b" % orjson.dumps(beside)[1:] if beside else b"}"


def _groups(page: Page) -> Iterable[Sequence[Message]]:
    """A page in parts of 256 KiB of bodies, or of one larger message."""
    messages = page.messages
    return _large_groups(messages) if page.size > PIECE else [messages] if messages else []


def _large_groups(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    begin = size = 0
    for at, own in enumerate(Columns.of(messages).sizes()):
        if at > begin and size + own > PIECE:
            yield messages[begin:at]
            begin, size = at, 0
        size += own
    yield messages[begin:]
