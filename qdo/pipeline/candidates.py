"""Which queues a streaming read looks at: of thousands that fit a pattern only those in which something came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from qdo.pipeline.task_reader import fitting, subscribed

if TYPE_CHECKING:
    from qdo.client import Client
    from qdo.pipeline.options import Subscription


class Candidates:
    """The queues in which there may be something to read, from one look to the next.

    Of a pattern they are those that the server has told of since the last look, and those that were left with messages. Where it
    cannot tell they are all: at the first look, after its restart, after a minute without a look, and over Cassandra.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._cursor: str | None = None
        self._left: frozenset[str] = frozenset()

    def now(self, client: Client) -> Sequence[str]:
        """Their names; those of a list are all of them. Some may not be there."""
        if self._subscription.pattern is None:
            return self._subscription.names
        told = self._told(client)  # before the list: what comes meanwhile is told the next time
        return subscribed(client, self._subscription) if told is None else sorted(told | self._left)

    def left(self, names: Iterable[str]) -> None:
        """These have messages, whether they will be read now or later."""
        self._left = frozenset(names)

    def _told(self, client: Client) -> frozenset[str] | None:
        names: set[str] = set()
        complete = more = True
        while more:
            news = client.arrivals(self._cursor)
            names.update(queue.name for queue in news.queues)
            self._cursor, more, complete = news.cursor, news.more, complete and news.complete
        return frozenset(fitting(names, self._subscription)) if complete else None
