"""Answers of unknown length, and the end mark that tells a whole answer from a broken one.

Some servers and proxies close a broken answer as cleanly as a whole one. So every stream ends with a mark that counts its
rows. Rows come as they arrive, and only the end tells whether they were all. A stream without its mark ends in
:class:`~queuey.errors.BrokenStream`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, NoReturn, Self, TypeVar

import requests
from urllib3.exceptions import HTTPError

from qdo.client.values import Message, StreamEnd
from queuey.errors import BrokenStream

T = TypeVar("T")

NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


class Stream(ABC, Generic[T]):
    """The rows of one answer, to be iterated once. As a context manager it closes the connection."""

    def __init__(self, response: requests.Response) -> None:
        self._response = response
        self.end: StreamEnd | None = None
        """Set when iteration is over: rows, cursor to go on from, watermark."""
        self._items = self._read()

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
        self._response.close()

    @abstractmethod
    def _read(self) -> Iterator[T]:
        """The rows; sets ``end`` at the end of a whole answer and calls :meth:`_broken` otherwise."""

    def _finish(self, end: StreamEnd, rows: int) -> None:
        if end.rows != rows:
            self._broken(rows)
        self.end = end

    def _broken(self, rows: int, cause: Exception | None = None) -> NoReturn:
        raise BrokenStream(f"the answer ended after {rows} rows without its end mark") from cause


class MessageStream(Stream[Message]):
    """Messages from newline-delimited JSON."""

    def _read(self) -> Iterator[Message]:
        rows = 0
        lines = self._response.iter_lines(1 << 16)
        try:
            for line in lines:
                entry = json.loads(line)
                if "end" in entry:
                    self._finish(StreamEnd(**entry["end"]), rows)
                    break
                yield Message.from_wire(entry)
                rows += 1
            if self.end is None or next(lines, None) is not None:
                self._broken(rows)
        except (requests.RequestException, ValueError) as error:
            self._broken(rows, error)


class ArrowStream(Stream[Any]):
    """Record batches of pyarrow. It needs ``pip install queuey[arrow]``."""

    def __init__(self, response: requests.Response) -> None:
        super().__init__(response)
        self.schema: Any = None
        """Of the batches; known once the first one has come."""

    def _read(self) -> Iterator[Any]:
        import pyarrow as pa

        rows = 0
        try:
            reader = pa.ipc.open_stream(pa.PythonFile(self._response.raw, mode="r"))
            self.schema = reader.schema
            while self.end is None:
                batch, told = reader.read_next_batch_with_custom_metadata()
                if told is not None and b"queuey.rows" in told:
                    self._finish(_arrow_end(told), rows)
                else:
                    rows += batch.num_rows
                    yield batch
        except (StopIteration, pa.ArrowException, HTTPError, OSError) as error:
            self._broken(rows, error)


def _arrow_end(told: Any) -> StreamEnd:
    return StreamEnd(
        int(told[b"queuey.rows"]),
        told[b"queuey.next"].decode(),
        told[b"queuey.more"] == b"1",
        told[b"queuey.watermark"].decode(),
    )
