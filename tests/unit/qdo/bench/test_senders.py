"""A server that stalls: an open loop shows it, a closed loop hides it. And what a sender writes down."""

from __future__ import annotations

import random

import pytest

from qdo.bench.bodies import NO_KEY
from qdo.bench.clock import SECOND
from qdo.bench.measuring import Meter
from qdo.bench.records import REFUSED, STORED, UNKNOWN, SentRow
from qdo.bench.senders import key_of
from qdo.bench.verdict import checks
from tests.support.bench_by_clock import run_by_clock, workload_of

STALLS = {"stall": "1", "every": "10", "service": "0.0005"}


def test_an_open_loop_shows_the_stall_in_its_p99() -> None:
    times = run_by_clock(workload_of(producerRate=300, seconds=30), options=STALLS).times

    assert times.response.percentile(99) / 1e9 == pytest.approx(0.95, abs=0.06)
    assert times.service.percentile(99) / 1e6 < 1, "the service time alone hides it"
    assert times.lag.percentile(99.9) / 1e6 < 0.1, "and it is none of the generator's doing"
    assert times.waited > 0.1 * times.response.count


def test_a_closed_loop_hides_the_stall() -> None:
    times = run_by_clock(workload_of(seconds=40), options={**STALLS, "service": "0.005"}).times

    assert times.response.percentile(99) / 1e6 < 6
    assert times.response.most / 1e9 == pytest.approx(1, abs=0.01)
    assert times.response.count > 7000


def test_a_closed_loop_may_end_after_a_number_of_messages() -> None:
    repeat = run_by_clock(workload_of(seconds=1000, messages=50, producersPerTopic=3))

    assert repeat.findings.stored == 150
    assert repeat.findings.distinct == 150


def test_a_closed_loop_sends_its_number_also_if_that_is_no_multiple_of_a_batch() -> None:
    workload = workload_of(messages=15, batch=10, producersPerTopic=3, seconds=60)

    found = run_by_clock(workload).findings

    assert (found.stored, found.distinct) == (45, 45)


def test_batches_are_sent_together_and_rates_count_messages() -> None:
    repeat = run_by_clock(workload_of(producerRate=100, batch=10, seconds=2))

    assert repeat.times.response.count == 20
    assert repeat.findings.distinct == 200


def test_the_warm_up_is_judged_and_not_measured() -> None:
    repeat = run_by_clock(workload_of(producerRate=100, seconds=2, warmup=1))

    assert repeat.findings.distinct == 300
    assert repeat.times.response.count == 200
    assert repeat.times.publish_rate == 100


def test_phases_are_measured_apart() -> None:
    workload = workload_of(phases=[{"seconds": 1, "rate": 10}, {"seconds": 2, "rate": 50}])

    phases = run_by_clock(workload).times.phases

    assert [phase.requests for phase in phases] == [10, 100]


def test_a_noisy_key_has_its_share() -> None:
    workload = workload_of(keys={"count": 5, "noisy": 0.8})
    chance = random.Random(1)

    keys = [key_of(workload, number, chance) for number in range(1000)]

    assert 750 < keys.count(0) < 850
    assert {*keys} == {0, 1, 2, 3, 4}
    assert key_of(workload_of(), 3, chance) == NO_KEY


def test_keys_keep_their_order() -> None:
    workload = workload_of(
        producerRate=500, seconds=2, keys={"count": 4}, consumerPerSubscription=3, receiving={"batch": 3, "crash": 0.1}
    )

    repeat = run_by_clock(workload)

    assert repeat.findings.counts["key_out_of_order"] == 0
    assert repeat.findings.redelivered > 0
    assert repeat.findings.counts["lost"] == 0


def test_sizes_have_their_weights() -> None:
    workload = workload_of(producerRate=100, seconds=1, sizes=[{"bytes": 48}, {"bytes": 1000, "weight": 3}])

    assert run_by_clock(workload).findings.distinct == 100


def test_delayed_messages_are_not_early() -> None:
    repeat = run_by_clock(workload_of(producerRate=100, seconds=1, delay=5))

    assert (repeat.findings.counts["early"], repeat.findings.distinct) == (0, 100)


@pytest.mark.parametrize("share", [0, 1e-320, 0.01, 0.1, 0.3, 0.5, 0.7, 0.99, 1])
def test_poison_has_its_share(share: float) -> None:
    workload = workload_of(receiving={"poison": share})

    poison = [number for number in range(1000) if workload.is_poison(number)]

    assert abs(len(poison) - 1000 * share) <= 1
    assert poison[:1] == ([0] if share else []), "the first one, so that there is one"


def test_poison_is_given_back_and_the_rest_is_done() -> None:
    workload = workload_of(producerRate=100, seconds=1, receiving={"poison": 0.1, "batch": 10})

    found = run_by_clock(workload, steps=60).findings

    assert (found.distinct, found.counts["lost"], found.counts["duplicates"]) == (100, 0, 0)
    assert found.redelivered > 100


def test_a_rate_that_the_system_does_not_carry_is_not_what_it_is_said_to_store() -> None:
    """Five times what it can: the load is sent in five times its time."""
    times = run_by_clock(workload_of(producerRate=1000, seconds=2), options={"service": "0.005"}).times

    assert times.publish_rate == pytest.approx(200, rel=0.01)
    assert times.phases[0].requests == 2000
    assert times.phases[0].rate == pytest.approx(200, rel=0.01)
    assert max(times.stored_by_second.values()) <= 201


def test_what_a_warm_up_left_undone_takes_nothing_from_the_rate() -> None:
    times = run_by_clock(workload_of(producerRate=400, seconds=2, warmup=2), options={"service": "0.005"}).times

    assert times.publish_rate == pytest.approx(200, rel=0.01)


def test_nothing_is_stored_in_the_seconds_in_which_the_server_stands_still() -> None:
    times = run_by_clock(workload_of(producerRate=100, seconds=9), options={"stall": "2", "every": "5"}).times

    assert [times.stored_by_second[second] for second in range(9)] == [0, 0, 300, 100, 100, 0, 0, 300, 100]
    assert times.publish_rate == pytest.approx(100, rel=0.01), "and all is caught up with in time"


def test_a_closed_loop_that_ends_early_is_as_fast_as_it_was() -> None:
    times = run_by_clock(workload_of(seconds=1000, messages=50), options={"service": "0.01"}).times

    assert times.publish_rate == pytest.approx(100, rel=0.01)


def test_what_a_slow_system_has_no_time_for_is_left_unsent_and_said() -> None:
    """A load of a second, of which a hundredth is done in that time and twice as much while it drains."""
    repeat = run_by_clock(workload_of(producerRate=1000, seconds=1, drain=2), options={"service": "0.1"})

    assert repeat.findings.sent == pytest.approx(30, abs=1)
    assert repeat.findings.sent + repeat.unsent == 1000
    (check,) = [one for one in checks([repeat]) if one.name == "all that was due was sent"]
    assert not check.ok
    assert f"{repeat.unsent} requests" in check.said


def test_a_request_without_an_answer_counts_with_the_time_that_it_took() -> None:
    """One in fifty waits for half a minute in vain. Refusals take no time, and count for none."""
    meter = Meter(workload_of(producerRate=100, seconds=10), 0)
    for number in range(1000):
        outcome = UNKNOWN if number % 50 == 0 else REFUSED if number % 2 else STORED
        begun = number * SECOND // 100
        took = {UNKNOWN: 30 * SECOND, REFUSED: 0, STORED: SECOND // 1000}[outcome]
        meter.take_sent(SentRow(0, number, 1, outcome, begun, begun, begun, begun + took))

    assert meter.times.response.percentile(99) / 1e9 == pytest.approx(30, rel=0.01)
    assert meter.times.response.least / 1e6 == 1
    assert meter.times.phases[0].requests == sum(meter.times.stored_by_second.values()) == 480
