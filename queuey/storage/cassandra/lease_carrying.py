"""The parcels of one group that wait, and those that this server appends (G24)."""

from __future__ import annotations

import logging

from queuey.errors import OutcomeUnknown, QueueyError
from queuey.future import start
from queuey.storage.cassandra.lease_access import GroupCall
from queuey.storage.cassandra.lease_heads import GroupPlace, Parcel
from queuey.storage.cassandra.lease_parcels import LISTED_SECONDS, Carrier
from queuey.storage.cassandra.lease_work import awaited
from queuey.storage.cassandra.session import CassandraSession

__all__ = ["Carrying"]

log = logging.getLogger(__name__)

CARRIED_AGAIN_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Pauses between the attempts to append what could not be appended."""
MOST_LEFT = 16
"""Parcels of a group that are taken over from other servers at the same time. Each has up to 4 MiB, or a large message."""
_LATER = "messages of a step of the lease group %s of queue %s are appended later: %s"


class Carrying:
    """The parcels of one group.

    The thread of the group's calls says what waits; whichever thread has carried a parcel takes it out.
    """

    def __init__(self, carrier: Carrier, session: CassandraSession, place: GroupPlace) -> None:
        self._carrier, self._session, self._place = carrier, session, place
        self._token = 0
        self._waiting: dict[Parcel, int] = {}
        """And since when, in ticks on the clock of leases."""
        self._ours: set[tuple[int, Parcel]] = set()
        """Those that this server appends now, with the token of the group."""
        self._left: set[Parcel] = set()
        """Those of them that others have left behind."""
        self._listed_until = 0.0
        """In elapsed seconds."""

    def know(self, token: int, parcels: dict[Parcel, int]) -> None:
        """What waits in the group, as it was read."""
        self._token, self._waiting = token, parcels

    def carried(self, version: int) -> int:
        """A version up to which nothing waits, before this one."""
        return min((parcel.number for parcel in [*self._waiting]), default=version) - 1

    def announce(self) -> None:
        """Let all servers know that steps of the group append, before any of them is stored.

        :raises StorageUnavailable: they may not know.
        """
        elapsed = self._carrier.clock.elapsed()
        if elapsed >= self._listed_until:
            awaited(start(self._carrier.announce(self._place)))
            self._listed_until = elapsed + LISTED_SECONDS

    def take(self, token: int, parcels: list[Parcel]) -> None:
        """This server is about to store these, and to append them."""
        self._ours.update((token, parcel) for parcel in parcels)

    def drop(self, token: int, parcels: list[Parcel]) -> None:
        """They are not stored, or nobody knows."""
        self._ours.difference_update((token, parcel) for parcel in parcels)

    def stored(self, token: int, parcels: list[Parcel], moment: int) -> None:
        """They are stored, and wait."""
        self._token = token
        self._waiting.update(dict.fromkeys(parcels, moment))

    async def append(self, call: GroupCall, parcel: Parcel | None) -> None:
        """Append what a call appends, and answer the call.

        :param parcel: what it has stored; None if it repeats another call.
        """
        token = self._token
        try:
            appended = await self._carrier.append(call.repeats or call.step, call.requests)
        except Exception as error:  # noqa: BLE001 - the error is the call's, and what is stored is appended later
            log.warning(_LATER, self._place[1], self._place[0], error)
            unknown = OutcomeUnknown("the leases are settled, and the messages are appended later")
            unknown.__cause__ = error
            call.future.set_error(unknown)
            if parcel is not None:
                await self._carry_later(token, parcel)
            return
        call.future.set_result(call.result._replace(appended=appended))
        if parcel is not None:
            await self._forget(token, parcel)

    async def _forget(self, token: int, parcel: Parcel) -> None:
        try:
            await self._carrier.forget(self._place, token, parcel)
        except QueueyError as error:
            log.debug("a parcel is carried again: %s", error)
        else:
            self._is_carried(token, parcel)
        finally:
            self._ours.discard((token, parcel))

    async def _carry_later(self, token: int, parcel: Parcel) -> None:
        for seconds in CARRIED_AGAIN_SECONDS:
            await self._session.pause(seconds)
            if await self._carry(token, parcel):
                return

    def carry_left(self, moment: int) -> None:
        """Append what other servers have left behind.

        :param moment: on the clock of leases.
        """
        for parcel, since in [*self._waiting.items()]:
            if len(self._left) >= MOST_LEFT:
                return  # the next call goes on
            if moment - since > self._carrier.grace_ticks and (self._token, parcel) not in self._ours:
                self._waiting[parcel] = moment  # if it fails, it is tried again after as long a time
                self._ours.add((self._token, parcel))
                self._left.add(parcel)
                start(self._carry(self._token, parcel))

    async def _carry(self, token: int, parcel: Parcel) -> bool:
        """Append what is in a parcel; False if that is to be tried again."""
        try:
            await self._carrier.carry(self._place, token, parcel)
        except QueueyError as error:
            log.warning(_LATER, self._place[1], self._place[0], error)
            return False
        finally:
            self._ours.discard((token, parcel))
            self._left.discard(parcel)
        self._is_carried(token, parcel)
        return True

    def _is_carried(self, token: int, parcel: Parcel) -> None:
        if token == self._token:
            self._waiting.pop(parcel, None)
