"""Answers to attempts as bytes, for a store's rows."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from itertools import groupby

from queuey.ids import MessageId
from queuey.model.lease_codec import decode_change, encode_change
from queuey.model.lease_state import Change
from queuey.model.lease_steps import GivenUp, HandedOut, LeaseOutcome, StaleLease, without_place
from queuey.model.messages import Appended, Location, Message

__all__ = ["decode_answer", "encode_answer"]

_SIZE = struct.Struct("<I")


def encode_answer(outcome: LeaseOutcome) -> bytes:
    """An outcome as bytes, without the messages: they are in the log."""
    handed = [
        (place, [one.hole._replace(id=one.message.id) for one in some])
        for place, some in groupby(outcome.handed, lambda one: one[:2])
    ]
    document = {
        "now": outcome.now,
        "wall": outcome.wall,
        "tokens": [*outcome.tokens],
        "stale": [[*one] for one in outcome.stale],
        "appended": [[[one.partition, *one.id] for one in appended.placed] for appended in outcome.appended],
        "handed": [place for place, _ in handed],
        "full": outcome.is_full,
        "due": outcome.next_due,
        "larger": outcome.larger,
    }
    head = json.dumps(document, separators=(",", ":")).encode()
    changes = [encode_change(Change(holes=holes)) for _, holes in handed]
    return b"".join([_SIZE.pack(len(head)), head, *(_SIZE.pack(len(data)) + data for data in changes)])


def decode_answer(data: bytes, find: Callable[[int, Sequence[Location]], Sequence[Message | None]]) -> LeaseOutcome:
    """The outcome again, without messages that have expired or were deleted since.

    :param find: messages by the index of a group in the step, and by location.
    :raises ValueError: this is no answer.
    """
    try:
        pieces = _pieces(data)
        document = json.loads(pieces[0])
        handed: list[HandedOut] = []
        for (group, partition), change in zip(document["handed"], map(decode_change, pieces[1:]), strict=True):
            found = find(group, [Location(partition, hole.id) for hole in change.holes])
            handed += [
                HandedOut(group, partition, without_place(hole), message)
                for hole, message in zip(change.holes, found, strict=True)
                if message is not None
            ]
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
            handed,
            given_up,
            document["full"],
            document["due"],
            document["larger"],
            repeated=True,
        )
    except (struct.error, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not an answer to an attempt: {error}") from error


def _pieces(data: bytes) -> list[bytes]:
    pieces, at = [], 0
    while at < len(data):
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        pieces.append(data[at : at + size])
        at += size
    return pieces
