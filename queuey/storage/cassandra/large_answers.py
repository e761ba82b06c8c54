"""How many bytes the nodes are asked for at once.

All that a server asks of a node shares one connection with the driver's heartbeat, and Java's heap with all others. Eight
pages of 4 MiB at once took longer than a statement may, so they were asked for again. The heartbeat waited behind them, the
driver gave the node up, and no append was taken for half a minute. So a query with a large answer begins when there is room
for it. docs/decisions/043.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from queuey.errors import StorageUnavailable
from queuey.future import Future
from queuey.locks import new_lock

__all__ = ["LARGE_BYTES", "LargeAnswers"]

LARGE_BYTES: Final = 256 << 10
"""A query whose answer may be as large as this is counted. Smaller ones wait for nothing."""
NODE_BYTES: Final = 4 << 20
"""Under way for each node. One page at a time took a node of 512 MiB as long as two or four."""
PATIENCE_SECONDS: Final = 10.0
"""A query that has waited for longer is refused. Its caller has gone, or will soon."""

Rows = Any


class _Waiting(NamedTuple):
    size: int
    send: Callable[[], Future[Rows]]
    until: float
    answer: Future[Rows]


class LargeAnswers:
    """Begins queries with large answers, in their order, as earlier ones end. Thread-safe."""

    def __init__(self, nodes: Callable[[], int], elapsed: Callable[[], float]) -> None:
        """:param nodes: how many there are to ask.
        :param elapsed: seconds, of a clock that never goes back.
        """
        self._nodes = nodes
        self._elapsed = elapsed
        self._lock = new_lock()
        self._waiting: deque[_Waiting] = deque()
        self._under_way = 0
        """Bytes."""
        self._begins = False
        """A thread begins queries, and looks again before it stops."""

    def ask(self, size: int, send: Callable[[], Future[Rows]]) -> Future[Rows]:
        """Send a query once there is room for its answer. One that is larger than all room is sent alone.

        :param size: bytes that the answer may have.
        :raises StorageUnavailable: it was not sent in time, or what sending it raises.
        """
        answer: Future[Rows] = Future()
        with self._lock:
            self._waiting.append(_Waiting(size, send, self._elapsed() + PATIENCE_SECONDS, answer))
        self._begin()
        return answer

    def _begin(self) -> None:
        """Begin all that there is room for. Queries that end meanwhile are seen here: each of them would go one call deeper."""
        with self._lock:
            if self._begins:
                return
            self._begins = True
        while (one := self._next()) is not None:
            if one.until < self._elapsed():
                self._ended(one, Future.failed(StorageUnavailable(_TOO_MANY)))
            else:
                one.send().add_done_callback(partial(self._ended, one))

    def _next(self) -> _Waiting | None:
        """The next one, for which there is room; None if there is none, and then nobody begins any."""
        with self._lock:
            has_room = self._waiting and self._under_way + self._waiting[0].size <= self._nodes() * NODE_BYTES
            if self._waiting and (has_room or not self._under_way):
                self._under_way += self._waiting[0].size
                return self._waiting.popleft()
            self._begins = False
            return None

    def _ended(self, one: _Waiting, found: Future[Rows]) -> None:
        with self._lock:
            self._under_way -= one.size
        self._begin()  # before the rows are looked at: the node has something to do meanwhile
        try:
            rows = found.result()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
            one.answer.set_error(error)
        else:
            one.answer.set_result(rows)


_TOO_MANY = "too many large reads wait for the nodes of Cassandra: nothing was read, try again"
