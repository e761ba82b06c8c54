"""Answers to attempts as bytes, for a store's rows."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import orjson

from queuey.ids import MessageId
from queuey.model.columns import Alike, Columns
from queuey.model.holes import Hole
from queuey.model.lease_codec import decode_change, encode_change
from queuey.model.lease_state import Change, FreshLeases
from queuey.model.lease_steps import GivenUp, Handed, HandedAlone, HandedPart, LeaseOutcome, StaleLease, without_place
from queuey.model.messages import Appended, Location, Message

__all__ = ["decode_answer", "encode_answer"]

_SIZE = struct.Struct("<I")
_COPY = struct.Struct("<qiiiI")
"""Of a copy of a message: when it expires, and the bytes of its content type, key and headers, -1 for none, and of its
body. These follow."""


def encode_answer(outcome: LeaseOutcome, copied: Collection[int] = ()) -> bytes:
    """An outcome as bytes, without the messages: they are in the log.

    :param copied: indexes of groups whose messages go with the answer, as they may leave the log before it is asked for.
    """
    document: dict[str, Any] = {"now": outcome.now, "wall": outcome.wall, "tokens": [*outcome.tokens]}
    rare = (
        ("stale", [[*one] for one in outcome.stale]),
        ("appended", [[[one.partition, *one.id] for one in appended.placed] for appended in outcome.appended]),
        ("full", outcome.is_full),
        ("due", outcome.next_due),
        ("larger", outcome.larger),
        ("more", outcome.more),
    )
    document.update([(name, value) for name, value in rare if value])
    pieces: list[bytes] = []
    handed = outcome.handed
    if type(handed) is HandedAlone and not copied:
        document["handed"] = [(0, handed.partition)]
        pieces.append(encode_change(Change(holes=[handed.lease._replace(id=handed.message.id)])))
    elif handed:
        parts = handed.parts  # made anew each time
        document["handed"] = [part[:2] for part in parts]
        document["copied"] = [at for at, part in enumerate(parts) if part.group in copied]
        pieces += [encode_change(_leases(part)) for part in parts]
        pieces += [b"".join(map(_copy, part.messages)) for part in parts if part.group in copied]
    return b"".join([_SIZE.pack(len(data)) + data for data in (orjson.dumps(document), *pieces)])


def _copy(message: Message) -> bytes:
    texts = [None if text is None else text.encode() for text in (message.content_type, message.key)]
    beside = [*texts, message.headers]
    sizes = [-1 if data is None else len(data) for data in beside]
    head = _COPY.pack(message.expires_ticks, *sizes, len(message.body))
    return b"".join([head, *(data or b"" for data in beside), message.body])


def _copies(data: bytes, ids: Iterable[MessageId]) -> Iterator[Message]:
    at = 0
    for message_id in ids:
        expires, *sizes = _COPY.unpack_from(data, at)
        at += _COPY.size
        parts: list[bytes | None] = []
        for size in sizes:
            parts.append(None if size < 0 else data[at : at + size])
            at += max(size, 0)
        kind, key, headers, body = parts
        content_type, name = (None if text is None else text.decode() for text in (kind, key))
        yield Message(*message_id, expires, content_type, name, body or b"", headers)


def _leases(part: HandedPart) -> Change:
    ticks, tails, leases = part.messages.ticks, part.messages.tails, part.leases
    if isinstance(leases, Alike):
        return Change(fresh=[FreshLeases(array("q", ticks), array("q", tails), leases.value)])
    ids = map(MessageId, ticks, tails)
    return Change(holes=[hole._replace(id=message_id) for hole, message_id in zip(leases, ids, strict=True)])


def decode_answer(
    data: bytes, find: Callable[[int, Sequence[Location]], Sequence[Message | None]], now_ticks: int
) -> LeaseOutcome:
    """The outcome again, without messages that have expired or were deleted since.

    :param find: messages by the index of a group in the step, and by location.
    :param now_ticks: copies of messages that have expired by then are left out.
    :raises ValueError: this is no answer.
    """
    try:
        pieces = _pieces(data)
        document = orjson.loads(pieces[0])
        parts: list[HandedPart] = []
        is_gone = False
        handed: list[tuple[int, int]] = document.get("handed", [])
        copies = dict(zip(document.get("copied", ()), pieces[1 + len(handed) :], strict=True))
        for number, ((group, partition), piece) in enumerate(zip(handed, pieces[1 : 1 + len(handed)], strict=True)):
            leases = [*_each(decode_change(piece))]
            found = find(group, [Location(partition, hole.id) for hole in leases])
            if number in copies:
                kept = _copies(copies[number], [hole.id for hole in leases])
                both = zip(found, kept, strict=True)
                found = [one or (copy if copy.expires_ticks > now_ticks else None) for one, copy in both]
            is_gone = is_gone or None in found
            there = [at for at, message in enumerate(found) if message is not None]
            if there:
                messages = Columns.of([message for message in found if message is not None])
                parts.append(HandedPart(group, partition, messages, [without_place(leases[at]) for at in there]))
        appended = [
            Appended([Location(partition, MessageId(*id_)) for partition, *id_ in placed], repeated=True)
            for placed in document.get("appended", ())
        ]
        stale = [StaleLease(*one) for one in document.get("stale", ())]
        given_up: list[GivenUp] = []  # they were moved when the step was done, or are reported again
        return LeaseOutcome(
            document["now"],
            document["wall"],
            document["tokens"],
            stale,
            appended,
            Handed(parts),
            given_up,
            document.get("full", False),
            document.get("due"),
            document.get("larger", 0),
            repeated=True,
            more=document.get("more", False),
            gone=is_gone,
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
