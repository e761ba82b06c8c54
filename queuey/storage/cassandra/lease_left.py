"""Finds messages of lease steps that dead servers have left behind, also in groups that nobody uses any more (G24).

A server lists a group before its steps append there. Each server looks at the listed groups now and then. So what a step
has appended comes to its queue as long as any server runs.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence
from time import perf_counter
from uuid import UUID

from queuey.errors import QueueyError
from queuey.future import start
from queuey.storage.cassandra.lease_heads import GroupPlace
from queuey.storage.cassandra.lease_parcels import APPENDERS, Carrier, listed_hour
from queuey.storage.cassandra.lease_rows import LeaseRows
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import ALL_CENTRES

__all__ = ["LeftParcels"]

log = logging.getLogger(__name__)

_LOOK_SECONDS = 60.0
_MOST_SHARE = 9
"""A server rests for this many times as long as it has looked, at least."""
_UNLISTED_HOURS = 3
"""No server goes by an entry of an hour that began so long ago."""
_PAGE = 500
_FIRST = (0, UUID(int=0), "")
_CLOSE_SECONDS = 1.0

_Entry = tuple[int, UUID, str]
"""The hour in which a server has listed a group, and the group."""


class LeftParcels:
    """Looks for parcels that wait in the listed groups."""

    def __init__(self, server: CassandraServer, rows: LeaseRows, carrier: Carrier) -> None:
        self._server, self._session, self._rows, self._carrier = server, server.session, rows, carrier
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="left-parcels", daemon=True)

    def start(self) -> None:
        """Look now and then, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking. May be called again."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        rest = random.uniform(0.5, 1.0) * _LOOK_SECONDS  # noqa: S311 - spreads, hides nothing
        while not self._stopped.wait(rest):
            began = perf_counter()
            try:
                start(self.look()).wait()
            except QueueyError as error:
                log.info("messages that lease steps append are looked for later: %s", error)
            except Exception:  # if this thread ended, some might wait for ever
                log.exception("messages that lease steps append are looked for later")
            rest = max(_LOOK_SECONDS, _MOST_SHARE * (perf_counter() - began))

    async def look(self) -> None:
        """Look at each listed group, and append what has waited for long.

        :raises StorageUnavailable, OutcomeUnknown: not all were looked at.
        """
        over, before = set[int](), listed_hour(self._server.clock.now_ticks()) - _UNLISTED_HOURS
        behind: _Entry | None = _FIRST
        while behind is not None:
            asked = (APPENDERS, *behind, _PAGE)
            page: Sequence[_Entry] = await self._session.ask("lease_appender_list", asked, ALL_CENTRES)
            for hour, queue, name in page:
                if self._stopped.is_set():
                    return
                await self._look_at((queue, name), is_over=hour <= before)
                if hour <= before:
                    over.add(hour)
            behind = page[-1] if len(page) == _PAGE else None
        for hour in over:
            await self._session.tell("lease_appenders_forget", (APPENDERS, hour), ALL_CENTRES)

    async def _look_at(self, place: GroupPlace, *, is_over: bool) -> None:
        """:param is_over: the entry goes: if messages wait still, the group is listed anew."""
        try:
            waits = await self._is_waiting(place)
        except QueueyError as error:
            log.warning("messages of steps of the lease group %s of queue %s wait: %s", place[1], place[0], error)
            waits = True
        if waits and is_over:
            await self._carrier.announce(place)

    async def _is_waiting(self, place: GroupPlace) -> bool:
        """Append what others have left behind in a group; whether more waits."""
        head = await self._rows.head(place)
        return head is not None and await self._carrier.carry_old(place, head)
