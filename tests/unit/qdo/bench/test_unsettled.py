"""What was received and not settled must come again: what does not is stranded, where that is certain."""

from __future__ import annotations

from typing import Any

import pytest

from qdo.bench.bodies import NO_KEY
from qdo.bench.clock import SECOND
from qdo.bench.ending import quiet_seconds
from qdo.bench.judge import judged
from qdo.bench.receivers import OpenMessages
from qdo.bench.records import FAILED, STORED, ReceivedRow, SentRow
from qdo.bench.unsettled import MARGIN_SECONDS, Quiet
from queuey.errors import ConfigurationError
from tests.support.bench_by_clock import run_by_clock, workload_of

VISIBILITY = 10
LONG = 1000


def receipt(number: int, at: float, *, settled: bool = False, **other: int) -> ReceivedRow:
    """A receipt at some second, forgotten unless it is said otherwise."""
    moment = int(at * SECOND)
    done = moment if settled else 0
    row = ReceivedRow(0, 0, 0, number, NO_KEY, 0, 0, 0, 0, moment, moment, moment + VISIBILITY * SECOND, done, done)
    return row._replace(**other)


def stranded(
    *received: ReceivedRow,
    answered: float = LONG,
    since: float = 0,
    unanswered: dict[int, int] | None = None,
    receiving: dict[str, Any] | None = None,
    **workload: Any,
) -> int:
    reads = {"visibility": VISIBILITY, "wait": 0, **(receiving or {})}
    given = workload_of(seconds=1, receiving=reads, **workload)
    quiet = Quiet(int(since * SECOND), int(answered * SECOND), unanswered or {})
    return judged(given, [SentRow(0, 0, 10, STORED, 0, 0, 0, 0)], received, quiet).counts["stranded"]


@pytest.mark.parametrize(
    "received",
    [
        (receipt(0, 1),),
        (receipt(0, 1), receipt(0, 20)),
        (receipt(0, 1, flags=FAILED, held_until=2 * SECOND),),
        (receipt(0, 1), receipt(1, 2, settled=True), receipt(0, 1, settled=True, subscription=1)),
    ],
    ids=["forgotten", "forgotten twice", "given back", "settled in another view"],
)
def test_a_message_that_is_not_settled_and_never_comes_again_is_stranded(received: tuple[ReceivedRow, ...]) -> None:
    assert stranded(*received) == 1


@pytest.mark.parametrize(
    "received",
    [
        (receipt(0, 1, settled=True),),
        (receipt(0, 1, settling=2 * SECOND),),
        (receipt(0, 1), receipt(0, 12, settled=True)),
        (receipt(0, 1, settled=True), receipt(0, 1)),
        (receipt(0, 1, held_until=0),),
    ],
    ids=["settled", "no answer to its acknowledgement", "came again", "came twice", "popped"],
)
def test_a_message_that_may_have_been_settled_is_not_stranded(received: tuple[ReceivedRow, ...]) -> None:
    assert stranded(*received) == 0


def test_a_run_that_ends_too_soon_after_the_lease_accuses_nobody() -> None:
    grace = quiet_seconds(workload_of(receiving={"visibility": VISIBILITY, "wait": 0})) - VISIBILITY - MARGIN_SECONDS
    over = 1 + VISIBILITY

    assert grace > VISIBILITY
    assert stranded(receipt(0, 1), answered=over + grace) == 1
    assert stranded(receipt(0, 1), answered=over + grace - 0.1) == 0
    assert stranded(receipt(0, 1), since=50, answered=50 + grace) == 1
    assert stranded(receipt(0, 1), since=50, answered=50 + grace - 0.1) == 0


def test_what_failed_as_often_as_its_group_allows_may_be_a_dead_letter() -> None:
    twice = receipt(0, 1), receipt(0, 20)

    assert stranded(*twice, group={"max_failures": 3}) == 1
    assert stranded(*twice, group={"max_failures": 2}) == 0
    assert stranded(*(receipt(0, 20 * at) for at in range(30)), group={"max_failures": 0}) == 1


def test_tries_in_answers_that_were_lost_count() -> None:
    assert stranded(receipt(0, 1), group={"max_failures": 3}, answered=25) == 1
    assert stranded(receipt(0, 1), group={"max_failures": 3}, answered=25, unanswered={0: 1}) == 0
    assert stranded(receipt(0, 1), group={"max_failures": 30}, answered=25, unanswered={0: 1}) == 1


def test_what_was_given_back_has_the_time_of_its_pause() -> None:
    failed = receipt(0, 1, flags=FAILED, held_until=SECOND)

    assert stranded(failed, answered=90) == 1
    assert stranded(failed, answered=90, group={"backoff": {"first": 100}}) == 0


def test_what_is_behind_an_open_message_of_its_key_waits_for_that() -> None:
    behind = receipt(1, 1, key=5)

    assert stranded(receipt(0, LONG - 5, key=5), behind) == 0
    assert stranded(receipt(0, LONG - 5, key=6), behind) == 1


def test_a_group_with_order_by_key_and_tries_without_end_accuses_nobody() -> None:
    forever: dict[str, Any] = {"keys": {"count": 2}, "group": {"max_failures": 0}}

    assert stranded(receipt(0, 1, key=1), receiving={"poison": 0.1}, **forever) == 0
    assert stranded(receipt(0, 1, key=1), **forever) == 1


@pytest.mark.parametrize("rate", [0, 0.2])
def test_a_system_that_forgets_what_its_receivers_forgot_is_found(rate: float) -> None:
    workload = workload_of(
        producerRate=1000,
        seconds=2,
        consumerPerSubscription=2,
        receiving={"batch": 1, "crash": 0.2, "visibility": 1, "wait": 0},
        group={"max_failures": 0},
    )

    found = run_by_clock(workload, "faulty", {"forget": str(rate)}).findings

    assert found.redelivered > 200
    assert bool(found.counts["stranded"]) == bool(rate)
    assert found.counts["lost"] == found.counts["duplicates"] == 0


@pytest.mark.parametrize("rate", [0, 0.2])
def test_a_system_that_hands_out_what_has_to_wait_for_its_key_is_found(rate: float) -> None:
    workload = workload_of(
        producerRate=1000,
        seconds=2,
        consumerPerSubscription=4,
        keys={"count": 2},
        receiving={"batch": 1, "crash": 0.2, "visibility": 1, "wait": 0},
        group={"max_failures": 0},
    )

    found = run_by_clock(workload, "faulty", {"overtake": str(rate)}).findings

    assert bool(found.counts["overtaken"]) == bool(rate)
    assert found.counts["lost"] == found.counts["duplicates"] == found.counts["stranded"] == 0


def test_what_cannot_be_overtaken_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="leases of messages with keys"):
        run_by_clock(workload_of(producerRate=1000, seconds=2), "faulty", {"overtake": "0.1"})


class TestOpenMessages:
    def test_a_message_is_open_until_it_may_be_settled(self) -> None:
        opened = OpenMessages(workload_of())

        opened.note(receipt(0, 1))
        opened.note(receipt(1, 1, settled=True))
        assert (opened.count, opened.moves) == (1, 1)
        opened.note(receipt(0, 20))
        assert (opened.count, opened.moves) == (1, 2)
        opened.note(receipt(0, 40, settling=41 * SECOND))
        opened.note(receipt(0, 60))
        assert (opened.count, opened.moves) == (0, 2)

    def test_a_message_that_may_be_a_dead_letter_is_not_waited_for(self) -> None:
        opened = OpenMessages(workload_of(group={"max_failures": 2}))

        opened.note(receipt(0, 1))
        assert opened.count == 1
        opened.note(receipt(0, 20, flags=FAILED))
        assert opened.count == 0

    def test_a_message_that_fails_for_longer_than_the_run_has_time_is_not_waited_for(self) -> None:
        opened = OpenMessages(workload_of(group={"max_failures": 0}))

        opened.note(receipt(0, 1, flags=FAILED))
        assert (opened.count, opened.moves) == (0, 0)
