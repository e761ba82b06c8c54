"""Which queues a streaming read looks at.

Of thousands that match a pattern it looks only at those that got messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from qdo.pipeline.task_reader import doing, fitting, subscribed

if TYPE_CHECKING:
    from qdo.client import Client
    from qdo.pipeline.options import Subscription


class Candidates:
    """The queues that may have something to read, from one look to the next.

    For a pattern these are the queues that the server has named since the last look, and those in which messages were left.
    Where the server cannot tell, these are all queues: at the first look, after its restart, after a minute without a look,
    and over Cassandra.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._cursor: str | None = None
        self._left: frozenset[str] = frozenset()

    def now(self, client: Client) -> Sequence[str]:
        """Their names. A list always gives all of its names. Some queues may not exist."""
        if self._subscription.pattern is None:
            return self._subscription.names
        told = self._told(client)  # before the list: what arrives meanwhile comes at the next look
        return subscribed(client, self._subscription) if told is None else sorted(told | self._left)

    def left(self, names: Iterable[str]) -> None:
        """These queues have messages, to be read now or later."""
        self._left = frozenset(names)

    def _told(self, client: Client) -> frozenset[str] | None:
        names: set[str] = set()
        complete = more = True
        while more:
            with doing(f"a pattern needs the list of queues of {client.application}"):
                news = client.arrivals(self._cursor)
            names.update(queue.name for queue in news.queues)
            self._cursor, more, complete = news.cursor, news.more, complete and news.complete
        return frozenset(fitting(names, self._subscription)) if complete else None
