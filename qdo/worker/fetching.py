"""Reading ahead: a few threads keep the lanes of a worker full, and ask again when something comes.

One question is for all lanes of a queue that want messages: where each has got to stands in one
cursor. The server holds the question back until there is something to tell; so an idle queue costs one
request every :data:`WAIT_SECONDS`, and a message that comes is here at once.
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
from collections.abc import Callable, Mapping

from qdo.client import Client
from qdo.groups.coordination import last_id_of
from qdo.worker.buffers import Prefetched, cursor_of
from queuey.clock import Clock
from queuey.errors import CursorLost, QueueNotFound, QueueyError
from queuey.ids import ZERO_ID, MessageId, parse_timestamp

__all__ = ["Fetcher"]

log = logging.getLogger(__name__)

WAIT_SECONDS = 2
"""How long the server may hold a question back: lanes that are new or have room again wait no longer than this."""
MOST_THREADS = 8
LIMIT = 1000
"""Messages of one partition in a page."""
LIMIT_WAITING = 100
"""In an answer that was held back; more is asked for at once."""
FULL_SECONDS = 0.01
"""Until lanes without room are looked at again."""
HELD_SECONDS = 5.0
"""Between two looks whether a queue of which all lanes stand still was made anew."""
FIRST_TROUBLE_SECONDS, MOST_TROUBLE_SECONDS = 0.4, 30.0
"""Until a queue that cannot be read is asked for again; pauses double."""


class Fetcher:
    """The threads that fetch for one worker."""

    def __init__(
        self, make_client: Callable[[], Client], lanes: Prefetched, clock: Clock, *, from_end: bool = False
    ) -> None:
        """:param make_client: called once in each thread.
        :param from_end: some lanes without an offset begin with what comes, and not with what is there.
        """
        self._make_client = make_client
        self._lanes = lanes
        self._clock = clock
        self._from_end = from_end
        self._lock = threading.Condition()
        self._due: list[tuple[float, str]] = []
        self._known: set[str] = set()
        self._incarnations: dict[str, tuple[str, MessageId]] = {}
        self._trouble: dict[str, tuple[float, str]] = {}
        """The latest pause of queues that cannot be read, and why."""
        self._threads: list[threading.Thread] = []
        self._over = False
        self.requests = 0
        """Sent so far, roughly: for the figures."""

    def follow(self, queues: list[str], incarnations: Mapping[str, str] | None = None) -> None:
        """Fetch for these queues; those that have no lane any more are dropped by themselves.

        :param incarnations: of those whose lanes know where they begin: the server need not be asked for it.
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
        """Ask no more; a question under way is not waited for."""
        with self._lock:
            self._over = True
            self._lock.notify_all()

    def _run(self) -> None:
        with self._make_client() as client:
            while (queue := self._next()) is not None:
                pause = self._look(client, queue)
                with self._lock:
                    if pause is None and queue not in self._lanes.queues():  # it may have got some meanwhile
                        self._trouble.pop(queue, None)
                        self._known.discard(queue)
                        self._incarnations.pop(queue, None)
                    else:
                        heapq.heappush(self._due, (self._clock.elapsed() + (pause or 0.0), queue))

    def _next(self) -> str | None:
        """The queue to ask for next, when its time has come; None at the end."""
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
        """Ask once.

        :returns: seconds until the next question; None if the queue has no lanes any more.
        """
        pause: float | None
        try:
            pause = self._ask(client, queue)
        except QueueNotFound:
            self._incarnations.pop(queue, None)
            self._lanes.gone(queue)
            return WAIT_SECONDS if queue in self._lanes.queues() else None
        except CursorLost:
            self._incarnations.pop(queue, None)
            return 0.0
        except QueueyError as error:
            pause = self._trouble_pause(queue, f"{error.code}: {error}")
            log.warning("queue %s cannot be read, again in %.1f s: %s", queue, pause, error)
            return pause
        except Exception:
            log.exception("queue %s cannot be read: what answered is not what Queuey says", queue)
            # A thread that ended here would never ask for the queue again.
            return self._trouble_pause(queue, "what answered is not what Queuey says")
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
        wanting, everyone = self._lanes.hungry(queue)
        if not wanting:
            if queue not in self._lanes.queues():
                return None
            if not self._lanes.all_held(queue):
                return FULL_SECONDS
            self._learn(client, queue)  # what holds them may have gone with a queue of the same name
            self._lanes.start_over(queue, *self._incarnations[queue])
            return HELD_SECONDS
        if queue not in self._incarnations or any(not lane.incarnation for lane in wanting):
            self._learn(client, queue)
        incarnation, start = self._incarnations[queue]
        self._lanes.start_over(queue, incarnation, start)
        lanes = {lane.claim.partition.number: lane for lane in wanting if lane.incarnation == incarnation}
        if not lanes:
            return FULL_SECONDS
        alone = len(self._known) <= MOST_THREADS
        wait = WAIT_SECONDS if everyone and alone and all(lane.at_end for lane in wanting) else 0
        self.requests += 1
        limit, asked_at = LIMIT_WAITING if wait else LIMIT, self._clock.elapsed()
        page = client.read(queue, cursor=cursor_of(lanes, incarnation), limit=limit, wait_seconds=wait)
        self._lanes.fill(lanes, page.messages, more=page.more, upto=parse_timestamp(page.watermark))
        if page.messages or (everyone and alone and not wait):
            return 0.0  # the next question waits at the server
        held_back = self._clock.elapsed() - asked_at > WAIT_SECONDS / 2
        if wait:
            return 0.0 if held_back else WAIT_SECONDS  # the server has as many waiting readers as it may have
        return FULL_SECONDS if alone else WAIT_SECONDS

    def _learn(self, client: Client, queue: str) -> None:
        """Which incarnation of the queue there is, and where its end is."""
        self.requests += 1
        page = client.read(queue, limit=1, with_bodies=False)
        start = last_id_of(parse_timestamp(page.watermark)) if self._from_end else ZERO_ID
        self._incarnations[queue] = (page.incarnation, start)
