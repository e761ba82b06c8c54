"""Receives messages of the queues that a channel consumes, as long as it has room for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from qdo.adapters.clients import make_job_queue
from qdo.adapters.kombu.options import TransportOptions
from qdo.client import Client, Delivery
from qdo.client.refusals import may_pass
from queuey.errors import QueueNotFound, QueueyError

__all__ = ["LeaseReceiver"]

log = logging.getLogger(__name__)

WAIT_SECONDS = 2.0
"""The server holds an answer back for this long. A channel that closes has to wait for it."""
MOST_MESSAGES = 100
"""In one answer."""
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.5, 30.0
"""Before a request that failed is sent again. Pauses double."""


class LeaseReceiver:
    """One thread, which has one request under way."""

    def __init__(
        self,
        client: Client,
        options: TransportOptions,
        room: Callable[[], int],
        took: Callable[[Delivery], None],
        failed: Callable[[QueueyError], None],
    ) -> None:
        """:param room: how many more messages the channel may have.
        :param took: gets each message, whose lease is extended from now on.
        :param failed: gets an error that waiting does not mend. Nothing is received after it.
        """
        self._client = client
        self._options = options
        self._room, self._took, self._failed = room, took, failed
        self._changed = threading.Condition()
        self._queues: list[str] = []
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def consume(self, queues: list[str]) -> None:
        """Receive from these queues from now on."""
        with self._changed:
            self._queues = queues
            if queues and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="receive", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def look_again(self) -> None:
        """There may be room now."""
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """Receive nothing any more. Leases are still extended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(WAIT_SECONDS + 10)

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while wanted := self._next():
            queues, most = wanted
            try:
                self._receive(queues, most)
                pause = FIRST_PAUSE_SECONDS
            except QueueNotFound as error:
                self._make(queues, error)
            except QueueyError as error:
                if not may_pass(error):
                    self._failed(error)
                    return
                log.warning("nothing can be received at the moment: %s", error)
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed, pause)
                pause = min(pause * 2, MOST_PAUSE_SECONDS)
            except Exception:
                log.exception("the answer is none that Queuey gives")
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed, pause)

    def _next(self) -> tuple[list[str], int] | None:
        with self._changed:
            while not self._is_closed:
                room = self._room()
                if self._queues and room > 0:
                    return self._queues, min(room, MOST_MESSAGES)
                self._changed.wait()
            return None

    def _receive(self, queues: list[str], most: int) -> None:
        messages = self._client.receive(
            queues[0] if len(queues) == 1 else queues,
            self._options.group,
            most,
            wait=WAIT_SECONDS,
            visibility=self._options.visibility,
            order=None if len(queues) == 1 else self._options.order,
        )
        for message in messages:
            message.keep()
            self._took(message)

    def _make(self, queues: list[str], error: QueueNotFound) -> None:
        """A queue that is consumed was deleted: make it again."""
        log.warning("a queue that is consumed is made again: %s", error)
        try:
            for name in queues:
                make_job_queue(self._client, name)
        except QueueyError as refused:
            self._failed(refused)
