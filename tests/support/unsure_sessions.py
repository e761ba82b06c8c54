"""Sessions of Cassandra whose answers get lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from queuey.errors import OutcomeUnknown
from queuey.future import Future, start
from queuey.storage.cassandra.session import CassandraSession, Change, Rows


class Unsure(CassandraSession):
    """Transactions of steps whose answers are lost: ``follows`` happens before anybody looks."""

    follows: Callable[[], object] | None = None
    carries_out = True

    def compare_and_set_together(self, changes: Sequence[Change]) -> Future[Rows]:
        if self.follows is None or not changes[-1][0].startswith("leases_"):
            return super().compare_and_set_together(changes)
        follows, self.follows = self.follows, None
        return start(self._lose(changes, follows))

    async def _lose(self, changes: Sequence[Change], follows: Callable[[], object]) -> Rows:
        if self.carries_out:
            await super().compare_and_set_together(changes)
        followed = Future[None]()

        def follow() -> None:
            try:
                follows()
            finally:
                followed.set_result(None)

        threading.Thread(target=follow).start()  # the driver's own thread must not wait for itself
        await followed
        raise OutcomeUnknown
