"""Sends what stands in a table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import groupby

from qdo.adapters.outbox.rows import OutboxRow, OutboxTable
from qdo.client import Client
from qdo.groups.waking import Waker
from queuey.errors import BadRequest, Forbidden, QueueNotFound, QueueyError

__all__ = ["OutboxRelay"]

log = logging.getLogger(__name__)

MOST_ROWS = 100
"""In one batch. The server takes more, but not of any size."""
POLL_SECONDS = 1.0
"""Between two looks at a table that is empty."""
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.5, 30.0
"""Before rows that could not be sent are tried again. Pauses double."""


class OutboxRelay:
    """Appends rows to their queues, and deletes them after that.

    Several relays of one table do no harm: the idempotency keys keep their messages one. A queue that does not exist is made. A
    row that the server refuses, such as one that is too large, stays in the table with the reason.
    """

    def __init__(self, table: OutboxTable, client: Client) -> None:
        """:param client: of one thread, the one that runs the relay."""
        self._table, self._client = table, client
        self._stopped, self._waker = False, Waker()

    def send_waiting(self) -> int:
        """Send what waits now.

        :returns: rows that are stored on the server and deleted here.
        :raises QueueyError: the server is away, or refuses the key in all queues of the rows. What is not deleted yet is
            sent the next time.
        """
        return self._send_waiting(lambda: False)

    def _send_waiting(self, is_over: Callable[[], bool]) -> int:
        """:param is_over: asked before each batch."""
        sent, after = 0, 0
        forbidden: dict[str, Forbidden] = {}
        while not is_over() and (rows := self._table.waiting(MOST_ROWS, after)):
            after = rows[-1].id
            for queue, some in groupby(rows, lambda row: row.queue):
                if queue in forbidden:
                    continue
                try:
                    sent += self._send(queue, [*some])
                except Forbidden as error:  # in this queue, perhaps: those of other queues go on
                    log.warning("rows of the outbox for queue %s wait: %s", queue, error)
                    forbidden[queue] = error
        if forbidden and not sent:
            raise next(iter(forbidden.values()))
        return sent

    def run(self, poll_seconds: float = POLL_SECONDS) -> None:
        """Send whatever comes, until :meth:`stop`."""
        pause = FIRST_PAUSE_SECONDS
        while not self._stopped:
            try:
                self._send_waiting(lambda: self._stopped)
            except Exception as error:  # the database may be away as well, and its errors are not ours
                log.warning("the outbox waits: %s", error, exc_info=not isinstance(error, QueueyError))
                self._waker.wait(pause)
                pause = min(pause * 2, MOST_PAUSE_SECONDS)
            else:
                pause = FIRST_PAUSE_SECONDS
                self._waker.wait(poll_seconds)

    def stop(self) -> None:
        """End :meth:`run`. Another thread, or a signal handler, may call this: it takes no lock."""
        self._stopped = True
        self._waker.wake()

    def _send(self, queue: str, rows: Sequence[OutboxRow]) -> int:
        try:
            self._append(queue, rows)
        except BadRequest as error:
            if len(rows) > 1:  # one of them is at fault
                return sum(self._send(queue, [row]) for row in rows)
            log.warning("row %d of the outbox is refused, and stays there: %s: %s", rows[0].id, error.code, error)
            self._table.refuse(rows[0].id, f"{error.code}: {error}")
            return 0
        self._table.delete([row.id for row in rows])
        return len(rows)

    def _append(self, queue: str, rows: Sequence[OutboxRow]) -> None:
        messages = [row.message() for row in rows]
        store: Callable[[], object] = lambda: self._client.append_batch(queue, messages)  # noqa: E731
        try:
            store()
        except QueueNotFound:
            self._client.create_queue(queue)
            store()
