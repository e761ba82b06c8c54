"""What is remembered by a name that a client chose: the answers to idempotency keys, and to attempts.

Such names are random. In a table that is ordered by them, each would write a page of its own, of as many pages as the
names of a day take, and a second one in an index by expiry. So both tables have the rows that came together side by side,
in the order in which they expire. What is random is the one index by :func:`place_of`, with 8 bytes of a name.
"""

from __future__ import annotations

from hashlib import blake2b

from queuey.ids import EPOCH_TICKS
from queuey.storage.sqlite.transaction import Kind

__all__ = ["ATTEMPTS", "KEYS", "key_seq", "place_of", "places_of"]

KEYS = Kind("idempotency", ("seq", "place", "queue", "key", "digest", "answer", "expires", "checksum"))
ATTEMPTS = Kind("lease_attempts", ("place", "queue", "token", "key", "digest", "answer", "expires", "checksum"))
_QUEUE_BYTES, _NAME_BYTES = 3, 5
_SPANS = 128
"""Spans of time that keys of the same tick may have, in seconds: any two that are in use differ by no multiple of it."""


def place_of(queue: bytes, *names: str) -> int:
    """Where a name of a queue stands in the index.

    Two names may have the same place. Names of one queue lie together, so that they are found when it is dropped.
    """
    digest = blake2b("\0".join(names).encode(), digest_size=_NAME_BYTES).digest()
    return int.from_bytes(queue[:_QUEUE_BYTES] + digest) >> 1


def places_of(queue: bytes) -> dict[str, int]:
    """The first and the last place of a queue's names, for statements that look at all of them.

    A few other queues may share these places.
    """
    first, last = (int.from_bytes(queue[:_QUEUE_BYTES] + byte * _NAME_BYTES) >> 1 for byte in (b"\0", b"\xff"))
    return {"first_place": first, "last_place": last}


def key_seq(expires: int, seconds: int) -> int:
    """The row of an idempotency key: rows are in the order of their expiry.

    :param expires: the tick of a stamp, and ``seconds`` more. No two keys have the same stamp.
    """
    return (expires - EPOCH_TICKS) * _SPANS + seconds % _SPANS
