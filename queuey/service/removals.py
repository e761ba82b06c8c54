"""Goes on with removals of queues that could not be finished at once, here or on a server that has ended."""

from __future__ import annotations

import logging

from queuey.background import BackgroundWork
from queuey.errors import QueueyError
from queuey.service.queues import Queues

__all__ = ["Removals"]

log = logging.getLogger(__name__)

REST_SECONDS, SHARED_REST_SECONDS = 30.0, 300.0
"""Between two looks: in a store of one server, and in one of several, any of which may end in the middle of a removal."""


class Removals(BackgroundWork):
    """Tries again until nothing is left of any removed queue."""

    def __init__(self, queues: Queues) -> None:
        rest_seconds = REST_SECONDS if queues.hears_of_changes else SHARED_REST_SECONDS
        super().__init__("removals", rest_seconds, rests_first=True)
        self._queues = queues
        queues.is_left = self.wake

    async def turn(self) -> None:
        try:
            is_left = await self._queues.finish_removals()
        except QueueyError as error:
            log.info("what is left of removed queues is looked for later: %s", error)
            is_left = True
        if is_left or not self._queues.hears_of_changes:
            self.wake()
