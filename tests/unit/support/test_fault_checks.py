"""Each judge of the fault tests finds a planted fault, and nothing where there is none; ``test_measure.py`` has the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from qdo.client import Appended, Message
from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.ids import MessageId
from tests.support.effects import Effects, Place
from tests.support.expiry import Watch
from tests.support.order import same_id, ties, too_early
from tests.support.outcomes import Outcomes
from tests.support.readers import Pages, Reader
from tests.support.strace import answered_early


def an_id(ticks: int) -> MessageId:
    return MessageId(ticks, -5)


def message(ticks: int, body: bytes = b"x", partition: int = 1) -> Message:
    return Message(an_id(ticks), partition, body)


def fails(error: Exception) -> Callable[[], list[Appended]]:
    def send() -> list[Appended]:
        raise error

    return send


@pytest.fixture
def effects() -> Effects:
    """Two messages stored, one overwritten, one deleted, one refused, one of unknown fate."""
    done = Effects()
    for ticks, body in ((1, b"kept"), (2, b"old"), (3, b"deleted")):
        done.append([body], lambda ticks=ticks: [Appended(an_id(ticks), 1)])  # type: ignore[misc]
    done.change((1, an_id(2)), b"new", lambda: None)
    done.change((1, an_id(3)), None, lambda: None)
    done.append([b"refused"], fails(StorageUnavailable()))
    done.append([b"unknown"], fails(OutcomeUnknown()))
    return done


WELL = [message(1, b"kept"), message(2, b"new")]


def test_effects_that_are_all_there_are_no_loss(effects: Effects) -> None:
    verdict = effects.judge([*WELL, message(9, b"unknown")])

    assert (verdict.lost, verdict.wrong, verdict.from_nowhere) == ([], [], [])
    assert verdict.unacknowledged == [b"unknown"]


@pytest.mark.parametrize(
    ("found", "place"),
    [
        ([message(2, b"new")], (1, an_id(1))),
        ([message(1, b"kept")], (1, an_id(2))),
        ([message(1, b"kept"), message(2, b"old")], (1, an_id(2))),
        ([*WELL, message(3, b"deleted")], (1, an_id(3))),
        ([message(1, b"other"), message(2, b"new")], (1, an_id(1))),
    ],
    ids=["append lost", "overwritten message lost", "overwrite undone", "deletion undone", "another body"],
)
def test_an_effect_that_is_not_there_is_lost(effects: Effects, found: list[Message], place: Place) -> None:
    verdict = effects.judge(found)

    assert [where for where, _ in verdict.lost] == [place]
    assert verdict.wrong == [place]


def test_a_message_that_was_refused_comes_from_nowhere(effects: Effects) -> None:
    assert effects.judge([*WELL, message(9, b"refused")]).from_nowhere == [b"refused"]


@pytest.mark.parametrize("found", [[], [message(1, b"old")], [message(1, b"new")]])
def test_a_change_of_unknown_outcome_explains_both_values_and_a_third_is_wrong(found: list[Message]) -> None:
    effects = Effects()
    effects.append([b"old"], lambda: [Appended(an_id(1), 1)])
    effects.change((1, an_id(1)), b"new", fails(OutcomeUnknown()))

    verdict = effects.judge(found)

    assert verdict.lost == []
    assert bool(verdict.wrong) == (not found)


WRITE = '7 pwrite64(9</d/queuey.db-wal>, "..first..", 4096, 56) = 4096'
SYNC = "7 fdatasync(9</d/queuey.db-wal>) = 0"
ANSWER = '5 writev(11<socket:[1]>, [{iov_base="HTTP/1.1 201 Created", iov_len=9}], 1) = 9'
SYNC_BEGINS, SYNC_ENDS = "7 fdatasync(9</d/queuey.db-wal> <unfinished ...>", "7 <... fdatasync resumed>) = 0"


@pytest.mark.parametrize(
    ("trace", "early"),
    [
        ([WRITE, SYNC, ANSWER], []),
        ([WRITE, SYNC_BEGINS, SYNC_ENDS, ANSWER], []),
        ([WRITE, ANSWER], ["first"]),
        ([WRITE, ANSWER, SYNC], ["first"]),
        ([WRITE, SYNC_BEGINS, ANSWER, SYNC_ENDS], ["first"]),
        ([SYNC, WRITE, ANSWER], ["first"]),
        ([SYNC_BEGINS, WRITE, SYNC_ENDS, ANSWER], ["first"]),
        ([WRITE, SYNC.replace("= 0", "= -1 EIO"), ANSWER], ["first"]),
        ([WRITE, SYNC.replace("-wal", "-shm"), ANSWER], ["first"]),
        ([SYNC, ANSWER], ["first"]),
        ([WRITE, SYNC], ["first"]),
    ],
)
def test_an_answer_before_its_sync_is_seen(trace: list[str], early: list[str]) -> None:
    assert answered_early(trace, ["first"]) == early


@dataclass
class Ticking:
    now: int = 0

    def __call__(self) -> int:
        self.now += 10
        return self.now


def test_a_message_that_goes_in_its_time_is_neither_early_nor_late() -> None:
    watch = Watch(Ticking(), {an_id(1): 35})

    watch.look(lambda: [message(1)])
    watch.look(list)

    assert (watch.early, max(watch.late_ticks)) == (0, 0)


def test_a_message_that_vanishes_before_its_expiry_is_early() -> None:
    watch = Watch(Ticking(), {an_id(1): 1000})

    watch.look(lambda: [message(1)])
    watch.look(list)

    assert watch.early == 1


def test_a_message_that_is_given_after_its_expiry_is_late() -> None:
    watch = Watch(Ticking(), {an_id(1): 15})

    watch.look(lambda: [message(1)])
    watch.look(lambda: [message(1)])

    assert watch.late_ticks == [0, 15]


def test_a_message_seen_before_its_moment_is_too_early() -> None:
    assert too_early({"a": 10, "b": 10}, {"a": 9, "b": 10}) == {"a": 1}


def test_ids_given_twice_in_a_partition_are_seen_and_ties_are_counted() -> None:
    stored = [message(1), message(1), message(2), message(2, partition=2)]

    assert same_id(stored) == [(1, an_id(1))]
    assert ties(stored) == 1


@pytest.mark.parametrize(("ticks", "falls"), [([1, 2, 3], 0), ([1, 3, 2], 1), ([1, 1], 1)])
@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_out_of_order_are_seen(ticks: list[int], falls: int, newest_first: bool) -> None:
    got = [message(tick) for tick in (reversed(ticks) if newest_first else ticks)]

    assert Pages(7, newest_first, got=got).out_of_order == falls


def test_a_watermark_that_falls_is_counted() -> None:
    assert Reader(range(1, 2), watermarks=[1, 3, 2, 3, 3]).fell == 1


@pytest.mark.parametrize("changed", [True, False])
def test_a_refusal_that_stored_something_is_seen(changed: bool) -> None:
    outcomes = Outcomes()

    outcomes.note("append", 503, changed=changed)

    assert (outcomes.stored_though_refused == ["append"]) == changed
