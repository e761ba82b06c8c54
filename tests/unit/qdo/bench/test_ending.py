"""When a run is over: not before what was acknowledged has had its time to come."""

from __future__ import annotations

from typing import Any

import pytest

from qdo.bench.ending import QUIET_SECONDS, LoadProgress, RunEnd, beyond_drain
from tests.support.bench_by_clock import workload_of

VISIBILITY, LINGER, DRAIN = 5, 0.5, 60
QUIET = QUIET_SECONDS + 2 * VISIBILITY
SENT = LoadProgress(is_sending=False, stored=100, unknown=0, distinct=100, answers=50)


def over_after(progress: LoadProgress, *, answered: bool = True, poison: float = 0, **workload: Any) -> float:
    """Seconds from the last sending until the run is over, if nothing more arrives."""
    receiving = {"visibility": VISIBILITY, "wait": 0, "poison": poison}
    end = RunEnd(workload_of(linger=LINGER, drain=DRAIN, seconds=1, receiving=receiving, **workload))
    begin = 1_000.0
    assert not end.is_over(progress._replace(is_sending=True), begin - 100)
    for tenths in range(10_000):
        answers = progress.answers + (tenths if answered else 0)
        if end.is_over(progress._replace(answers=answers), begin + tenths / 10):
            return tenths / 10
    raise AssertionError("the run is never over")


def test_a_run_whose_messages_all_arrived_goes_on_for_the_time_to_linger() -> None:
    assert over_after(SENT) == LINGER


def test_a_message_that_is_missing_has_the_time_of_two_leases_to_come() -> None:
    assert over_after(SENT._replace(distinct=99)) == QUIET


@pytest.mark.parametrize(
    ("group", "seconds"),
    [
        ({"max_failures": 1}, 0),
        ({"max_failures": 4, "backoff": {"first": 2, "most": 5, "jitter": 0}}, 2 + 4 + 5),
        ({"max_failures": 0}, DRAIN + LINGER - QUIET),
        ({}, DRAIN + LINGER - QUIET),
    ],
    ids=["dead at once", "some tries", "never dead", "twenty tries, with pauses of up to half a minute"],
)
def test_what_is_behind_a_message_that_fails_has_the_time_of_its_tries_to_come(
    group: dict[str, Any], seconds: float
) -> None:
    missing = SENT._replace(distinct=99)

    assert over_after(missing, keys={"count": 4}, group=group, poison=0.1) == QUIET + seconds


def test_what_came_without_an_answer_does_not_stand_in_for_what_is_missing() -> None:
    """100 are acknowledged, and 100 have arrived: one of them is one of three whose sending had no answer."""
    assert over_after(SENT._replace(unknown=3)) == QUIET
    assert over_after(SENT._replace(unknown=3, distinct=103)) == LINGER


def test_each_view_must_have_them() -> None:
    assert over_after(SENT, subscriptionsPerTopic=2) == QUIET
    assert over_after(SENT._replace(distinct=200), subscriptionsPerTopic=2) == LINGER


def test_receivers_that_get_no_answer_are_waited_for_as_long_as_the_run_has_time() -> None:
    assert over_after(SENT._replace(distinct=99), answered=False) == DRAIN + LINGER


@pytest.mark.parametrize("distinct", [99, 100])
def test_a_message_that_arrives_begins_the_time_anew(distinct: int) -> None:
    end = RunEnd(workload_of(linger=LINGER, seconds=1, receiving={"mode": "pop", "wait": 0}))
    assert not end.is_over(SENT._replace(distinct=distinct - 1), 0)
    assert not end.is_over(SENT._replace(distinct=distinct, answers=100), 2.9)
    wait = LINGER if distinct == 100 else QUIET_SECONDS

    assert not end.is_over(SENT._replace(distinct=distinct, answers=200), 2.8 + wait)
    assert end.is_over(SENT._replace(distinct=distinct, answers=200), 3 + wait)


def test_what_was_received_and_not_settled_has_the_time_of_two_leases_to_come_again() -> None:
    assert over_after(SENT._replace(unsettled=1)) == QUIET
    assert over_after(SENT._replace(unsettled=1), answered=False) == DRAIN + LINGER


def test_what_comes_again_begins_the_time_anew() -> None:
    end = RunEnd(workload_of(linger=LINGER, drain=DRAIN, seconds=1, receiving={"visibility": VISIBILITY, "wait": 0}))
    opened = SENT._replace(unsettled=1)

    assert not end.is_over(opened, 0)
    assert not end.is_over(opened._replace(moves=1, answers=100), QUIET - 1)
    assert not end.is_over(opened._replace(moves=1, answers=200), 2 * QUIET - 2)
    assert end.is_over(opened._replace(moves=1, answers=300), 2 * QUIET - 1)
    assert (end.changed, end.answered) == (QUIET - 1, 2 * QUIET - 1)


def test_a_run_with_forgotten_receipts_by_plan_has_the_time_to_show_them() -> None:
    workload = workload_of(linger=LINGER, drain=DRAIN, seconds=1, receiving={"visibility": VISIBILITY, "wait": 0})
    end = RunEnd(workload, is_forgetful=True)

    assert not end.is_over(SENT, 0)
    assert not end.is_over(SENT, QUIET - 0.1)
    assert end.is_over(SENT, QUIET)


def test_a_drain_that_is_too_short_to_find_what_is_stranded_is_told() -> None:
    assert "found only with a drain of 64 s" in beyond_drain(workload_of())
    assert beyond_drain(workload_of(drain=64)) == ""
    assert beyond_drain(workload_of(receiving={"mode": "pop"})) == ""


def test_a_message_that_closes_its_key_for_ever_needs_no_endless_drain() -> None:
    told = beyond_drain(workload_of(keys={"count": 4}, group={"max_failures": 0}, receiving={"poison": 0.1}))

    assert told == "; what is stranded is not found, since a message that always fails closes its key for ever"
