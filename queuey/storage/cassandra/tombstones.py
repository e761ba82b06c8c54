"""Reads of a span in which lie more tombstones than a node steps over.

A deleted message is a tombstone; so is each column of an expired one, and the mark of a bucket that is gone. Nodes keep them
for ``gc_grace_seconds``, and refuse a read that meets more than ``tombstone_failure_threshold`` of them: 100,000 as shipped,
no more than a few servers leave in one bucket. So such a span is read in parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from queuey.ids import MessageId
from queuey.model import Span
from queuey.storage.cassandra.buckets import Bucket
from queuey.storage.cassandra.driver_errors import TooManyTombstones
from queuey.storage.cassandra.session import Rows

__all__ = ["parts_of", "parts_of_numbers", "read_in_parts", "within"]

T = TypeVar("T")

_PARTS = 16


def within(bucket: Bucket, span: Span) -> Span:
    """The part of a span that lies in a bucket.

    >>> from queuey.ids import TICKS_PER_SECOND
    >>> span = within(Bucket(3, 7), Span())
    >>> [id_.ticks / TICKS_PER_SECOND for id_ in span]
    [69.9999999, 79.9999999]
    """
    return Span(
        max(span.after, MessageId.first_of(bucket.start).before()), min(span.upto, MessageId.last_of(bucket.end))
    )


def parts_of(span: Span) -> list[Span]:
    """A span in shorter ones, in order; none if all of it is one tick.

    A refused read costs a node as much as 100,000 rows, and an empty one next to nothing. So the parts are many: most of them
    are empty, where all that is gone lies in seconds of ten days.

    >>> [part.upto.ticks for part in parts_of(Span(MessageId.first_of(100), MessageId.last_of(420)))][:3]
    [100, 120, 140]
    """
    first, last = span.after.ticks, span.upto.ticks
    inner = {MessageId.last_of(first + (last - first) * number // _PARTS) for number in range(1, _PARTS)}
    ends = [span.after, *sorted(end for end in inner | {MessageId.last_of(first)} if span.after < end < span.upto)]
    return [Span(after, upto) for after, upto in pairwise([*ends, span.upto])] if len(ends) > 1 else []


def parts_of_numbers(numbers: range) -> list[range]:
    """The same for numbers of buckets; none if it is one.

    >>> parts_of_numbers(range(0, 3)), parts_of_numbers(range(5, 6))
    ([range(0, 1), range(1, 2), range(2, 3)], [])
    """
    step = -(-len(numbers) // _PARTS)
    parts = [numbers[at : at + step] for at in range(0, len(numbers), step)] if numbers else []
    return parts if len(parts) > 1 else []


async def read_in_parts(
    ask: Callable[[T, int], Awaitable[Rows]],
    span: T,
    limit: int,
    *,
    newest_first: bool = False,
    parts_of: Callable[[T], Sequence[T]],
) -> Rows:
    """Rows of a span from its beginning on, in parts as short as the nodes need them.

    :param ask: for rows of a span, up to a number.
    :param parts_of: splits a span.
    :raises TooManyTombstones: too many lie where nothing can be split.
    """
    try:
        return await ask(span, limit)
    except TooManyTombstones:
        parts = parts_of(span)
        if not parts:
            raise
    found: list[tuple[Any, ...]] = []
    for part in reversed(parts) if newest_first else parts:
        if len(found) < limit:
            left = limit - len(found)
            found += await read_in_parts(ask, part, left, newest_first=newest_first, parts_of=parts_of)
    return found
