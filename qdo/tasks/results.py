"""Results of tasks: messages in a queue for results, which whoever waits reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from math import ceil, inf
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from qdo.client import Client
from qdo.client.given import check_seconds, check_text
from qdo.client.values import Message
from qdo.tasks.arguments import ReturnValue
from qdo.tasks.removal import MessageWatch
from qdo.tasks.sending import default_client
from qdo.tasks.wire import NO_JSON, RESULT_OF, STATUS, header
from queuey.errors import ConfigurationError, CursorLost, InvalidParameter, QueueNotFound
from queuey.ids import MessageId, parse_timestamp

__all__ = ["RESULT_SECONDS", "TaskFailed", "TaskRemoved", "TaskResult", "watch"]

RESULT_SECONDS = 86_400
"""How long a result is kept."""
WAIT_SECONDS = 20
"""For which the server may hold back an answer without results."""
MOST_A_READ, MOST_OF_A_WAIT = 1000, 100
"""Results of one partition in an answer, and in one that waits."""
LOOK_SECONDS = 0.2
"""Between two looks for a queue that does not exist yet."""


class TaskFailed(Exception):
    """A task was given up. The text is the reason; the dead letter has the traceback."""


class TaskRemoved(TaskFailed):
    """The message of a task is no longer in its queue, and there is no result.

    The task was cancelled, its queue was purged or deleted, or its time to live ended. Or its result was there, and is no
    longer kept. A worker that had begun the task may still end it.
    """


class TaskResult:
    """A task that was sent, and what becomes of it."""

    def __init__(
        self, task_id: str, results_queue: str | None, returns: ReturnValue, *, has_steps: bool | None = None
    ) -> None:
        """:param results_queue: where the result will be; None if the task stores none.
        :param has_steps: whether the task begins a chain; None if that is not known.
        :raises InvalidParameter: ``task_id`` is no id of a task.
        """
        check_text("id", task_id)
        _, _, message_id = task_id.rpartition(":")
        try:
            self.since = MessageId.parse(message_id)
        except ValueError as error:
            raise InvalidParameter(problems={"id": f"{task_id!r} is no id of a task"}) from error
        self.id = task_id
        """``<queue>/<partition>:<message id>``."""
        self.results_queue = results_queue
        self._returns = returns
        self.found: Message | None = None
        """The result as it is stored, once it was read."""
        self._message = MessageWatch(task_id, has_steps=has_steps, now=time.monotonic())
        self._is_removed = False

    def __repr__(self) -> str:
        return f"<task {self.id}>"

    def get(self, timeout: float | None = None) -> Any:
        """What the task returned, or the last step of its chain. Waits for it.

        While there is no result, it looks from time to time whether the message of the task is there: less and less often,
        until it looks every 20 seconds.

        :param timeout: seconds, rounded up to whole ones; None waits as long as it takes, 0 looks once.
        :raises TaskFailed: the task was given up.
        :raises TaskRemoved: the message is gone without a result: the task was cancelled, for instance. It is known some
            seconds later.
        :raises TimeoutError: there is no result yet.
        :raises ConfigurationError: the task stores no results.
        :raises InvalidParameter: ``timeout`` is no number of seconds.
        """
        self._check()
        if timeout is not None:
            check_seconds("timeout", timeout)
        until = inf if timeout is None else time.monotonic() + timeout
        while not self._has_ended(until - time.monotonic()):
            if time.monotonic() >= until:
                raise TimeoutError(f"no result of task {self.id} after {timeout:g} s")
        return self._value()

    @property
    def is_ready(self) -> bool:
        """Whether a ``get`` does not wait: there is a result, or there will be none. The server is asked, unless this is known.

        :raises ConfigurationError: the task stores no results.
        """
        self._check()
        return self._has_ended(0)

    def look_soon(self) -> None:
        """Look at the next opportunity whether the message is there: it was cancelled, for instance."""
        self._message.look_soon(time.monotonic())

    def _has_ended(self, seconds: float) -> bool:
        """Whether it is known how the task ended. For this long at most, results are read or waited for. With 0, all that are there are read."""
        if not self._knows():
            client = default_client()
            reader = _readers.reader(client, self)
            left = min(seconds, self._message.seconds_left(time.monotonic()), WAIT_SECONDS)
            self._read_on(reader, ceil(max(left, 0)), time.monotonic() + seconds if seconds > 0 else inf)
            if not self._knows() and self._message.is_gone(client, time.monotonic()):
                self._read_on(reader, 0, inf)  # a result may have been stored before the message went
                self._is_removed = self.found is None
        return self._knows()

    def _read_on(self, reader: _Reader, seconds: int, until: float) -> None:
        """:param until: by the monotonic clock; what is there then is left to the next call."""
        while reader.read(seconds) and not self._knows() and time.monotonic() < until:
            seconds = 0

    def _knows(self) -> bool:
        return self._is_removed or self.found is not None

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __getattr__(self, name: str) -> Any:
            """:raises AttributeError: with the word for it here, if other libraries for tasks have this attribute."""
            here = f": here it is {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
            raise AttributeError(f"the result of a task has no attribute {name!r}{here}")

    def _check(self) -> None:
        if self.results_queue is None:
            raise ConfigurationError(f"task {self.id} stores no result: declare it with @task(results=True)")

    def _value(self) -> Any:
        found = self.found
        if found is None:
            queue = self.id.rpartition("/")[0]
            raise TaskRemoved(
                f"task {self.id} has no result, and its message is no longer in queue {queue}: it was cancelled, the queue "
                "was purged or deleted, or its time to live ended"
            )
        if header(found, STATUS) == "done":
            return self._returns.decode(found.body)
        try:
            reason = msgspec.json.decode(found.body)["reason"]
        except (*NO_JSON, KeyError, TypeError):
            reason = found.body.decode("utf-8", "replace")
        raise TaskFailed(str(reason))


_ELSEWHERE = {
    "ready": "is_ready",
    "is_finished": "is_ready",
    "status": "is_ready, and get() says how it ended",
    "state": "is_ready, and get() says how it ended",
    "successful": "get(), which raises TaskFailed",
    "failed": "get(), which raises TaskFailed",
    "result": "get()",
    "return_value": "get()",
    "get_result": "get()",
    "wait": "get(timeout=...)",
    "revoke": "cancel(...) of the task",
    "abort": "cancel(...) of the task",
}
"""Attributes of results in other libraries."""


class _Reader:
    """Reads a queue for results from a moment on, for all results that this thread waits for."""

    def __init__(self, client: Client, queue: str, waiting: Iterable[TaskResult]) -> None:
        self.client, self.queue = client, queue
        self.waiting = WeakValueDictionary({one.id: one for one in waiting})
        """By id, those that are not found. A result that nobody has any more is not waited for."""
        self._since = min(one.since for one in self.waiting.values())
        self._cursor: str | None = None
        self._upto = 0
        """The watermark of the last page, in ticks."""

    def has_passed(self, result: TaskResult) -> bool:
        """Whether this result may be among those that were read."""
        return result.since < self._since or result.since.ticks <= self._upto

    def read(self, seconds: int) -> bool:
        """Read what is there, or wait for some.

        :returns: whether there is more.
        """
        since = self._since if self._cursor is None else None
        limit = MOST_OF_A_WAIT if seconds else MOST_A_READ
        try:
            page = self.client.read(self.queue, since=since, cursor=self._cursor, limit=limit, wait_seconds=seconds)
        except QueueNotFound:
            time.sleep(min(seconds, LOOK_SECONDS))
            return False
        except CursorLost:  # the queue was made anew
            self._cursor = None
            return True
        for message in page.messages:
            result = self.waiting.pop(header(message, RESULT_OF) or "", None)
            if result is not None:
                result.found = message
        self._cursor, self._upto = page.cursor, parse_timestamp(page.watermark)
        return page.more


class _Readers(threading.local):
    """The readers of this thread, by queue."""

    def __init__(self) -> None:
        self.by_queue: dict[str, _Reader] = {}
        self.behind: WeakKeyDictionary[TaskResult, _Reader] = WeakKeyDictionary()
        """Of results that are looked for by id, where the reader of the queue is farther already."""

    def reader(self, client: Client, result: TaskResult) -> _Reader:
        """The reader that finds a result: one that has not passed it yet.

        A look by id takes nothing from those that this thread waits for: it neither sets their reader back nor takes the
        place of one of them.
        """
        queue = result.results_queue or ""
        found = self.by_queue.get(queue)
        if found is not None and found.client is client and found.waiting.get(result.id) is result:
            return found
        own = self.behind.get(result)
        if own is not None and own.client is client:
            return own
        if found is None or found.client is not client or not found.waiting:
            return self.watch(client, result)
        if result.id in found.waiting or found.has_passed(result):
            own = self.behind[result] = _Reader(client, queue, [result])
            return own
        return self.watch(client, result)

    def watch(self, client: Client, result: TaskResult) -> _Reader:
        """Find this result while others of its queue are read."""
        queue = result.results_queue or ""
        found = self.by_queue.get(queue)
        others = [*found.waiting.values()] if found is not None and found.client is client else []
        if found is None or not others or found.has_passed(result):
            found = self.by_queue[queue] = _Reader(client, queue, [*others, result])
        found.waiting[result.id] = result
        return found


_readers = _Readers()


def watch(result: TaskResult) -> TaskResult:
    """Remember a result that this thread has sent the task for, until nobody has it any more."""
    if result.results_queue is not None:
        _readers.watch(default_client(), result)
    return result
