"""Receivers that wait: how often they look, and that they miss nothing meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from queuey.errors import QueueNotFound, Throttled
from queuey.future import Future, run
from queuey.ids import ZERO_ID
from queuey.model import AppendRequest, Draft, Location
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.service.leases import Waiting
from queuey.service.queues import QueueSettings
from queuey.storage.leasing.answers import encode_answer
from tests.support.waiting_receivers import GROUP, WAIT_SECONDS, Receivers


@pytest.fixture
def receivers() -> Iterator[Receivers]:
    found = Receivers()
    yield found
    found.service.close()


def _handed(outcome: Future[Any]) -> int:
    assert outcome.done
    return len(outcome.result().handed)


def test_where_others_wait_a_receiver_looks_once_and_not_at_the_end(receivers: Receivers) -> None:
    receivers.wait(1000)
    before = receivers.looks
    outcome = receivers.wait()
    assert receivers.looks == before + 1
    receivers.pass_time(WAIT_SECONDS - 1)
    assert not outcome.done
    receivers.pass_time(1)

    assert _handed(outcome) == 0
    assert receivers.looks == before + 1


def test_a_receiver_that_finds_nothing_stores_no_answer_to_its_attempt(
    receivers: Receivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be a commit of its own for each message that a receiver waits for."""
    stored: list[LeaseOutcome] = []

    def noting(outcome: LeaseOutcome, copied: Collection[int] = ()) -> bytes:
        stored.append(outcome)
        return encode_answer(outcome, copied)

    monkeypatch.setattr("queuey.storage.leasing.attempts.encode_answer", noting)
    nothing, outcome = receivers.wait(attempt="none"), receivers.wait(1000, attempt="some")
    receivers.pass_time(WAIT_SECONDS)
    assert (_handed(nothing), stored) == (0, [])
    receivers.append()
    assert _handed(outcome) == len(stored) == 1

    again = receivers.wait(attempt="some")
    assert again.result().repeated
    assert [one.message for one in again.result().handed] == [one.message for one in outcome.result().handed]


@pytest.mark.parametrize("has_waited", [False, True])
@pytest.mark.parametrize("acknowledges", [False, True])
def test_an_attempt_whose_messages_are_gone_gets_no_others(
    receivers: Receivers, *, acknowledges: bool, has_waited: bool
) -> None:
    receivers.append()
    settled = receivers.wait().result() if acknowledges else None
    if not acknowledges:
        receivers.acknowledge(receivers.wait().result())
    if not has_waited:
        receivers.append()
    first = receivers.wait(attempt="a", settled=settled)
    if has_waited:
        receivers.append()
    (one,) = first.result().handed
    receivers.service.log.delete(receivers.queue, [Location(one.partition, one.message.id)]).wait()
    receivers.append()

    again = receivers.wait(attempt="a", settled=settled)
    assert (_handed(again), again.result().repeated) == (0, True)
    assert _handed(receivers.wait()) == 1


@pytest.mark.parametrize("others", [0, 1])
def test_what_comes_after_a_look_and_before_the_wait_is_found(receivers: Receivers, others: int) -> None:
    waiting = [receivers.wait(1000) for _ in range(others)]

    def append() -> None:
        receivers.after_look = lambda: None
        receivers.append()

    receivers.after_look = append
    waiting.append(receivers.wait())

    assert [_handed(one) for one in waiting if one.done] == [1]


def test_a_receiver_that_has_gone_does_not_look_again(receivers: Receivers) -> None:
    def append() -> None:
        receivers.after_look = lambda: None
        receivers.append()

    receivers.after_look = append

    assert _handed(receivers.wait(is_awaited=False)) == 0
    assert _handed(receivers.wait()) == 1


@pytest.mark.parametrize("seconds", [WAIT_SECONDS - 1, WAIT_SECONDS])
@pytest.mark.parametrize("others", [0, 1])
def test_a_message_that_is_due_by_the_end_of_the_wait_is_found(
    receivers: Receivers, others: int, seconds: float
) -> None:
    waiting = [receivers.wait(WAIT_SECONDS + 5) for _ in range(others)]
    receivers.append(seconds=seconds)
    waiting.append(receivers.wait())
    receivers.pass_time(seconds)

    assert sum([_handed(one) for one in waiting if one.done]) == 1


def test_a_receiver_that_was_woken_and_has_no_time_left_wakes_the_next(receivers: Receivers) -> None:
    first, second = receivers.wait(), receivers.wait(1000)
    receivers.clock.advance(WAIT_SECONDS)
    receivers.append()  # wakes the first, whose time is up

    assert sum([_handed(one) for one in (first, second) if one.done]) == 1


@pytest.mark.parametrize("others", [0, 1])
def test_a_receiver_hears_at_once_that_its_queue_is_removed(receivers: Receivers, others: int) -> None:
    waiting = [receivers.wait() for _ in range(others + 1)]
    run(receivers.service.queues.delete(receivers.queue))

    for one in waiting:
        assert one.done
        with pytest.raises(QueueNotFound):
            one.result()


def test_a_message_wakes_a_receiver_of_its_own_partition(receivers: Receivers) -> None:
    """Not another of the group, which would find nothing."""
    first, second = receivers.wait(partitions=[1]), receivers.wait(partitions=[2])
    receivers.append(partition=2)

    assert (first.done, second.done) == (False, True)


def test_a_lease_that_ends_is_found_by_the_receiver_of_its_partition(receivers: Receivers) -> None:
    for number, seconds in ((1, 5.0), (2, 10.0)):
        receivers.append(partition=number)
        assert _handed(receivers.wait(partitions=[number], visibility=seconds)) == 1
    second, first = receivers.wait(partitions=[2]), receivers.wait(partitions=[1])
    receivers.pass_time(5)
    assert (_handed(first), second.done) == (1, False)
    receivers.pass_time(5.1)

    assert _handed(second) == 1


def test_a_receiver_that_gets_a_message_larger_than_its_room_wakes_the_next(receivers: Receivers) -> None:
    """There may be more."""
    waiting = [receivers.wait(max_bytes=8) for _ in range(2)]
    receivers.append(b"larger than this", b"larger than that")

    assert [_handed(one) for one in waiting if one.done] == [1, 1]


class _FullRoom:
    """See :class:`queuey.service.leases.AnswerRoom`: the server has no more."""

    bytes = 8

    def grow(self, size: int) -> bool:
        return False

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("waits", [False, True])
def test_a_message_for_which_there_is_no_room_is_refused(receivers: Receivers, *, waits: bool, others: int) -> None:
    """An empty answer would say that there is none, and its receiver would ask again at once."""
    for _ in range(others):
        receivers.wait(1000, partitions=[2])
    receivers.append(b"larger than this")
    new = receivers.service.leases.new_group(receivers.service.leases.default_settings, ZERO_ID)
    group = GroupStep(receivers.queue, GROUP, new, receive_from=(1,))
    waiting = Waiting(WAIT_SECONDS, ["app:demo"], False) if waits else None

    with pytest.raises(Throttled):
        run(receivers.service.leases.step(LeaseStep([group], receive=ReceiveRequest(1, 30.0)), _FullRoom(), waiting))


def _grow(receivers: Receivers, partitions: int) -> None:
    run(receivers.service.queues.update(receivers.queue, QueueSettings(partitions=partitions)))


def _append_to(receivers: Receivers, partition: int) -> None:
    queue = run(receivers.service.queues.find("demo", "q"))
    assert queue is not None
    run(receivers.service.log.append(AppendRequest(queue, [Draft(partition, b"x", 1000)])))


def test_receivers_of_all_partitions_hear_of_those_that_their_queue_gets(receivers: Receivers) -> None:
    waiting = [receivers.wait(partitions=None) for _ in range(3)]
    named = receivers.wait(partitions=[1, 2])
    _grow(receivers, 4)
    for number in (3, 4, 3):
        _append_to(receivers, number)

    assert [_handed(one) for one in waiting] == [1, 1, 1]
    assert not named.done


def test_a_queue_that_gets_partitions_while_a_receiver_looks_is_heard(receivers: Receivers) -> None:
    """Between its look and its wait, so no room of it hears of the change."""

    def grow() -> None:
        receivers.after_look = lambda: None
        _grow(receivers, 3)

    receivers.after_look = grow
    outcome = receivers.wait(partitions=None)
    _append_to(receivers, 3)

    assert _handed(outcome) == 1
