"""Reads an embedded store's file, with one connection for each thread.

No reader waits for the writer. The thread that asks for a page reads it itself, since handing a page over costs more
than it saves. Look-ups are short and come before an append, so a thread of their own does them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import apsw

from queuey.errors import StorageUnavailable
from queuey.future import Future
from queuey.locks import new_lock

K = TypeVar("K")
T = TypeVar("T")

TOGETHER = 63
"""Questions that are answered together with the first of them."""


class Reader:
    """One thread's connection.

    It is opened without SQLite's own mutexes, which took a sixth of the time of a page. So no other thread may use it
    while a statement runs, and no cursor may be left for another thread to close. :meth:`ask` ensures both.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._lock = new_lock()

    def ask(self, sql: str, bindings: tuple[Any, ...], shape: Callable[[Any], T]) -> T:
        """What ``shape`` makes of a statement's rows; it need not take all of them.

        One statement is one short read transaction. What ``shape`` asks by :meth:`beside` is part of it.
        """
        with self._lock:
            return self._shaped(sql, bindings, shape)

    def ask_lasting(self, sql: str, bindings: tuple[Any, ...], shape: Callable[[Any], T]) -> T:
        """The same as :meth:`ask`, with a transaction that lasts as long as ``shape``.

        So ``shape`` may ask further questions after it took the last row.
        """
        with self.snapshot():
            return self._shaped(sql, bindings, shape)

    def _shaped(self, sql: str, bindings: tuple[Any, ...], shape: Callable[[Any], T]) -> T:
        rows = self._connection.execute(sql, bindings)
        try:
            return shape(rows)
        finally:
            rows.close(True)

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
        with self._lock:
            self._connection.execute("begin")
            try:
                yield
            finally:
                if self._connection.in_transaction:  # SQLite has ended it if a read failed
                    self._connection.execute("commit")

    def close(self) -> None:
        """Close the connection, once its thread no longer uses it."""
        with self._lock:
            self._connection.close()


class Readers:
    """The readers of one file, one for each thread."""

    def __init__(self, connect: Callable[..., apsw.Connection]) -> None:
        """:param connect: see :meth:`queuey.storage.sqlite.connections.Connections.reader`. The thread that opens the
        store asks first: it has the event loop, and reads most pages.
        """
        self._connect = connect
        self._local = threading.local()
        self._all: list[Reader] = []
        self._lock = new_lock()
        self._closed = False
        self._why_closed = "the store is closed"

    def mine(self) -> Reader:
        """The calling thread's reader.

        :raises StorageUnavailable: closed.
        """
        try:
            reader: Reader = self._local.reader
        except AttributeError:
            with self._lock:
                if self._closed:
                    raise StorageUnavailable(self._why_closed) from None
                reader = self._local.reader = Reader(self._connect(often=not self._all))
                self._all.append(reader)
        return reader

    def forsake(self, why: str) -> None:
        """Give up the connections, in the child of a fork: they are the parent's."""
        self._local = threading.local()
        self._closed, self._why_closed = True, why

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for reader in self._all:
                reader.close()


class LookupThread(Generic[K, T]):
    """Short questions, answered by one thread.

    All questions that came during the last answers are answered together. Each step of SQLite releases the interpreter.
    While commits are under way, an event loop that asks by its own thread pays more for getting the interpreter back
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
        except Exception as error:  # noqa: BLE001 - it goes to the askers, and the next are answered
            for _, future in asked:
                if not future.done:
                    future.set_error(error)
