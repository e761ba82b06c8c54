"""Queues in a compact form, 40 bytes each: most of them have the settings of many others.

Of each there is left which settings it has, its incarnation, and when it was made.
"""

from __future__ import annotations

import struct
from functools import partial
from hashlib import blake2s
from secrets import token_bytes
from typing import Any
from uuid import UUID, SafeUUID

from queuey.model import Queue

__all__ = ["COMPACT_QUEUES", "CompactQueues"]

COMPACT_QUEUES = 1_000_000
"""Queues that are known in the compact form. They take up to 64 bytes each, and nothing before they are used."""
MOST_KINDS = 4096
"""Different settings of queues in the compact form."""
MOST_KIND_CHARACTERS = 1024
"""Of settings. Queues with more, such as a long policy, are not kept in the compact form."""

_RECORD = struct.Struct(">14sH16sq")
"""The digest of the names, the number of the settings, the incarnation, and when the queue was made."""
_AFTER_DIGEST = struct.Struct(">H16sq")
_DIGEST_BYTES = 14
_PER_BUCKET = 16
"""Records of a bucket, on average."""

_Kind = tuple[Any, ...]
"""The settings of a queue: all but its names, its incarnation and its age."""


_new_uuid, _set = partial(object.__new__, UUID), object.__setattr__
_new_queue = partial(tuple.__new__, Queue)
"""Without the interpreter's steps that the constructors take."""


class CompactQueues:
    """Queues by application and name, 40 bytes of each in a bucket. For one thread at a time.

    A hash table that grows by one bucket at a time, so no insertion takes long. At the bound, an insertion takes the
    oldest record of its bucket away. A queue is found by 112 bits of a digest of its names, with a key that nobody
    knows. Queues that name principals are not kept: their settings are mostly their own.
    """

    def __init__(self, most: int = COMPACT_QUEUES) -> None:
        self._most, self._number = most, 0
        self._buckets = [b""]
        self._level = 1
        """A power of two: as many buckets were there before the table began to double."""
        self._kinds: dict[_Kind, int] = {}
        self._kind_of: dict[int, _Kind] = {}
        self._uses: dict[int, int] = {}
        """How many queues have each kind of settings."""
        self._free = [*range(MOST_KINDS)]
        """Numbers of kinds that are not in use."""
        self._keyed = blake2s(token_bytes(16), digest_size=_DIGEST_BYTES)
        """All digests begin with this key. BLAKE2 needs no more than that, and has it in one block with the names; its
        own parameter for a key takes a block of its own each time."""

    def __len__(self) -> int:
        return self._number

    def find(self, application: str, name: str) -> Queue | None:
        """The queue, if it is here."""
        digest = self._digest(application, name)
        bucket = self._buckets[self._place(digest)]
        at = _position(bucket, digest)
        if at < 0:
            return None
        number, incarnation, created = _AFTER_DIGEST.unpack_from(bucket, at + _DIGEST_BYTES)
        uuid = _new_uuid()
        _set(uuid, "int", int.from_bytes(incarnation))
        _set(uuid, "is_safe", SafeUUID.unknown)
        return _new_queue((application, name, uuid, created, *self._kind_of[number]))

    def add(self, queue: Queue) -> None:
        """Keep a queue, in the place of what was known of it; or only forget that, if it does not fit."""
        digest, kind = self._digest(queue.application, queue.name), _kind(queue)
        self._take_out(digest)
        number = None if kind is None else self._number_of(kind)
        if number is None:
            return
        place = self._place(digest)
        self._buckets[place] += _RECORD.pack(digest, number, queue.uuid.bytes, queue.created_ticks)
        self._uses[number] += 1
        self._number += 1
        if self._number > self._most:
            self._cut(place, 0)
        elif self._number > _PER_BUCKET * len(self._buckets):
            self._grow()

    def forget(self, application: str, name: str) -> None:
        """Know nothing of a queue."""
        self._take_out(self._digest(application, name))

    def _digest(self, application: str, name: str) -> bytes:
        digest = self._keyed.copy()
        digest.update(f"{application}/{name}".encode())
        return digest.digest()

    def _place(self, digest: bytes) -> int:
        """The bucket of a digest: buckets that are not there yet are part of those half as far."""
        at = hash(digest) & (2 * self._level - 1)
        return at if at < len(self._buckets) else at - self._level

    def _number_of(self, kind: _Kind) -> int | None:
        """The number of these settings; None if there are too many different ones."""
        number = self._kinds.get(kind)
        if number is None and self._free:
            number = self._kinds[kind] = self._free.pop()
            self._kind_of[number], self._uses[number] = kind, 0
        return number

    def _take_out(self, digest: bytes) -> None:
        place = self._place(digest)
        at = _position(self._buckets[place], digest)
        if at >= 0:
            self._cut(place, at)

    def _cut(self, place: int, at: int) -> None:
        """Take out the record that begins here."""
        bucket = self._buckets[place]
        number = _RECORD.unpack_from(bucket, at)[1]
        self._buckets[place] = bucket[:at] + bucket[at + _RECORD.size :]
        self._number -= 1
        self._uses[number] -= 1
        if not self._uses[number]:
            del self._kinds[self._kind_of.pop(number)], self._uses[number]
            self._free.append(number)

    def _grow(self) -> None:
        """Add a bucket, and move to it what is now its own."""
        old = len(self._buckets) - self._level
        records, parts = self._buckets[old], {old: b"", len(self._buckets): b""}
        self._buckets.append(b"")
        if len(self._buckets) == 2 * self._level:
            self._level *= 2
        for start in range(0, len(records), _RECORD.size):
            record = records[start : start + _RECORD.size]
            parts[self._place(record[:_DIGEST_BYTES])] += record
        for place, some in parts.items():
            self._buckets[place] = some


def _kind(queue: Queue) -> _Kind | None:
    """The settings of a queue; None if they are mostly its own."""
    if queue.principals or len(queue.attributes) + len(queue.leases.text) > MOST_KIND_CHARACTERS:
        return None
    return (
        queue.partitions,
        queue.kind,
        queue.consistency,
        queue.principals,
        queue.leases,
        queue.retention,
        queue.attributes,
    )


def _position(bucket: bytes, digest: bytes) -> int:
    """Where the record of a digest begins; -1 if there is none."""
    at = bucket.find(digest)
    while at % _RECORD.size and at >= 0:
        at = bucket.find(digest, at + 1)
    return at
