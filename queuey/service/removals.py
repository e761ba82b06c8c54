"""Goes on with removals of queues that could not be finished at once."""

from __future__ import annotations

from queuey.background import BackgroundWork
from queuey.service.queues import Queues

__all__ = ["Removals"]

_REST_SECONDS = 30.0


class Removals(BackgroundWork):
    """Tries again until nothing is left of any removed queue."""

    def __init__(self, queues: Queues) -> None:
        super().__init__("removals", _REST_SECONDS)
        self._queues = queues
        queues.is_left = self.wake

    async def turn(self) -> None:
        if await self._queues.finish_removals():
            self.wake()
