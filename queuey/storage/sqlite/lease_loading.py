"""Reads large states of lease groups outside of the committer's turn.

A state of a million leased messages takes a second or two to read. Meanwhile the committer stores what others append. A
job that needs such a state is put off: it runs once the state is in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any, NamedTuple

from queuey.errors import StorageUnavailable
from queuey.future import Future
from queuey.locks import new_lock
from queuey.model import PartitionId
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_state import LeaseState
from queuey.storage.leasing.changes import StoredChanges, begun
from queuey.storage.sqlite.file import File
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Row
from queuey.storage.sqlite.writes import PutOff, Write

__all__ = ["LARGE_BYTES", "LoadedState", "StateLoader", "StatePlace"]

LARGE_BYTES = 32 << 10
"""Changes with more bytes are read here."""
_CLOSING = "the store is closing; nothing was done"
_AT_ONCE_SECONDS, _REST_SECONDS = 0.004, 0.001
"""How long it computes before it lets other threads have the interpreter, and for how long."""


class StatePlace(NamedTuple):
    """Names one state."""

    name: str
    """Of the group."""
    group: LeaseGroup
    partition: PartitionId


class LoadedState(NamedTuple):
    """A state, and the changes that it was read from."""

    state: LeaseState
    stored: StoredChanges


class StateLoader:
    """One thread, which begins at the first large state."""

    def __init__(
        self,
        file: File,
        changes: Callable[[int, int], StoredChanges],
        checked: Callable[[int, int, Iterable[Row]], Iterator[tuple[int, bytes]]],
        install: Callable[[StatePlace, LoadedState], Future[None]],
    ) -> None:
        """:param changes: makes what reads the changes of a token and a partition.
        :param checked: rows with numbers, after a check of their checksums.
        :param install: takes in a state, if it is what is stored, or does nothing.
        """
        self._file, self._changes, self._checked, self._install = file, changes, checked, install
        self._lock = new_lock()
        self._waiting: dict[StatePlace, list[Write]] = {}
        self._asked: SimpleQueue[StatePlace | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        file.add_running(self)

    def put_off(self, place: StatePlace) -> PutOff:
        """Lets a job run again once this state is in memory."""
        return PutOff(lambda write: self._wait(place, write))

    def _wait(self, place: StatePlace, write: Write) -> None:
        try:
            waits = self._gather(place, write)
        except RuntimeError as error:  # the system has no thread for it
            write.future.set_error(StorageUnavailable(f"a lease group is too large to be read just now: {error}"))
            return
        if not waits:
            self._file.committer.resubmit(write)

    def _gather(self, place: StatePlace, write: Write) -> bool:
        """Let a job wait for its state; False if the store is closing."""
        with self._lock:
            if self._closed:
                return False
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="lease states", daemon=True)
                thread.start()
                self._thread = thread
            waiting = self._waiting.setdefault(place, [])
            waiting.append(write)
            if len(waiting) == 1:
                self._asked.put(place)
            return True

    def _work(self) -> None:
        while (place := self._asked.get()) is not None:
            self._load(place)

    def _load(self, place: StatePlace) -> None:
        try:
            loaded = self._read(place)
        except Exception as error:  # noqa: BLE001 - also one for want of memory: else all that wait would wait for ever
            refusal = self._file.read_failed(error)
            for write in self._taken(place):
                write.future.set_error(refusal)
        else:
            self._install(place, loaded).add_done_callback(lambda _: self._release(place))

    def _read(self, place: StatePlace) -> LoadedState:
        token, partition = place.group.token, place.partition.number
        stored = self._changes(token, partition)

        def read(rows: Any) -> LeaseState:
            return stored.read(self._with_rests(self._checked(token, partition, rows)), begun(place.group))

        with self._file.readers.lend() as reader:
            return LoadedState(reader.ask(SQL["lease_changes"], (token, partition), read), stored)

    def _with_rests(self, stored: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """The same, with rests in which other threads have the interpreter."""
        began = time.perf_counter()
        for one in stored:
            if self._closed:
                raise StorageUnavailable(_CLOSING)
            yield one
            if time.perf_counter() - began > _AT_ONCE_SECONDS:
                time.sleep(_REST_SECONDS)
                began = time.perf_counter()

    def _taken(self, place: StatePlace) -> list[Write]:
        with self._lock:
            return self._waiting.pop(place, [])

    def _release(self, place: StatePlace) -> None:
        for write in self._taken(place):
            self._file.committer.resubmit(write)

    def close(self) -> None:
        """End the thread. Jobs that wait are refused."""
        with self._lock:
            self._closed = True
            places = [*self._waiting]
        for place in places:
            self._release(place)
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join()

    def forsake(self, why: str) -> None:
        """Give up, in the child of a fork: the thread does not exist there."""
        self._closed, self._thread = True, None
