"""Steps and outcomes come to the other server as they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.errors import OutcomeUnknown, QueueyError, StaleReceipt, Throttled, error_classes
from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model import Appended, AppendRequest, Draft, IdempotencyKey, Location, Message, Queue
from queuey.model.columns import Alike, Columns, Drafts
from queuey.model.holes import Hole
from queuey.model.lease_groups import Breaker, GroupSettings, LeaseGroup
from queuey.model.lease_requests import Acknowledged, Action, ReceiveRequest, Settle
from queuey.model.lease_steps import (
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
from queuey.storage.cassandra.lease_wire import (
    HandedOver,
    Meeting,
    decode_answer,
    decode_call,
    encode_answer,
    encode_meeting,
    encode_step,
)

QUEUE = Queue("app", "jobs", UUID(int=1 << 100), 138_000_000_000_000_000, 200, principals=("bid:a@b.c",))
IDS = st.builds(MessageId, st.integers(0, MAX_ID.ticks), st.integers(ZERO_ID.tail, MAX_ID.tail))
NAMES = st.text(max_size=5)
SECONDS = st.floats(0, 1e9)
SETTLES = st.builds(
    Settle, IDS, st.integers(1, 1 << 40), st.sampled_from(Action), st.none() | SECONDS, st.booleans(), NAMES
)
ACKNOWLEDGED = st.lists(st.tuples(IDS, st.integers(1, 9)), min_size=1, max_size=4).map(
    lambda some: Acknowledged(*map(list, zip(*some, strict=True)))
)
KEYS = st.builds(IdempotencyKey, NAMES, st.binary(max_size=9), st.integers(1, 1 << 20))
DRAFTS = st.builds(
    Draft,
    st.integers(1, 200),
    st.binary(max_size=9),
    st.integers(1, 1 << 25),
    st.none() | NAMES,
    st.none() | NAMES,
    st.none() | st.integers(0, MAX_ID.ticks),
    st.none() | KEYS,
    st.none() | st.binary(max_size=9),
)
GROUPS = st.builds(
    LeaseGroup,
    st.integers(0, (1 << 63) - 1),
    IDS,
    st.sampled_from(
        [
            GroupSettings(),
            GroupSettings(
                3.0, 2, "dead", k="auto", breaker=Breaker(), paused_until=5.0, paused_reason="why", fair=True
            ),
        ]
    ),
)
STEPS = st.builds(
    LeaseStep,
    st.builds(
        GroupStep,
        st.just(QUEUE),
        NAMES,
        st.none() | GROUPS,
        st.none() | st.integers(0, (1 << 63) - 1),
        st.dictionaries(st.integers(1, 200), ACKNOWLEDGED | st.lists(SETTLES, max_size=3), max_size=3),
        st.lists(st.builds(RenewAll, NAMES, SECONDS), max_size=2),
        st.lists(st.integers(1, 200), max_size=5),
        st.dictionaries(st.integers(1, 200), IDS, max_size=2),
    ).map(lambda one: [one]),
    st.lists(st.builds(AppendRequest, st.just(QUEUE), st.lists(DRAFTS, max_size=2), st.none() | KEYS), max_size=2),
    st.none()
    | st.builds(
        ReceiveRequest,
        st.integers(1, 1000),
        st.none() | SECONDS,
        st.booleans(),
        NAMES,
        st.integers(0, 9),
        st.integers(1, 1 << 30),
        st.booleans(),
        st.booleans(),
    ),
    st.none() | KEYS,
    st.booleans(),
    st.booleans(),
    st.just(()),
)
HOLES = st.builds(Hole, IDS, *[st.integers(0, MAX_ID.ticks)] * 3, *[st.integers(0, 9)] * 3, NAMES, st.none() | NAMES)
MESSAGES = st.builds(
    Message,
    st.integers(0, MAX_ID.ticks),
    st.integers(ZERO_ID.tail, MAX_ID.tail),
    st.integers(0, MAX_ID.ticks),
    st.none() | NAMES,
    st.none() | NAMES,
    st.binary(max_size=9),
    st.none() | st.binary(max_size=9),
)


def handed_part(partition: int, some: Sequence[tuple[Message, Hole]], *, alike: bool) -> HandedPart:
    messages, leases = zip(*some, strict=True)
    return HandedPart(0, partition, Columns.of(messages), Alike(leases[0], len(leases)) if alike else leases)


PARTS = st.builds(
    handed_part,
    st.integers(1, 200),
    st.lists(st.tuples(MESSAGES, HOLES), min_size=1, max_size=4),
    alike=st.booleans(),
)


def values(what: Any) -> Any:
    """The same with plain sequences: both ends choose how to store their columns."""
    if isinstance(what, Handed | Alike | Columns | Acknowledged) or type(what) in (list, tuple):
        return [values(one) for one in what]
    if isinstance(what, tuple):
        return (type(what), *[values(one) for one in what])
    return {key: values(one) for key, one in what.items()} if isinstance(what, dict) else what


def handed_over(data: bytes) -> HandedOver:
    found = decode_call(data)
    assert isinstance(found, HandedOver)
    return found


@given(STEPS, st.lists(st.integers(1, 200), max_size=3), st.integers(0, MAX_ID.ticks))
def test_a_step_comes_as_it_was(step: LeaseStep, changed: list[int], until: int) -> None:
    found, *beside = handed_over(encode_step(step, changed, until))
    assert values(found) == values(step)
    assert beside == [changed, until]
    given, taken = step.groups[0].settles, found.groups[0].settles
    assert {number: type(some) for number, some in given.items()} == {
        number: type(some) for number, some in taken.items()
    }


@given(
    st.lists(PARTS, max_size=3),
    st.lists(st.builds(GivenUp, st.just(0), st.integers(1, 200), HOLES, st.none() | NAMES), max_size=2),
    st.tuples(*[st.booleans()] * 5),
    st.none() | st.integers(0, MAX_ID.ticks),
)
def test_an_outcome_comes_as_it_was(
    parts: list[HandedPart], given_up: list[GivenUp], flags: tuple[bool, ...], due: int | None
) -> None:
    is_full, frees, repeated, more, gone = flags
    outcome = LeaseOutcome(
        5,
        7,
        [(1 << 63) - 1],
        [StaleLease(0, 3, 1)],
        [Appended([Location(1, MAX_ID)], repeated)],
        Handed(parts),
        given_up,
        is_full,
        due,
        9,
        8,
        frees,
        repeated,
        more,
        4,
        gone,
    )
    found = decode_answer(encode_answer(outcome))
    assert values(found) == values(outcome)
    assert found.handed.size == outcome.handed.size


def test_a_meeting_comes_as_it_was() -> None:
    meeting = Meeting(QUEUE.uuid, "workers")
    assert decode_call(encode_meeting(meeting)) == meeting


@pytest.mark.parametrize("data", [b"", b"\x92\xc0\xc0", b"\x91\xc0", b"\x92\xc0\x01"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="step of a lease group"):
        decode_call(data)


def test_a_single_message_comes_without_columns() -> None:
    message, lease = Message(1, 2, 3, None, "k", b"body"), Hole(ZERO_ID, 4)
    found = decode_answer(encode_answer(LeaseOutcome(1, 1, [1], handed=HandedAlone(3, message, lease))))
    assert type(found.handed) is HandedAlone
    assert (found.handed.partition, found.handed.message, found.handed.lease) == (3, message, lease)


def test_drafts_by_column_come_as_drafts() -> None:
    drafts = [Draft(1, b"a", 60), Draft(2, b"b", 60, key="k")]
    step = LeaseStep([GroupStep(QUEUE, "g", None)], [AppendRequest(QUEUE, Drafts.of(drafts))])
    assert [*handed_over(encode_step(step, (), 0))[0].appends[0].drafts] == drafts


def is_whole(value: Any) -> bool:
    """Whether no field has its default: what is left out on the way would be found."""
    return all(getattr(value, field) != default for field, default in value._field_defaults.items())


def test_no_field_is_left_out() -> None:
    """This fails if a value gets a field: write it, and give it a value here."""
    key, receive = IdempotencyKey("key", b"digest"), ReceiveRequest(7)
    one = GroupStep(
        QUEUE, "g", None, 3, {1: [Settle(MAX_ID, 2, Action.RELEASE)]}, [RenewAll("r", 3.0)], [1, 2], {2: MAX_ID}
    )
    request = AppendRequest(QUEUE, [Draft(1, b"a", 60)], key, is_bulk=True)
    step = LeaseStep([one], [request], receive, key, renews=True, looks_again=True)
    assert is_whole(step._replace(turns=[0])), "a step of one group has no turns"
    assert is_whole(one)
    assert len(request._fields) == 4
    assert len(fields(Acknowledged)) == 2
    assert values(handed_over(encode_step(step, (), 0))[0]) == values(step)

    message, lease = Message(1, 2, 3, "text", "k", b"body", b"headers"), Hole(ZERO_ID, 4)
    appended = Appended([Location(1, MAX_ID)], repeated=True)
    outcome = LeaseOutcome(
        5,
        7,
        [3],
        [StaleLease(0, 3, 1)],
        [appended],
        HandedAlone(3, message, lease),
        [GivenUp(0, 1, lease, "why")],
        is_full=True,
        next_due=9,
        larger=1,
        expired=2,
        frees=True,
        repeated=True,
        more=True,
        worked=3,
        gone=True,
    )
    assert is_whole(outcome)
    assert len(Message._fields) == 7
    assert len(HandedPart._fields) == 4
    assert values(decode_answer(encode_answer(outcome))) == values(outcome)


def raised(error: BaseException) -> QueueyError:
    with pytest.raises(QueueyError) as found:
        decode_answer(encode_answer(error))
    return found.value


@pytest.mark.parametrize("kind", error_classes().values())
def test_an_error_comes_as_it_was(kind: type[QueueyError]) -> None:
    found = raised(kind("what is wrong"))
    assert (type(found), str(found)) == (kind, "what is wrong")


def test_an_error_keeps_its_headers() -> None:
    assert raised(Throttled(headers={"Retry-After": "3"})).headers == {"Retry-After": "3"}
    assert str(raised(StaleReceipt())) == str(StaleReceipt())


def test_an_error_that_nobody_foresaw_leaves_the_outcome_unknown() -> None:
    assert type(raised(ZeroDivisionError("a secret"))) is OutcomeUnknown
    assert "secret" not in str(raised(ZeroDivisionError("a secret")))


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\x92\xc0\xc0", encode_step(LeaseStep([GroupStep(QUEUE, "g", None)]), (), 0)]
)
def test_what_is_no_answer_leaves_the_outcome_unknown(data: bytes) -> None:
    with pytest.raises(OutcomeUnknown):
        decode_answer(data)


@pytest.mark.parametrize("data", [b"", b"x", b"\x91\x01", encode_answer(OutcomeUnknown())])
def test_what_is_no_step_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no step"):
        handed_over(data)
