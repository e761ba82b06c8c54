"""Reads an embedded store's file, over as many connections as there are reads at once.

No reader waits for the writer. The thread that asks for a page reads it itself, since handing a page over costs more
than it saves. Look-ups are short and come before an append, so a thread of their own does them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar

import apsw

from queuey.errors import StorageUnavailable
from queuey.future import Future
from queuey.locks import new_lock

K = TypeVar("K")
T = TypeVar("T")

TOGETHER = 63
"""Questions that are answered together with the first of them."""


@contextmanager
def read_snapshot(connection: apsw.Connection) -> Iterator[None]:
    """Let all reads of a connection in this block see one state of the file."""
    connection.execute("begin")
    try:
        yield
    finally:
        if connection.in_transaction:  # SQLite has ended it if a read failed
            connection.execute("commit")


class Reader:
    """A connection that one caller has at a time, see :meth:`Readers.lend`.

    It is opened without SQLite's own mutexes, which took a sixth of the time of a page. So no other thread may use it
    while a statement runs, and no cursor may be left for another thread to close. :meth:`ask` leaves none.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._lent = new_lock()

    def take(self) -> bool:
        """Lend it to the caller; False if another has it."""
        return self._lent.acquire(blocking=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lent.release()

    def ask(self, sql: str, bindings: tuple[Any, ...], shape: Callable[[Any], T]) -> T:
        """What ``shape`` makes of a statement's rows; it need not take all of them.

        One statement is one short read transaction. What ``shape`` asks by :meth:`beside` is part of it.
        """
        rows = self._connection.execute(sql, bindings)
        try:
            return shape(rows)
        finally:
            rows.close(True)

    def ask_lasting(self, sql: str, bindings: tuple[Any, ...], shape: Callable[[Any], T]) -> T:
        """The same as :meth:`ask`, with a transaction that lasts as long as ``shape``.

        So ``shape`` may ask further questions after it took the last row.
        """
        with self.snapshot():
            return self.ask(sql, bindings, shape)

    def beside(self, sql: str, bindings: tuple[Any, ...]) -> Any:
        """The rows of a further statement, inside :meth:`ask` or :meth:`snapshot`.

        The caller takes all of them, or closes them.
        """
        return self._connection.execute(sql, bindings)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all questions in this block see one state of the file.

        They are asked by :meth:`beside`.
        """
        with read_snapshot(self._connection):
            yield

    def close(self) -> None:
        """Close the connection, once nobody has it. It is lent no more."""
        self._lent.acquire()
        self._connection.close()


class Readers:
    """The readers of one file. There is one for each caller that reads now, and those of earlier callers."""

    def __init__(self, connect: Callable[..., apsw.Connection]) -> None:
        """:param connect: see :meth:`queuey.storage.sqlite.connections.Connections.reader`. The first connection is lent
        whenever it is free: so the event loop, which reads most pages, nearly always has it.
        """
        self._connect = connect
        self._all: list[Reader] = []
        self._lock = new_lock()
        self._closed = False
        self._why_closed = "the store is closed"

    def lend(self) -> Reader:
        """A reader for the caller alone, until it leaves the reader's ``with`` block.

        :raises StorageUnavailable: closed.
        """
        if not self._closed:
            for reader in self._all:
                if reader.take():
                    return reader
        with self._lock:
            if self._closed:
                raise StorageUnavailable(self._why_closed)
            reader = Reader(self._connect(often=not self._all))
            reader.take()
            self._all.append(reader)
        return reader

    def forsake(self, why: str) -> None:
        """Give up the connections, in the child of a fork: they are the parent's."""
        self._closed, self._why_closed = True, why

    def close(self) -> None:
        """Close all connections, each once nobody has it."""
        with self._lock:
            self._closed = True
            for reader in self._all:
                reader.close()


class LookupThread(Generic[K, T]):
    """Short questions, answered by one thread.

    All questions that came during the last answers are answered together. Each step of SQLite releases the interpreter.
    While commits are under way, an event loop that asks in its own thread pays more for getting the interpreter back
    than for the answer. So does a thread that answers one question after the other.
    """

    def __init__(self, find_all: Callable[[Sequence[K]], Sequence[T]]) -> None:
        """:param find_all: gives an answer for each question, in order; only the one thread calls it."""
        self._find_all = find_all
        self._asked: SimpleQueue[tuple[K, Future[T]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = new_lock()
        self._closed = False
        self._why_closed = "the store is closed"

    def ask(self, question: K) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                return Future.failed(StorageUnavailable(self._why_closed))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="lookups", daemon=True)
                self._thread.start()
            self._asked.put((question, future))
        return future

    def forsake(self, why: str) -> None:
        """Give up, in the child of a fork: the thread does not exist there."""
        self._closed, self._why_closed = True, why

    def close(self) -> None:
        """Answer the questions so far, then end."""
        with self._lock:
            self._closed = True
            self._asked.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (first := self._asked.get()) is not None:
            self._answer([first, *self._waiting()])

    def _waiting(self) -> Iterator[tuple[K, Future[T]]]:
        """The questions that have come so far."""
        for _ in range(min(self._asked.qsize(), TOGETHER)):
            asked = self._asked.get()
            if asked is None:
                self._asked.put(None)  # the end mark stays last
                return
            yield asked

    def _answer(self, asked: Sequence[tuple[K, Future[T]]]) -> None:
        try:
            found = self._find_all([question for question, _ in asked])
            for (_, future), answer in zip(asked, found, strict=True):
                future.set_result(answer)
        except Exception as error:  # noqa: BLE001 - it goes to its asker, and the next are answered
            left = [one for one in asked if not one[1].done]
            if len(left) == 1:
                left[0][1].set_error(error)
            else:  # what is damaged is asked for by one of them
                for one in left:
                    self._answer([one])
