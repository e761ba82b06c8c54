"""Ends leases from one thread, for frameworks that acknowledge messages in any thread."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from qdo.client import Client, Delivery, Reject, Release, Settle
from qdo.client.refusals import may_pass
from queuey.errors import OutcomeUnknown, QueueyError

__all__ = ["LeaseEnd", "Settler"]

log = logging.getLogger(__name__)

MOST_ENDS = 500
"""In one request."""
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.2, 5.0
"""Before a request that failed is sent again. Pauses double."""
FLUSH_SECONDS = 10.0
"""Until messages that cannot be settled are left to come again."""


class LeaseEnd(NamedTuple):
    """A delivery, and how its lease ends: acknowledged unless something else is said."""

    delivery: Delivery
    release: Release | None = None
    reject: Reject | None = None


class Settler:
    """Settles leases of one group. Whatever ended since the last request goes with the next one.

    The leases are extended until the server has settled them, as long as their client is open.
    """

    def __init__(self, make_client: Callable[[], Client], group: str) -> None:
        """:param make_client: called once, in the thread that settles."""
        self._make_client = make_client
        self._group = group
        self._ended: deque[LeaseEnd] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._under_way = 0
        self._closed = False
        self._gives_up_at = float("inf")

    def acknowledge(self, delivery: Delivery) -> None:
        self._add(LeaseEnd(delivery))

    def release(self, delivery: Delivery, delay: float | None = None, *, count: bool = True) -> None:
        """:param delay, count: as in :class:`Release`."""
        self._add(LeaseEnd(delivery, release=Release(delivery, delay, count=count)))

    def reject(self, delivery: Delivery, reason: str, traceback: str = "") -> None:
        """:param reason, traceback: as in :class:`Reject`."""
        self._add(LeaseEnd(delivery, reject=Reject(delivery, reason, traceback)))

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until all that ended is settled.

        :returns: False if that takes longer than this.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not (self._ended or self._under_way), seconds)

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Wait until all that ended is settled, but no longer than this. What is left comes again when its lease ends."""
        with self._changed:
            self._closed = True
            self._gives_up_at = time.monotonic() + seconds
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _add(self, end: LeaseEnd) -> None:
        with self._changed:
            self._ended.append(end)
            if self._thread is None or not self._thread.is_alive():  # a process that was forked has none
                self._thread = threading.Thread(target=self._run, name="settle", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        with self._made() as client:
            while ends := self._next():
                try:
                    self._settle(client, ends)
                except Exception:
                    log.exception("%d leases were not settled: their messages come again", len(ends))
                    _let_go(ends)

    def _made(self) -> Client:
        """A client, however often it has to be tried: without this thread leases would neither end nor run out.

        :raises Exception: there is no more time.
        """
        while True:
            try:
                return self._make_client()
            except Exception:
                log.exception("leases are not settled: no client can be made")
                if not self._rest(MOST_PAUSE_SECONDS):
                    raise

    def _next(self) -> list[LeaseEnd]:
        """What has ended; nothing once closed."""
        with self._changed:
            self._under_way = 0
            self._changed.notify_all()
            while not self._ended and not self._closed:
                self._changed.wait()
            if time.monotonic() >= self._gives_up_at:
                return []
            self._under_way = min(len(self._ended), MOST_ENDS)
            return [self._ended.popleft() for _ in range(self._under_way)]

    def _settle(self, client: Client, ends: Sequence[LeaseEnd]) -> None:
        what = Settle(
            acknowledge=[end.delivery for end in ends if end.release is None and end.reject is None],
            release=[end.release for end in ends if end.release is not None],
            reject=[end.reject for end in ends if end.reject is not None],
        )
        queues = [*dict.fromkeys(end.delivery.queue for end in ends)]
        pause, unknown = FIRST_PAUSE_SECONDS, False
        while True:
            try:
                done = client.settle(queues[0] if len(queues) == 1 else queues, self._group, what)
            except QueueyError as error:
                unknown = unknown or isinstance(error, OutcomeUnknown)
                if may_pass(error) and self._rest(pause):
                    log.warning("%d leases are not settled yet: %s", len(ends), error)
                    pause = min(pause * 2, MOST_PAUSE_SECONDS)
                elif len(ends) > 1 and not may_pass(error):
                    for end in ends:
                        self._settle(client, [end])
                    return
                else:
                    log.warning("%d messages come again, since their leases cannot be settled: %s", len(ends), error)
                    _let_go(ends)
                    return
            else:
                if done.stale and not unknown:  # after a lost answer it may have been this settler
                    log.warning("%d leases had ended before: their messages come, or came, again", len(done.stale))
                return

    def _rest(self, seconds: float) -> bool:
        """Wait; False if there is no more time."""
        with self._changed:
            left = self._gives_up_at - time.monotonic()
            if left <= 0:
                return False
            self._changed.wait(min(seconds, left))
            return True


def _let_go(ends: Sequence[LeaseEnd]) -> None:
    """Extend these leases no more: without an end they would keep their messages from everybody."""
    for end in ends:
        end.delivery.let_go()
