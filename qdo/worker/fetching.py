"""Reading ahead: a few threads keep the buffers of a worker full.

They ask again when something comes.

One request reads all partitions of a queue that have room: its cursor says how far each of them is. The server holds
the request back until there is something to answer. So an idle queue costs one request every :data:`WAIT_SECONDS`, and
a new message arrives at once.
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
from collections.abc import Callable, Mapping

from qdo.client import Client
from qdo.client.wire import cursor_at
from qdo.groups.coordination import last_id_of
from qdo.worker.buffers import PartitionBuffer, Prefetched
from queuey.clock import Clock
from queuey.errors import CursorLost, QueueNotFound, QueueyError
from queuey.ids import ZERO_ID, MessageId, parse_timestamp

__all__ = ["Fetcher", "cursor_of"]

log = logging.getLogger(__name__)

WAIT_SECONDS = 2
"""The server may hold a request back for this long. Buffers that are new, or have room again, wait no longer."""
MOST_THREADS = 8
LIMIT_WAITING = 100
"""Messages of one partition in an answer that was held back. The next request asks for more at once."""
FULL_SECONDS = 0.01
"""Until buffers without room are looked at again."""
HELD_SECONDS = 5.0
"""Between two looks whether a queue was made anew in which nothing can go on."""
FIRST_TROUBLE_SECONDS, MOST_TROUBLE_SECONDS = 0.4, 30.0
"""The first and the longest pause before a queue that cannot be read is read again. Pauses double."""


class Fetcher:
    """The threads that fetch for one worker."""

    def __init__(
        self, make_client: Callable[[], Client], prefetched: Prefetched, clock: Clock, *, from_end: bool = False
    ) -> None:
        """:param make_client: called once in each thread.
        :param from_end: some buffers without an offset begin with messages to come.
        """
        self._make_client = make_client
        self._prefetched = prefetched
        self._clock = clock
        self._from_end = from_end
        self._lock = threading.Condition()
        self._due: list[tuple[float, str]] = []
        self._known: set[str] = set()
        self._incarnations: dict[str, tuple[str, MessageId]] = {}
        self._trouble: dict[str, tuple[float, str]] = {}
        """Queues that cannot be read: the latest pause, and why."""
        self._threads: list[threading.Thread] = []
        self._over = False
        self.requests = 0
        """Sent so far. Threads count without a lock, so it may be a few too low: it is for people to see."""

    def follow(self, queues: list[str], incarnations: Mapping[str, str] | None = None) -> None:
        """Fetch for these queues, each for as long as it has a buffer.

        :param incarnations: of queues whose buffers know where they begin. The server is not asked for it.
        """
        with self._lock:
            for queue, incarnation in (incarnations or {}).items():
                self._incarnations.setdefault(queue, (incarnation, ZERO_ID))
            for queue in queues:
                if queue not in self._known:
                    self._known.add(queue)
                    heapq.heappush(self._due, (self._clock.elapsed(), queue))
            while len(self._threads) < min(len(self._known), MOST_THREADS):
                thread = threading.Thread(target=self._run, name=f"fetch-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._lock.notify_all()

    def stop(self) -> None:
        """Send no more requests. It does not wait for one under way."""
        with self._lock:
            self._over = True
            self._lock.notify_all()

    def _run(self) -> None:
        with self._make_client() as client:
            while (queue := self._next()) is not None:
                pause = self._look(client, queue)
                with self._lock:
                    if pause is None and not self._prefetched.of_queue(queue):  # it may have got a buffer meanwhile
                        self._trouble.pop(queue, None)
                        self._known.discard(queue)
                        self._incarnations.pop(queue, None)
                    else:
                        heapq.heappush(self._due, (self._clock.elapsed() + (pause or 0.0), queue))

    def _next(self) -> str | None:
        """The queue to read next, once its time has come; None at the end."""
        with self._lock:
            while not self._over:
                rest = 1.0
                if self._due:
                    rest = self._due[0][0] - self._clock.elapsed()
                    if rest <= 0:
                        return heapq.heappop(self._due)[1]
                self._lock.wait(rest)
            return None

    def _look(self, client: Client, queue: str) -> float | None:
        """Read a queue once, and survive whatever goes wrong.

        :returns: seconds until the next request; None if the queue has no buffers any more.
        """
        pause: float | None
        try:
            pause = self._ask(client, queue)
        except QueueNotFound:
            self._incarnations.pop(queue, None)
            self._prefetched.gone(queue)
            return WAIT_SECONDS if self._prefetched.of_queue(queue) else None
        except CursorLost:
            self._incarnations.pop(queue, None)
            return 0.0
        except QueueyError as error:
            pause = self._trouble_pause(queue, f"{error.code}: {error}")
            log.warning("queue %s cannot be read, again in %.1f s: %s", queue, pause, error)
            return pause
        except Exception:
            log.exception("queue %s cannot be read: the answer is none that Queuey gives", queue)
            # If this thread ended here, nobody would read the queue again.
            return self._trouble_pause(queue, "the answer is none that Queuey gives")
        self._trouble.pop(queue, None)
        return pause

    def troubles(self) -> dict[str, str]:
        """Queues that cannot be read at the moment, and why."""
        return {queue: f"it cannot be read: {why}"[:500] for queue, (_, why) in list(self._trouble.items())}

    def _trouble_pause(self, queue: str, why: str) -> float:
        before, _ = self._trouble.get(queue, (FIRST_TROUBLE_SECONDS / 2, ""))
        pause = min(before * 2, MOST_TROUBLE_SECONDS)
        self._trouble[queue] = pause, why
        return pause * random.uniform(0.5, 1)  # noqa: S311 - no secret

    def _ask(self, client: Client, queue: str) -> float | None:
        wanting, everyone = self._prefetched.wanting(queue)
        if not wanting:
            return self._without_room(client, queue)
        if queue not in self._incarnations or any(not buffer.incarnation for buffer in wanting):
            self._learn(client, queue)
        incarnation, start = self._incarnations[queue]
        self._prefetched.start_over(queue, incarnation, start)
        buffers = {each.claim.partition.number: each for each in wanting if each.incarnation == incarnation}
        if not buffers:
            return FULL_SECONDS
        alone = len(self._known) <= MOST_THREADS
        wait = WAIT_SECONDS if everyone and alone and all(buffer.at_end for buffer in wanting) else 0
        self.requests += 1
        limit, asked_at = self._prefetched.portion, self._clock.elapsed()
        limit = min(limit, LIMIT_WAITING) if wait else limit
        page = client.read(queue, cursor=cursor_of(buffers, incarnation), limit=limit, wait_seconds=wait)
        self._prefetched.fill(buffers, page.messages, more=page.more, upto=parse_timestamp(page.watermark))
        if page.messages or (everyone and alone and not wait):
            return 0.0  # the next request waits at the server
        if wait:
            # A server that has as many waiting readers as it may have answers at once: then wait here.
            held_back = self._clock.elapsed() - asked_at > WAIT_SECONDS / 2
            return 0.0 if held_back else WAIT_SECONDS
        return FULL_SECONDS if alone else WAIT_SECONDS

    def _without_room(self, client: Client, queue: str) -> float | None:
        """No buffer of the queue wants messages.

        All are full, all are held, or there are none.
        """
        buffers = self._prefetched.of_queue(queue)
        if not buffers:
            return None
        if not all(buffer.held for buffer in buffers):
            return FULL_SECONDS
        # Messages that hold up a partition are gone if the queue was made anew: then the partition goes on.
        self._learn(client, queue)
        self._prefetched.start_over(queue, *self._incarnations[queue])
        return HELD_SECONDS

    def _learn(self, client: Client, queue: str) -> None:
        """Ask for the incarnation of the queue and for its end."""
        self.requests += 1
        page = client.read(queue, limit=1, with_bodies=False)
        start = last_id_of(parse_timestamp(page.watermark)) if self._from_end else ZERO_ID
        self._incarnations[queue] = (page.incarnation, start)


def cursor_of(buffers: Mapping[int, PartitionBuffer], incarnation: str) -> str:
    """The cursor that reads these buffers of one queue.

    It reads each behind the last message that was fetched for it.
    """
    return cursor_at(incarnation, {number: buffer.fetched or ZERO_ID for number, buffer in buffers.items()})
