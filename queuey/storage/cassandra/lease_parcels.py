"""Messages that are appended with the settles of leases (G24).

A step that appends puts its messages into the transaction that settles, as one row: a parcel. Once that is stored, they
are appended under an idempotency key that follows from the parcel, and the row is deleted. A parcel whose server died is
carried by another one under the same key, so its messages are stored once. The life of a group ends only after its last
parcels were carried, as their rows end with it.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from queuey.errors import InProgress, KeyReused, MessageTooLarge, OutcomeUnknown, QueueNotFound, StorageUnavailable
from queuey.ids import TICKS_PER_SECOND
from queuey.model import Appended, AppendRequest, Consistency, Draft, IdempotencyKey, Queue, bytes_of
from queuey.storage.cassandra.appending import CassandraAppender
from queuey.storage.cassandra.idempotency import append_keyed, reused_keys
from queuey.storage.cassandra.lease_heads import GroupHead, GroupPlace, Parcel
from queuey.storage.cassandra.lease_rows import LeaseRows, checksum_of_change
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import ALL_CENTRES
from queuey.storage.checksums import making_sense

__all__ = [
    "APPENDERS",
    "LISTED_SECONDS",
    "MOST_BYTES",
    "Carrier",
    "decode_parcel",
    "encode_parcel",
    "listed_hour",
    "refuse_large",
]

log = logging.getLogger(__name__)

MOST_BYTES = 4 << 20
"""Bodies, headers and idempotency keys in the parcels of one transaction, but for a lone message: half of what a node takes
in one write."""
_SIZE = struct.Struct("<I")
APPENDERS = 0
"""The one shard of the list of groups whose steps append."""
LISTED_SECONDS = 3600
"""A server lists a group anew whose steps append, if it did so longer ago. The list is by hours of this length."""
_LAST_PAUSES = (0.05, 0.1, 0.2, 0.4)
"""How long the end of a group waits for servers that append their own parcels, in seconds."""


def listed_hour(ticks: int) -> int:
    """The hour of a moment, in the list of groups whose steps append."""
    return ticks // (LISTED_SECONDS * TICKS_PER_SECOND)


def refuse_large(requests: Sequence[AppendRequest]) -> int:
    """The bytes of these messages.

    :raises MessageTooLarge: they are several, and more than one step may append.
    """
    size = sum(bytes_of(request.drafts) + _bytes_of_keys(request.drafts) for request in requests)
    if size > MOST_BYTES and sum(len(request.drafts) for request in requests) > 1:
        raise MessageTooLarge(
            f"a request that settles leases may append {MOST_BYTES} bytes on Cassandra, not {size}; nothing was "
            "appended or settled"
        )
    return size


def _bytes_of_keys(drafts: Sequence[Draft]) -> int:
    keys = [draft.idempotency for draft in drafts if draft.idempotency is not None]
    return sum([len(key.key) + 2 * len(key.digest) for key in keys])


def encode_parcel(requests: Sequence[AppendRequest]) -> bytes:
    """Messages as bytes; of the queues, what an append needs."""
    head, blobs = [], list[bytes]()
    for queue, drafts, _, _ in requests:
        described = []
        for partition, body, ttl, content_type, key, due, once, headers in drafts:
            sizes = [len(body), None if headers is None else len(headers)]
            own = None if once is None else [once.key, once.digest.hex(), once.seconds]
            described.append([partition, ttl, content_type, key, due, own, *sizes])
            blobs += [body, headers or b""]
        named = [queue.application, queue.name, queue.uuid.hex, queue.created_ticks, queue.partitions]
        head.append([*named, queue.consistency.value, described])
    encoded = json.dumps(head, separators=(",", ":")).encode()
    return b"".join([_SIZE.pack(len(encoded)), encoded, *blobs])


def decode_parcel(data: bytes) -> list[AppendRequest]:
    """The inverse of :func:`encode_parcel`.

    :raises StorageUnavailable: the bytes are damaged.
    """
    with making_sense():
        (size,) = _SIZE.unpack_from(data)
        at = _SIZE.size + size
        requests = []
        for *named, consistency, described in json.loads(data[_SIZE.size : at]):
            drafts = []
            for partition, ttl, content_type, key, due, own, of_body, of_headers in described:
                body, at = data[at : at + of_body], at + of_body
                headers, at = (None, at) if of_headers is None else (data[at : at + of_headers], at + of_headers)
                once = None if own is None else IdempotencyKey(own[0], bytes.fromhex(own[1]), own[2])
                drafts.append(Draft(partition, body, ttl, content_type, key, due, once, headers))
            requests.append(AppendRequest(_queue(*named, consistency), drafts))
        return requests


def _queue(application: str, name: str, uuid: str, created: int, *rest: Any) -> Queue:
    partitions, consistency = rest
    return Queue(application, name, UUID(uuid), created, partitions, consistency=Consistency(consistency))


class _Damaged(StorageUnavailable):
    """A parcel cannot be read, now or later."""

    @property
    def code(self) -> str:
        return StorageUnavailable.__name__


def _read(place: GroupPlace, token: int, parcel: Parcel, checksum: int, data: bytes) -> list[AppendRequest]:
    """What a row says is to be appended.

    :raises _Damaged: it says nothing that can be trusted.
    """
    try:
        with making_sense():
            if checksum != checksum_of_change(token, parcel.part, parcel.number, data):
                raise ValueError("they do not match their checksum")
        return decode_parcel(data)
    except StorageUnavailable as error:
        raise _Damaged(
            f"messages that a step of the lease group {place[1]} of queue {place[0]} appends are damaged, in part "
            f"{parcel.part} of version {parcel.number}: they wait until the group is forgotten or reset, and go then"
        ) from error


class Carrier:
    """Appends what is in parcels."""

    def __init__(self, server: CassandraServer, rows: LeaseRows, appender: CassandraAppender) -> None:
        self._server, self._rows, self._appender = server, rows, appender
        timing = server.timing
        self._error_ticks = round(timing.clock_error_seconds * TICKS_PER_SECOND)
        self.grace_ticks = round((2 * timing.request_seconds + 5) * TICKS_PER_SECOND)
        """A parcel that waits longer has lost its server."""
        self.clock = server.clock

    async def announce(self, place: GroupPlace) -> None:
        """List a group whose steps are about to append, so that each server finds what is left behind.

        :raises StorageUnavailable: it may not be listed, so none of its steps may append.
        """
        entry = (APPENDERS, listed_hour(self.clock.now_ticks()), *place)
        try:
            await self._rows.session.tell("lease_appender_keep", entry, ALL_CENTRES)
        except OutcomeUnknown as error:
            raise StorageUnavailable from error

    async def append(self, step: bytes, requests: Sequence[AppendRequest]) -> list[Appended]:
        """Append the messages of a step, unless they are appended already.

        :param step: the step's own identity.
        :raises StorageUnavailable, OutcomeUnknown, InProgress: some may be appended now or later, by whoever has them.
        """
        return [await self._append(step, index, request) for index, request in enumerate(requests)]

    async def _append(self, step: bytes, index: int, request: AppendRequest) -> Appended:
        """Append the messages of one request. What they settle is settled, so none of them is refused.

        A key of a message that another message has got meanwhile is left out: they are two messages.
        """
        queue, drafts, _, _ = request
        key = IdempotencyKey(f"lease step {step.hex()} {index}", step)
        while True:
            try:
                return await append_keyed(self._appender, queue, drafts, key)
            except KeyReused:
                reused = await reused_keys(self._appender, queue, drafts)
                log.warning("messages for the queue %s lose their idempotency keys, which stand for others", queue.name)
                drafts = [
                    draft._replace(idempotency=None)
                    if draft.idempotency is not None and draft.idempotency.key in reused
                    else draft
                    for draft in drafts
                ]

    async def forget(self, place: GroupPlace, token: int, parcel: Parcel) -> None:
        """Delete a parcel that was carried.

        :raises StorageUnavailable, OutcomeUnknown: it may be carried again, in vain.
        """
        values = (self._server.times.delete(), *place, *parcel.key(token))
        await self._rows.session.tell("lease_parcel_forget", values, ALL_CENTRES)

    async def carry(self, place: GroupPlace, token: int, parcel: Parcel) -> None:
        """Append what is in a parcel, if it is there, and delete it.

        :raises StorageUnavailable, OutcomeUnknown, InProgress: it is to be carried again. If it is damaged, that stays so.
        """
        rows = await self._rows.session.ask("lease_parcel", (*place, *parcel.key(token)), ALL_CENTRES)
        for life, checksum, step, data in rows:
            if life != token:
                continue
            for index, request in enumerate(_read(place, token, parcel, checksum, data)):
                await self._append_left(step, index, request)
            await self.forget(place, token, parcel)

    async def carry_last(self, place: GroupPlace, head: GroupHead) -> None:
        """Append what waits in the parcels of a group's life, which is about to end. Damaged ones end with it.

        :raises StorageUnavailable, OutcomeUnknown: some wait on, so the life must not end.
        """
        try:
            for seconds in _LAST_PAUSES:
                if not await self._carry_old(place, head, _let_go):
                    return
                await self._rows.session.pause(seconds)
            if await self._carry_old(place, head, _let_go):
                raise InProgress
        except InProgress as error:
            said = f"a step of the lease group {place[1]} still appends messages: nothing was done, try again"
            raise StorageUnavailable(said) from error

    async def carry_old(self, place: GroupPlace, head: GroupHead) -> bool:
        """Append what is in the parcels of a group that have lost their servers.

        A damaged one keeps none back that comes behind it.

        :returns: whether others wait.
        :raises StorageUnavailable, OutcomeUnknown, InProgress: some of these wait on.
        """
        damaged: list[_Damaged] = []
        waits = await self._carry_old(place, head, damaged.append)
        if damaged:
            raise damaged[0]
        return waits

    async def _carry_old(self, place: GroupPlace, head: GroupHead, damaged: Callable[[_Damaged], object]) -> bool:
        """:param damaged: called with each parcel that cannot be read."""
        waiting = await self._rows.parcels(place, head)
        moment = self.clock.now_ticks() - self._error_ticks
        old = [parcel for parcel, since in waiting.items() if moment - since > self.grace_ticks]
        for parcel in old:
            try:
                await self.carry(place, head.group.token, parcel)
            except _Damaged as error:
                damaged(error)
        return len(old) < len(waiting)

    async def _append_left(self, step: bytes, index: int, request: AppendRequest) -> None:
        try:
            await self._append(step, index, request)
        except QueueNotFound:
            log.info("the queue %s was dropped before messages of a lease step were appended", request.queue.name)


def _let_go(error: _Damaged) -> None:
    log.error("%s", error)
