"""Receives messages of the queues that a channel consumes, as long as it has room for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from qdo.adapters.clients import make_job_queue
from qdo.adapters.kombu.bindings import Ask
from qdo.adapters.kombu.options import TransportOptions
from qdo.client import Client, Delivery
from qdo.client.refusals import may_pass
from queuey.errors import KeyReused, QueueNotFound, QueueyError
from queuey.ids import unique_bytes

__all__ = ["LeaseReceiver"]

log = logging.getLogger(__name__)

WAIT_SECONDS = 20.0
"""The server holds an answer back for this long, or until the channel closes or consumes other queues."""
STOP_SECONDS = 10.0
"""A channel that closes waits no longer than this for an answer that is under way."""
MOST_MESSAGES = 100
"""In one answer."""
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.5, 30.0
"""Before a request that failed is sent again. Pauses double."""


class _Attempt(NamedTuple):
    """One request for messages."""

    queues: list[str]
    most: int
    id: str

    @property
    def where(self) -> str | list[str]:
        return self.queues[0] if len(self.queues) == 1 else self.queues


class LeaseReceiver:
    """One thread, which has one request under way."""

    def __init__(
        self,
        client: Client,
        options: TransportOptions,
        ask: Ask,
        room: Callable[[], int],
        took: Callable[[Delivery], None],
        failed: Callable[[QueueyError], None],
    ) -> None:
        """:param client: for the thread alone.
        :param ask: asks with another client, and does not repeat it often.
        :param room: how many more messages the channel may have.
        :param took: gets each message, whose lease is extended from now on.
        :param failed: gets an error that waiting does not mend. Nothing is received after it.
        """
        self._client = client
        self._options = options
        self._ask = ask
        self._room, self._took, self._failed = room, took, failed
        self._changed = threading.Condition()
        self._queues: list[str] = []
        self._under_way: _Attempt | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def consume(self, queues: list[str]) -> None:
        """Receive from these queues from now on."""
        with self._changed:
            if queues == self._queues:
                return
            self._queues = queues
            if queues and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="receive", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            attempt = self._under_way
        self._withdraw(attempt)

    def look_again(self) -> None:
        """There may be room now."""
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        """Receive nothing any more. Leases are still extended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            attempt = self._under_way
        self._withdraw(attempt)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def _withdraw(self, attempt: _Attempt | None) -> None:
        """End a wait at the server. If the server has given messages already, they come with its answer."""
        if attempt is not None:
            with suppress(QueueyError):  # the server is away, for instance: then nothing waits there
                self._ask(lambda client: client.withdraw(attempt.where, self._options.group, attempt.id))

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while (attempt := self._next()) is not None:
            try:
                self._receive_or_make(attempt)
                pause = FIRST_PAUSE_SECONDS
            except KeyReused:
                """It was withdrawn."""
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

    def _next(self) -> _Attempt | None:
        """What to ask for, when there is room; None once closed."""
        with self._changed:
            self._under_way = None
            while not self._is_closed:
                room = self._room()
                if self._queues and room > 0:
                    self._under_way = _Attempt(self._queues, min(room, MOST_MESSAGES), unique_bytes().hex())
                    return self._under_way
                self._changed.wait()
            return None

    def _receive_or_make(self, attempt: _Attempt) -> None:
        """Receive. A queue that is consumed and was deleted is made again."""
        try:
            self._receive(attempt)
        except QueueNotFound as error:
            log.warning("a queue that is consumed is made again: %s", error)
            for name in attempt.queues:
                make_job_queue(self._client, name)

    def _receive(self, attempt: _Attempt) -> None:
        messages = self._client.receive(
            attempt.where,
            self._options.group,
            attempt.most,
            attempt=attempt.id,
            wait=WAIT_SECONDS,
            visibility=self._options.visibility,
            order=None if len(attempt.queues) == 1 else self._options.order,
        )
        for message in messages:
            message.keep()
            self._took(message)
