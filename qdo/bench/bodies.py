"""The bodies of messages: a name that says which message it is and when it was due, then the payload.

The name is text, so that every system carries it, and has a checksum over itself and the payload: a message that comes
back changed is found.
"""

from __future__ import annotations

import base64
import random
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_NAME = struct.Struct("<IIIIqIIi")
NAME_BYTES = 48
"""The least size of a message."""
NO_KEY = 0xFFFFFFFF


class MessageName(NamedTuple):
    """What a message says about itself. Times are nanoseconds of the monotonic clock."""

    stream: int
    """The producer that sent it; its messages are numbered from 0."""
    number: int
    key: int
    """:data:`NO_KEY` without one."""
    due: int
    """When it should have been sent."""
    sent: int
    """When it was."""
    not_before: int
    """It must not be delivered earlier."""


@dataclass(frozen=True)
class Payload:
    """The rest of a body, and its checksum."""

    text: bytes
    checksum: int

    @classmethod
    def of(cls, text: bytes) -> Payload:
        return cls(text, zlib.crc32(text))


def body_of(run: int, named: MessageName, payload: Payload) -> bytes:
    """A body.

    >>> named = MessageName(3, 7, NO_KEY, 10**12, 10**12 + 5000, 10**12 + 2_000_005_000)
    >>> body = body_of(1, named, Payload.of(b"abc"))
    >>> len(body), named_by(1, body) == named
    (51, True)
    >>> named_by(2, body), named_by(1, body[:-1] + b"x"), named_by(1, b"short")
    (None, False, None)
    """
    late_us = min((named.sent - named.due) // 1000, 0xFFFFFFFF)
    delay_ms = (named.not_before - named.sent) // 1_000_000
    head = _NAME.pack(run, named.stream, named.number, named.key, named.due, late_us, delay_ms, 0)[:-4]
    checksum = zlib.crc32(head, payload.checksum)
    return base64.b64encode(head + checksum.to_bytes(4, "little")) + payload.text


def named_by(run: int, body: bytes) -> MessageName | bool | None:
    """What a body says: False if it was changed on its way, None if it is no message of this run."""
    try:
        head = base64.b64decode(body[:NAME_BYTES], validate=True)
        known, stream, number, key, due, late_us, delay_ms, _ = _NAME.unpack(head)
    except (ValueError, struct.error):
        return None
    if known != run:
        return None
    checksum = zlib.crc32(head[:-4], zlib.crc32(body[NAME_BYTES:]))
    if checksum.to_bytes(4, "little") != head[-4:]:
        return False
    sent = due + late_us * 1000
    return MessageName(stream, number, key, due, sent, sent + delay_ms * 1_000_000)


def payloads(sizes: Sequence[int], *, random_share: float, pool: int, seed: int) -> dict[int, list[Payload]]:
    """Payloads for messages of these sizes: text, of which a share is random.

    :param sizes: of whole messages; each at least :data:`NAME_BYTES`.
    :param pool: payloads of each size, 1 at least.
    """
    drawn = random.Random(seed)  # noqa: S311 -- repeatable, not secret
    letters = b"abcdefghijklmnopqrstuvwxyz0123456789"
    found: dict[int, list[Payload]] = {}
    for size in sizes:
        left = size - NAME_BYTES
        noise = round(left * random_share)
        some = []
        for _ in range(pool):
            text = bytes(drawn.choices(letters, k=noise)) + b"." * (left - noise)
            some.append(Payload.of(text))
        found[size] = some
    return found
