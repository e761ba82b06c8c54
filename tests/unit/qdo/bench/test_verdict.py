"""Trust: each reason alone is enough to lose it, and what was found counts in any case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qdo.bench.histogram import TimeHistogram
from qdo.bench.verdict import CLEAN, FOUND, NOT_TRUSTED, Repeat, checks, exit_code, violations
from qdo.bench.workload import Limits
from tests.support.bench_by_clock import run_by_clock, workload_of

WORKLOAD = workload_of(producerRate=1000, seconds=2)


@pytest.fixture(scope="module")
def good() -> Repeat:
    return run_by_clock(WORKLOAD)


def failed(*repeats: Repeat) -> list[str]:
    return [check.name for check in checks(repeats) if not check.ok]


def test_good_runs_are_trusted(good: Repeat) -> None:
    assert failed(good, good) == []
    assert exit_code([good, good], Limits(), None) == CLEAN


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"busy_before": 0.5}, "the machine is quiet"),
        ({"stolen": 0.1}, "the machine is quiet"),
        ({"processor_shares": (0.1, 0.95)}, "the generator is not the limit"),
        ({"unsent": 1}, "all that was due was sent"),
    ],
)
def test_a_run_that_was_disturbed_is_not_trusted(good: Repeat, values: dict[str, object], name: str) -> None:
    assert failed(good, replace(good, **values)) == [name]  # type: ignore[arg-type]
    assert exit_code([good, replace(good, **values)], Limits(), None) == NOT_TRUSTED  # type: ignore[arg-type]


@pytest.mark.parametrize(("share", "agrees"), [(0.01, True), (0.011, False)])
def test_a_system_that_refuses_much_has_no_speed(good: Repeat, share: float, *, agrees: bool) -> None:
    refused = replace(good.findings, sent=10_000, refused=round(10_000 * share))

    assert failed(good, replace(good, findings=refused)) == ([] if agrees else ["the system took the load"])
    assert failed(good, replace(good, findings=refused, faults=((0.5, "kill"),))) == []


def test_a_generator_that_lags_is_not_trusted() -> None:
    late = run_by_clock(WORKLOAD)
    for _ in range(100):
        late.times.lag.record(1_200_000)

    assert failed(late, late) == ["the generator is on time"]
    for nice, hint in ((0, True), (-10, False)):
        said = checks([replace(late, nice=nice)] * 2)[0].said
        assert ("root's generator goes before other processes" in said) == hint


def test_a_lag_that_is_small_beside_the_response_is_allowed() -> None:
    slow = run_by_clock(workload_of(producerRate=1000, seconds=2, drain=1000), options={"service": "0.1"})
    for _ in range(100):
        slow.times.lag.record(1_200_000)

    assert failed(slow, slow) == []


def test_few_samples_are_not_trusted() -> None:
    few = run_by_clock(workload_of(producerRate=100, seconds=2))

    assert failed(few, few) == ["there are enough samples"]


def test_one_run_is_not_trusted(good: Repeat) -> None:
    assert failed(good) == ["repeats agree"]


def test_runs_that_differ_are_not_trusted(good: Repeat) -> None:
    assert failed(good, run_by_clock(workload_of(producerRate=2000, seconds=2))) == ["repeats agree"]


def responses(milliseconds: float, good: Repeat) -> Repeat:
    """A run of the same rate with this response time."""
    times = TimeHistogram()
    for _ in range(2000):
        times.record(int(milliseconds * 1e6))
    return replace(good, times=replace(good.times, response=times))


@pytest.mark.parametrize(
    ("first", "second", "agree"), [(10, 11, True), (10, 20, False), (0.1, 0.2, True), (1, 2, False)]
)
def test_open_loops_whose_responses_differ_do_not_agree(
    good: Repeat, first: float, second: float, *, agree: bool
) -> None:
    """Their rates are those of the workload, and say nothing."""
    found = failed(responses(first, good), responses(second, good))

    assert found == ([] if agree else ["repeats agree"])


def test_a_closed_loop_is_compared_by_its_rate_alone(good: Repeat) -> None:
    closed = [
        replace(one, times=replace(one.times, is_closed=True)) for one in (responses(10, good), responses(20, good))
    ]

    assert failed(*closed) == []


def test_results_without_some_of_their_runs_are_partial(good: Repeat) -> None:
    (check,) = [one for one in checks([good, good], 3) if not one.ok]

    assert (check.name, check.said) == (
        "all runs were made",
        "the command ended after 2 of 3: these are partial results",
    )
    assert exit_code([good, good], Limits(), None, 3) == NOT_TRUSTED
    assert exit_code([good, good], Limits(), None, 2) == CLEAN


def test_what_was_found_counts_even_in_a_run_without_trust(good: Repeat) -> None:
    lost = run_by_clock(WORKLOAD, "faulty", {"lose": "0.01"})

    assert exit_code([replace(lost, busy_before=1.0)], Limits(), None) == FOUND
    (said,) = violations([good, lost], Limits())
    assert said.startswith("run 2: lost ")
    assert "message " in said


def test_a_limit_may_allow_what_was_found(good: Repeat) -> None:
    lost = run_by_clock(WORKLOAD, "faulty", {"lose": "0.01"})

    assert violations([lost], Limits(lost=None)) == []
    assert violations([lost], Limits(lost=1000)) == []
