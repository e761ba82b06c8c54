"""Goes on with removals of queues that could not be finished at once, here or on a server that has ended."""

from __future__ import annotations

from queuey.background import BackgroundWork
from queuey.service.queues import Queues

__all__ = ["Removals"]

REST_SECONDS, SHARED_REST_SECONDS = 30.0, 300.0
"""Between two looks: in a store of one server, and in one of several, any of which may end in the middle of a removal."""


class Removals(BackgroundWork):
    """Tries again until nothing is left of any removed queue."""

    def __init__(self, queues: Queues) -> None:
        super().__init__("removals", REST_SECONDS if queues.hears_of_changes else SHARED_REST_SECONDS)
        self._queues = queues
        queues.is_left = self.wake

    async def turn(self) -> None:
        if await self._queues.finish_removals() or not self._queues.hears_of_changes:
            self.wake()
