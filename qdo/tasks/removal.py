"""Whether the message of a task is still there.

Only a worker stores the result of a task. So once the message is gone, and no result is there, there will be none: somebody
cancelled the task, purged or deleted its queue, or its time to live ended.
"""

from __future__ import annotations

from qdo.client import Client
from qdo.client.values import Message
from qdo.tasks.wire import THEN, header
from queuey.errors import QueueNotFound

__all__ = ["GONE_SECONDS", "MessageWatch"]

LOOK_SECONDS = (2.0, 20.0)
"""Pauses before the first look, and at most. Each is twice as long as the one before."""
GONE_SECONDS = 5.0
"""For which a message has to be gone until it counts. On Cassandra its result is readable after the read delay, which may be
later than the message leaves a queue with ``retention=acknowledged``."""


class MessageWatch:
    """Looks from time to time whether the message of a task is there. Times are those of ``time.monotonic``."""

    def __init__(self, task_id: str, *, has_steps: bool | None, now: float) -> None:
        """:param has_steps: whether the task begins a chain; None if that is not known."""
        self._queue, _, self._place = task_id.rpartition("/")
        self._has_steps = has_steps
        self._pause, self._most = LOOK_SECONDS
        self._look_at = now + self._pause
        self._gone_since: float | None = None

    def seconds_left(self, now: float) -> float:
        """Until :meth:`is_gone` has something to do."""
        return max(0.0, self._look_at - now)

    def look_soon(self, now: float) -> None:
        """Look at the next opportunity: there is a reason why the message may be gone."""
        self._look_at = min(self._look_at, now)

    def is_gone(self, client: Client, now: float) -> bool:
        """Whether the message has been gone long enough. The server is asked if it is time to."""
        if self._look_at > now:
            return False
        if self._gone_since is not None and now - self._gone_since >= GONE_SECONDS:
            return True
        if not self._is_missing(client):
            self._gone_since, self._look_at = None, now + self._pause
            self._pause = min(2 * self._pause, self._most)
        else:
            self._gone_since, self._look_at = now, now + GONE_SECONDS
        return False

    def _is_missing(self, client: Client) -> bool:
        """Whether the message is not there, and has not made place for the next step of its chain."""
        try:
            found = client.get(self._queue, self._place)
            if found:
                self._has_steps = _has_steps(found[0])
                return False
            return self._has_steps is False or client.queue_info(self._queue).settings.retention != "acknowledged"
        except QueueNotFound:
            return True


def _has_steps(message: Message) -> bool:
    return header(message, THEN) is not None
