"""Answers of unknown length, and the end mark of a whole one.

Some servers and proxies close a broken answer as cleanly as a whole one. So every stream ends with a mark that counts its
rows. StreamRows come as they arrive, and only the end tells whether they were all. A stream without its mark ends in
:class:`~queuey.errors.BrokenStream`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NoReturn, Self, TypeVar

from urllib3.exceptions import HTTPError

from qdo.client.steps import InThread, Items, Listing, NoAnswer, Read, Reply, Steps
from qdo.client.values import Message, StreamEnd
from queuey.errors import BrokenStream

__all__ = ["ARROW", "NDJSON", "ArrowRows", "ArrowStream", "MessageRows", "MessageStream", "StreamRows", "next_lines"]

T = TypeVar("T")

NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


def next_lines(
    answer: Reply, rest: bytes, seconds: float | None = None
) -> Steps[tuple[list[bytes], bytes] | NoAnswer | None]:
    """The next whole lines of an answer, and the bytes behind them; None at its end, NoAnswer if it broke off.

    :param rest: the bytes behind the lines before.
    :param seconds: if nothing comes in this time there are no lines, and the same bytes.
    """
    piece = yield Read(answer, seconds)
    if isinstance(piece, NoAnswer):
        return piece
    if piece is None:
        return [], rest
    if not piece:
        return None
    *lines, rest = (rest + piece).split(b"\n")
    return lines, rest


class StreamRows(ABC, Generic[T]):
    """The rows of one answer, to be iterated once."""

    def __init__(self, answer: Reply) -> None:
        self._answer = answer
        self._count = 0
        self.end: StreamEnd | None = None
        """Set when iteration is over: rows, cursor to go on from, watermark."""

    @abstractmethod
    def _rows(self) -> Listing[T]:
        """The rows.

        It sets ``end`` at the end of a whole answer and calls :meth:`_broken` otherwise.
        """

    def _finish(self, end: StreamEnd) -> None:
        if end.rows != self._count:
            self._broken()
        self.end = end

    def _broken(self, cause: Exception | None = None) -> NoReturn:
        raise BrokenStream(f"the answer ended after {self._count} rows without its end mark") from cause


class MessageRows(StreamRows[Message]):
    """Messages from newline-delimited JSON."""

    def _rows(self) -> Listing[Message]:
        rest = b""
        while True:
            came = yield from next_lines(self._answer, rest)
            if not isinstance(came, tuple):
                break
            lines, rest = came
            yield Items(self._messages(lines))
        if came is None and rest:
            yield Items(self._messages([rest]))
        if came is not None or self.end is None:
            self._broken(came)

    def _messages(self, lines: Iterable[bytes]) -> Iterator[Message]:
        for line in lines:
            if self.end is not None:
                self._broken()
            try:
                row = _row_of(json.loads(line))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                self._broken(error)
            if isinstance(row, StreamEnd):
                self._finish(row)
            else:
                self._count += 1
                yield row


def _row_of(entry: Any) -> Message | StreamEnd:
    """What a line says."""
    return StreamEnd(**entry["end"]) if "end" in entry else Message.from_wire(entry)


class ArrowRows(StreamRows[Any]):
    """Record batches of pyarrow. It needs the extra ``arrow``."""

    schema: Any = None
    """Of the batches; known once the first one has come."""

    def _rows(self) -> Listing[Any]:
        import pyarrow as pa

        def tried(function: Callable[[], Any]) -> InThread:
            """A step whose outcome may be what went wrong."""

            def run() -> Any:
                try:
                    return function()
                except (StopIteration, pa.ArrowException, HTTPError, OSError) as error:
                    return error

            return InThread(run)

        source = self._answer.source
        reader = yield tried(lambda: pa.ipc.open_stream(pa.PythonFile(source and source.file(), mode="r")))
        if isinstance(reader, Exception):
            self._broken(reader)
        self.schema = reader.schema
        while self.end is None:
            came = yield tried(reader.read_next_batch_with_custom_metadata)
            if isinstance(came, Exception):
                self._broken(came)
            batch, told = came
            if told is not None and b"queuey.rows" in told:
                self._finish(_arrow_end(told))
            else:
                self._count += batch.num_rows
                yield Items([batch])


class _Iterated(StreamRows[T]):
    """StreamRows in a loop. As a context manager it closes the connection."""

    def __init__(self, answer: Reply, each: Callable[[Listing[T]], Iterator[T]]) -> None:
        super().__init__(answer)
        self._items = each(self._rows())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """:raises BrokenStream: the answer ended without its mark, or its rows are not as many as the mark says."""
        return next(self._items)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._answer.close()


class MessageStream(_Iterated[Message], MessageRows):
    """Messages from newline-delimited JSON."""


class ArrowStream(_Iterated[Any], ArrowRows):
    """Record batches of pyarrow. It needs the extra ``arrow``."""


def _arrow_end(told: Any) -> StreamEnd:
    return StreamEnd(
        int(told[b"queuey.rows"]),
        told[b"queuey.next"].decode(),
        told[b"queuey.more"] == b"1",
        told[b"queuey.watermark"].decode(),
    )
