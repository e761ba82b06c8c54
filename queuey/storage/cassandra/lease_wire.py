"""Steps of one lease group, and what became of them, as bytes between servers (:mod:`queuey.storage.cassandra.lease_homes`).

Both ends run one version of Queuey, so a value is written as its fields in order, and has no form of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from queuey.errors import OutcomeUnknown, QueueyError, error_classes
from queuey.ids import MessageId
from queuey.model import Appended, AppendRequest, Draft, IdempotencyKey, Location, Queue
from queuey.model.columns import Alike, Columns
from queuey.model.holes import Hole
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import Acknowledged, ReceiveRequest, Settle
from queuey.model.lease_steps import (
    NOTHING_HANDED,
    GivenUp,
    GroupStep,
    Handed,
    HandedAlone,
    HandedPart,
    LeaseOutcome,
    LeaseStep,
    RenewAll,
    StaleLease,
)

__all__ = [
    "HandedOver",
    "Meeting",
    "decode_answer",
    "decode_call",
    "encode_answer",
    "encode_meeting",
    "encode_step",
]

_Ids: TypeAlias = tuple[list[int], list[int]]
"""Ticks and tails."""


class _Group(NamedTuple):
    """A :class:`~queuey.model.lease_steps.GroupStep`."""

    queue: Queue
    name: str
    new: LeaseGroup | None
    token: int | None
    acknowledged: dict[int, tuple[_Ids, list[int]]]
    """By partition: of which messages, and which deliveries they were."""
    settles: dict[int, list[Settle]]
    """Those of the other partitions."""
    renewals: list[RenewAll]
    receive_from: list[int]
    passes: dict[int, MessageId]


class _Request(NamedTuple):
    """A request of a :class:`~queuey.model.lease_steps.LeaseStep`."""

    queue: Queue
    drafts: list[Draft]
    idempotency: IdempotencyKey | None
    is_bulk: bool


class _Step(NamedTuple):
    """A :class:`~queuey.model.lease_steps.LeaseStep` of one group."""

    group: _Group
    appends: list[_Request]
    receive: ReceiveRequest | None
    attempt: IdempotencyKey | None
    renews: bool
    looks_again: bool
    changed: list[int]
    until: int


class _Part(NamedTuple):
    """A :class:`~queuey.model.lease_steps.HandedPart`: its messages by column, in the order of their fields."""

    partition: int
    ids: _Ids
    expires: list[int]
    content_types: list[str | None]
    keys: list[str | None]
    bodies: list[bytes]
    headers: list[bytes | None]
    leases: list[Hole]
    """One, if all are the same."""


class _Outcome(NamedTuple):
    """A :class:`~queuey.model.lease_steps.LeaseOutcome` of one group."""

    now: int
    wall: int
    tokens: list[int]
    stale: list[StaleLease]
    appended: list[tuple[list[Location], bool]]
    handed: list[_Part]
    given_up: list[GivenUp]
    flags: tuple[bool, bool, bool, bool, bool]
    """``is_full``, ``frees``, ``repeated``, ``more`` and ``gone``."""
    next_due: int | None
    larger: int
    expired: int
    worked: int


class Meeting(NamedTuple):
    """A group that two servers use at once. The one that calls takes itself for its home."""

    queue: UUID
    name: str


class HandedOver(NamedTuple):
    """A step of one group that is at home at another server."""

    step: LeaseStep
    changed: Sequence[int]
    """Partitions whose messages the server that calls has deleted or overwritten a moment ago."""
    until: int
    """The moment in ticks from which on nobody waits for the answer any more."""


class _Call(NamedTuple):
    """What one server asks of another: one of these."""

    step: _Step | None
    meeting: Meeting | None


class _Answer(NamedTuple):
    """What became of a step: an outcome, or a code and words."""

    outcome: _Outcome | None
    error: tuple[str, str, dict[str, str]] | None


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_calls = msgspec.msgpack.Decoder(_Call)
_answers = msgspec.msgpack.Decoder(_Answer)
_errors = error_classes()


def encode_meeting(meeting: Meeting) -> bytes:
    """As :func:`decode_call` takes it."""
    return _encoder.encode(_Call(None, meeting))


def encode_step(step: LeaseStep, changed: Sequence[int], until: int) -> bytes:
    """A step of one group, as :func:`decode_call` takes it.

    :param changed: see :class:`HandedOver`, also for ``until``.
    """
    (one,) = step.groups
    acknowledged, settles = {}, {}
    for partition, of_partition in one.settles.items():
        if type(of_partition) is Acknowledged:
            acknowledged[partition] = (_split(of_partition.ids), [*of_partition.deliveries])
        else:
            settles[partition] = [*of_partition]
    group = _Group(
        one.queue,
        one.name,
        one.new,
        one.token,
        acknowledged,
        settles,
        [*one.renewals],
        [*one.receive_from],
        {**one.passes},
    )
    appends = [_Request(each.queue, [*each.drafts], each.idempotency, each.is_bulk) for each in step.appends]
    flat = _Step(group, appends, step.receive, step.attempt, step.renews, step.looks_again, [*changed], until)
    return _encoder.encode(_Call(flat, None))


def decode_call(data: bytes) -> HandedOver | Meeting:
    """What another server asks for.

    :raises ValueError: these bytes say nothing of the kind.
    """
    try:
        step, meeting = _calls.decode(data)
        found = meeting if step is None else _handed_over(step)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ValueError(f"no step of a lease group, and no meeting: {error}") from error
    if found is None:
        raise ValueError("neither a step of a lease group nor a meeting")
    return found


def _handed_over(flat: _Step) -> HandedOver:
    one, appends, receive, attempt, renews, looks_again, changed, until = flat
    settles: dict[int, Sequence[Settle]] = {**one.settles}
    for partition, (ids, deliveries) in one.acknowledged.items():
        settles[partition] = Acknowledged([*map(MessageId, *ids)], deliveries)
    group = GroupStep(one.queue, one.name, one.new, one.token, settles, one.renewals, one.receive_from, one.passes)
    requests = [AppendRequest(*each) for each in appends]
    return HandedOver(LeaseStep([group], requests, receive, attempt, renews, looks_again), changed, until)


def encode_answer(answer: LeaseOutcome | BaseException) -> bytes:
    """What became of a step, as :func:`decode_answer` takes it.

    Of an error that is not in the tree nobody knows what is done: it is :class:`~queuey.errors.OutcomeUnknown`.
    """
    if isinstance(answer, LeaseOutcome):
        return _encoder.encode(_Answer(_flat(answer), None))
    known = isinstance(answer, QueueyError) and answer.code in _errors
    error = answer if isinstance(answer, QueueyError) and known else OutcomeUnknown()
    return _encoder.encode(_Answer(None, (error.code, str(error), error.headers)))


def decode_answer(data: bytes) -> LeaseOutcome:
    """An outcome.

    :raises QueueyError: what became of the step.
    :raises OutcomeUnknown: also if this is no answer.
    """
    try:
        outcome, error = _answers.decode(data)
    except (msgspec.MsgspecError, ValueError) as no_answer:
        raise OutcomeUnknown from no_answer
    if outcome is None:
        raise _of_code(*(error or (OutcomeUnknown.__name__, "", {})))
    is_full, frees, repeated, more, gone = outcome.flags
    return LeaseOutcome(
        outcome.now,
        outcome.wall,
        outcome.tokens,
        outcome.stale,
        [Appended(placed, is_repeated) for placed, is_repeated in outcome.appended],
        _handed(outcome.handed),
        outcome.given_up,
        is_full,
        outcome.next_due,
        outcome.larger,
        outcome.expired,
        frees,
        repeated,
        more,
        outcome.worked,
        gone,
    )


def _flat(outcome: LeaseOutcome) -> _Outcome:
    return _Outcome(
        outcome.now,
        outcome.wall,
        [*outcome.tokens],
        [*outcome.stale],
        [([*one.placed], one.repeated) for one in outcome.appended],
        [_flat_part(part) for part in outcome.handed.parts] if outcome.handed else [],
        [*outcome.given_up],
        (outcome.is_full, outcome.frees, outcome.repeated, outcome.more, outcome.gone),
        outcome.next_due,
        outcome.larger,
        outcome.expired,
        outcome.worked,
    )


def _flat_part(part: HandedPart) -> _Part:
    ticks, tails, expires, content_types, keys, bodies, headers = map(list, part.messages.all())
    leases = [*part.leases]
    if leases.count(leases[0]) == len(leases):
        del leases[1:]
    return _Part(part.partition, (ticks, tails), expires, content_types, keys, bodies, headers, leases)


def _handed(parts: Sequence[_Part]) -> Handed:
    found = [
        HandedPart(
            0,
            part.partition,
            Columns(*part.ids, part.expires, part.content_types, part.keys, part.bodies, part.headers),
            part.leases if len(part.leases) == len(part.bodies) else Alike(part.leases[0], len(part.bodies)),
        )
        for part in parts
    ]
    if not found:
        return NOTHING_HANDED
    if len(found) == 1 and len(found[0].messages) == 1:
        return HandedAlone(found[0].partition, found[0].messages[0], found[0].leases[0])
    return Handed(found)


def _split(ids: Sequence[MessageId]) -> _Ids:
    return [one.ticks for one in ids], [one.tail for one in ids]


def _of_code(code: str, detail: str, headers: Mapping[str, str]) -> QueueyError:
    error = _errors.get(code, OutcomeUnknown)(detail)
    error.headers = dict(headers)
    return error
