"""Signs of life, by which people see which servers share a store."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence

from queuey._version import __version__
from queuey.background import BackgroundWork
from queuey.errors import QueueyError
from queuey.storage import Peers, ServerBeat

__all__ = ["Heartbeat"]

log = logging.getLogger(__name__)

BEAT_SECONDS = 10.0
"""Between two signs."""


class Heartbeat(BackgroundWork):
    """The signs of one server. Thread-safe."""

    def __init__(self, peers: Peers | None, now: Callable[[], float]) -> None:
        """:param peers: None for a store of one server: it gives no signs.
        :param now: seconds since 1970.
        """
        super().__init__("heartbeat", BEAT_SECONDS)
        self._peers, self._now = peers, now
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self._began = now()

    def start(self) -> None:
        """Give signs in a thread, if there can be other servers."""
        if self._peers is not None:
            super().start()
            self.wake()

    async def turn(self) -> None:
        """Give a sign. Another one follows."""
        self.wake()
        if self._peers is not None:
            try:
                await self._peers.beat(ServerBeat(self.name, __version__, self._began, self._now()))
            except QueueyError as error:
                log.info("this server could give no sign of life: %s", error)

    async def servers(self) -> Sequence[ServerBeat] | None:
        """The servers that gave a sign within the last minute; None if there can be one only, or nobody can say now."""
        try:
            return None if self._peers is None else await self._peers.servers()
        except QueueyError:
            return None
