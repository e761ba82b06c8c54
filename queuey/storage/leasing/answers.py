"""Answers to attempts as bytes, for a store's rows."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence

from queuey.ids import MessageId
from queuey.model.columns import Alike, Columns
from queuey.model.holes import Hole
from queuey.model.lease_codec import decode_change, encode_change
from queuey.model.lease_state import Change, FreshLeases
from queuey.model.lease_steps import GivenUp, Handed, HandedPart, LeaseOutcome, StaleLease, without_place
from queuey.model.messages import Appended, Location, Message

__all__ = ["decode_answer", "encode_answer"]

_SIZE = struct.Struct("<I")


def encode_answer(outcome: LeaseOutcome) -> bytes:
    """An outcome as bytes, without the messages: they are in the log."""
    document = {
        "now": outcome.now,
        "wall": outcome.wall,
        "tokens": [*outcome.tokens],
        "stale": [[*one] for one in outcome.stale],
        "appended": [[[one.partition, *one.id] for one in appended.placed] for appended in outcome.appended],
        "handed": [part[:2] for part in outcome.handed.parts],
        "full": outcome.is_full,
        "due": outcome.next_due,
        "larger": outcome.larger,
        "more": outcome.more,
    }
    head = json.dumps(document, separators=(",", ":")).encode()
    changes = [encode_change(_leases(part)) for part in outcome.handed.parts]
    return b"".join([_SIZE.pack(len(head)), head, *(_SIZE.pack(len(data)) + data for data in changes)])


def _leases(part: HandedPart) -> Change:
    ticks, tails, leases = part.messages.ticks, part.messages.tails, part.leases
    if isinstance(leases, Alike):
        return Change(fresh=[FreshLeases(array("q", ticks), array("q", tails), leases.value)])
    ids = map(MessageId, ticks, tails)
    return Change(holes=[hole._replace(id=message_id) for hole, message_id in zip(leases, ids, strict=True)])


def decode_answer(data: bytes, find: Callable[[int, Sequence[Location]], Sequence[Message | None]]) -> LeaseOutcome:
    """The outcome again, without messages that have expired or were deleted since.

    :param find: messages by the index of a group in the step, and by location.
    :raises ValueError: this is no answer.
    """
    try:
        pieces = _pieces(data)
        document = json.loads(pieces[0])
        parts: list[HandedPart] = []
        for (group, partition), change in zip(document["handed"], map(decode_change, pieces[1:]), strict=True):
            leases = [*_each(change)]
            found = find(group, [Location(partition, hole.id) for hole in leases])
            there = [at for at, message in enumerate(found) if message is not None]
            if there:
                messages = Columns.of([message for message in found if message is not None])
                parts.append(HandedPart(group, partition, messages, [without_place(leases[at]) for at in there]))
        appended = [
            Appended([Location(partition, MessageId(*id_)) for partition, *id_ in placed], repeated=True)
            for placed in document["appended"]
        ]
        stale = [StaleLease(*one) for one in document["stale"]]
        given_up: list[GivenUp] = []  # they were moved when the step was done, or are reported again
        return LeaseOutcome(
            document["now"],
            document["wall"],
            document["tokens"],
            stale,
            appended,
            Handed(parts),
            given_up,
            document["full"],
            document["due"],
            document["larger"],
            repeated=True,
            more=document["more"],
        )
    except (struct.error, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not an answer to an attempt: {error}") from error


def _each(change: Change) -> Iterator[Hole]:
    for ticks, tails, hole in change.fresh:
        yield from [hole._replace(id=message_id) for message_id in map(MessageId, ticks, tails)]
    yield from change.holes


def _pieces(data: bytes) -> list[bytes]:
    pieces, at = [], 0
    while at < len(data):
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        pieces.append(data[at : at + size])
        at += size
    return pieces
