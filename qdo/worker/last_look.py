"""Whether a worker that owns partitions has reached the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from qdo.client import Client
from qdo.client.wire import cursor_at
from qdo.worker.buffers import FetchedUpTo, Prefetched
from queuey.errors import QueueNotFound, QueueyError

__all__ = ["LastLook"]

log = logging.getLogger(__name__)


class LastLook:
    """Asks the server whether anything lies behind all that a worker has fetched and done.

    The last page of a partition may be older than what a job has sent there. And on Cassandra no page shows a message that is
    younger than the read delay.
    """

    def __init__(self, make_client: Callable[[], Client], prefetched: Prefetched, wake: Callable[[], None]) -> None:
        """:param wake: called in another thread, once nothing is found."""
        self._make_client, self._prefetched, self._wake = make_client, prefetched, wake
        self._nothing_behind: Mapping[str, FetchedUpTo] | None = None
        """Where the worker was when a look found nothing. While it is there, it has run no job since."""
        self._thread: threading.Thread | None = None

    def confirms_the_end(self) -> bool:
        """Whether nothing is left. It does not wait for the server: a thread looks, and a later call says what it found."""
        places = self._prefetched.places_at_end()
        if places is None:
            return False
        if not places or places == self._nothing_behind:
            return True
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look, args=(places,), name="last-look", daemon=True)
            self._thread.start()
        return False

    def _look(self, places: Mapping[str, FetchedUpTo]) -> None:
        try:
            with self._make_client() as client:
                if any(_has_more(client, queue, fetched) for queue, fetched in places.items()):
                    return
        except QueueyError as error:
            log.warning("nobody knows whether the queues are done: %s", error)
            return
        except Exception:
            log.exception("nobody knows whether the queues are done: the answer is none that Queuey gives")
            return
        self._nothing_behind = places
        self._wake()


def _has_more(client: Client, queue: str, fetched: FetchedUpTo) -> bool:
    """Whether a partition has a message behind what was fetched, scheduled ones aside.

    :raises QueueyError: nobody knows.
    """
    try:
        found = client.survey(queue, cursor=cursor_at(fetched.incarnation, fetched.places), count=1, unseen=True)
    except QueueNotFound:
        return False
    return any(one.messages or one.more for one in found.spans.values())
