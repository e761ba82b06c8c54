"""Places that follow from a name: what is written there again overwrites what was there."""

from __future__ import annotations

import hashlib

from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, MessageId, tail_from_low

__all__ = ["place_named"]


def place_named(name: str, created: float) -> str:
    """The place of a name in a queue: partition 1, in the millisecond after the queue was made, at a digest of the name.

    So a list of the queue shows at once what is written there.

    :param created: when the queue was made, in seconds since 1970.
    """
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    low = digest & ((1 << 62) - 1) & ~(1 << 50) | 1 << 63  # a version 1 UUID that is not one of a scheduled message
    ticks = EPOCH_TICKS + (int(created * 1000) + 1) * (TICKS_PER_SECOND // 1000)
    return f"1:{MessageId(ticks, tail_from_low(low)).hex}"
