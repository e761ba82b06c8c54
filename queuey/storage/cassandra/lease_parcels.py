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
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from queuey.errors import InProgress, MessageTooLarge, QueueNotFound, StorageUnavailable
from queuey.ids import TICKS_PER_SECOND
from queuey.model import Appended, AppendRequest, Consistency, Draft, IdempotencyKey, Queue, bytes_of
from queuey.storage.cassandra.appending import CassandraAppender
from queuey.storage.cassandra.idempotency import append_keyed
from queuey.storage.cassandra.lease_rows import GroupHead, GroupPlace, LeaseRows, Parcel, checksum_of_change
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import ALL_CENTRES
from queuey.storage.checksums import making_sense

__all__ = ["MOST_BYTES", "Carrier", "decode_parcel", "encode_parcel", "refuse_large"]

log = logging.getLogger(__name__)

MOST_BYTES = 4 << 20
"""Bodies and headers in the parcels of one transaction, but for a lone message: half of what a node takes in one write.
"""
_SIZE = struct.Struct("<I")
_LAST_PAUSES = (0.05, 0.1, 0.2, 0.4)
"""How long the end of a group waits for servers that append their own parcels, in seconds."""


def refuse_large(requests: Sequence[AppendRequest]) -> int:
    """The bytes of these messages.

    :raises MessageTooLarge: they are several, and more than one step may append.
    """
    size = sum(bytes_of(request.drafts) for request in requests)
    if size > MOST_BYTES and sum(len(request.drafts) for request in requests) > 1:
        raise MessageTooLarge(
            f"a request that settles leases may append {MOST_BYTES} bytes on Cassandra, not {size}; nothing was "
            "appended or settled"
        )
    return size


def encode_parcel(requests: Sequence[AppendRequest]) -> bytes:
    """Messages as bytes; of the queues, what an append needs."""
    head, blobs = [], list[bytes]()
    for queue, drafts, _, _ in requests:
        described = []
        for partition, body, ttl, content_type, key, due, _, headers in drafts:
            described.append(
                [partition, ttl, content_type, key, due, len(body), None if headers is None else len(headers)]
            )
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
            for partition, ttl, content_type, key, due, of_body, of_headers in described:
                body, at = data[at : at + of_body], at + of_body
                headers, at = (None, at) if of_headers is None else (data[at : at + of_headers], at + of_headers)
                drafts.append(Draft(partition, body, ttl, content_type, key, due, None, headers))
            requests.append(AppendRequest(_queue(*named, consistency), drafts))
        return requests


def _queue(application: str, name: str, uuid: str, created: int, *rest: Any) -> Queue:
    partitions, consistency = rest
    return Queue(application, name, UUID(uuid), created, partitions, consistency=Consistency(consistency))


class Carrier:
    """Appends what is in parcels."""

    def __init__(self, server: CassandraServer, rows: LeaseRows, appender: CassandraAppender) -> None:
        self._server, self._rows, self._appender = server, rows, appender
        timing = server.timing
        self._error_ticks = round(timing.clock_error_seconds * TICKS_PER_SECOND)
        self.grace_ticks = round((2 * timing.request_seconds + 5) * TICKS_PER_SECOND)
        """A parcel that waits longer has lost its server."""

    async def append(self, step: bytes, requests: Sequence[AppendRequest]) -> list[Appended]:
        """Append the messages of a step, unless they are appended already.

        :param step: the step's own identity.
        :raises StorageUnavailable, OutcomeUnknown, InProgress: some may be appended now or later, by whoever has them.
        """
        appended = []
        for index, (queue, drafts, _, _) in enumerate(requests):
            key = IdempotencyKey(f"lease step {step.hex()} {index}", step)
            appended.append(await append_keyed(self._appender, queue, drafts, key))
        return appended

    async def forget(self, place: GroupPlace, token: int, parcel: Parcel) -> None:
        """Delete a parcel that was carried.

        :raises StorageUnavailable, OutcomeUnknown: it may be carried again, in vain.
        """
        values = (self._server.times.delete(), *place, *parcel.key(token))
        await self._rows.session.tell("lease_parcel_forget", values, ALL_CENTRES)

    async def carry(self, place: GroupPlace, token: int, parcel: Parcel) -> None:
        """Append what is in a parcel, if it is there, and delete it.

        :raises StorageUnavailable, OutcomeUnknown, InProgress: it is to be carried again.
        """
        rows = await self._rows.session.ask("lease_parcel", (*place, *parcel.key(token)), ALL_CENTRES)
        for life, checksum, step, data in rows:
            if life != token:
                continue
            with making_sense():
                if checksum != checksum_of_change(token, parcel.part, parcel.number, data):
                    raise ValueError("messages that wait to be appended do not match their checksum")
            for index, request in enumerate(decode_parcel(data)):
                await self._append_left(step, index, request)
            await self.forget(place, token, parcel)

    async def carry_last(self, place: GroupPlace, head: GroupHead) -> None:
        """Append what waits in the parcels of a group's life, which is about to end.

        :raises StorageUnavailable, OutcomeUnknown: some wait on, so the life must not end.
        """
        waiting = await self._rows.parcels(place, head)
        for seconds in _LAST_PAUSES:
            if not waiting:
                return
            await self._rows.session.pause(seconds)
            waiting = await self._rows.parcels(place, head)
        moment = self._server.clock.now_ticks() - self._error_ticks
        for parcel, since in waiting.items():
            try:
                if moment - since <= self.grace_ticks:
                    raise InProgress
                await self.carry(place, head.group.token, parcel)
            except InProgress as error:
                said = f"a step of the lease group {place[1]} still appends messages: nothing was done, try again"
                raise StorageUnavailable(said) from error

    async def _append_left(self, step: bytes, index: int, request: AppendRequest) -> None:
        key = IdempotencyKey(f"lease step {step.hex()} {index}", step)
        try:
            await append_keyed(self._appender, request.queue, request.drafts, key)
        except QueueNotFound:
            log.info("the queue %s was dropped before messages of a lease step were appended", request.queue.name)
