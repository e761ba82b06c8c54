"""The judge and systems with order by key: it accuses none that keeps its promises, and finds each that does not."""

from __future__ import annotations

from typing import get_args

import pytest

from qdo.bench.judge import Findings, judged
from qdo.bench.records import ReceivedRow
from tests.support.bench_by_clock import workload_of
from tests.support.bench_histories import KeyHistory, KeySystem, Lie

SEEDS = range(40)
PROMISED = ("stranded", "duplicates", "key_out_of_order", "overtaken", "overlaps", "returned", "ghosts")
SHOWS: dict[Lie, str] = {
    "opens while one waits": "overtaken",
    "opens when a lease ends": "overtaken",
    "opens at once": "overtaken",
    "returns": "returned",
    "forgets": "stranded",
}


def found(system: KeySystem, seed: int) -> tuple[Findings, list[ReceivedRow]]:
    history = KeyHistory(system, seed)
    mode = "pop" if system.pops else "receive"
    workload = workload_of(
        consumerPerSubscription=4,
        keys={"count": 3},
        receiving={"mode": mode, "visibility": 1, "wait": 3},
        seconds=1,
        group={"max_failures": system.max_failures},
    )
    return judged(workload, history.sent, history.received, history.quiet), history.received


@pytest.mark.parametrize(
    "system",
    [{}, {"per_key": 3}, {"max_failures": 2}, {"per_key": 3, "max_failures": 1}, {"pops": True}],
    ids=["one of a key", "several of a key", "dead letters", "several, and dead letters", "pops"],
)
def test_a_system_that_keeps_its_promises_is_not_accused(system: dict[str, int]) -> None:
    redelivered = received = 0
    for seed in SEEDS:
        findings, _ = found(KeySystem(**system), seed)  # type: ignore[arg-type]
        redelivered, received = redelivered + findings.redelivered, received + findings.received
        assert {kind: findings.examples[kind] for kind in PROMISED if findings.counts[kind]} == {}, seed

    assert received > 1000
    assert redelivered > 100 or system.get("pops") or system.get("max_failures") == 1


@pytest.mark.parametrize("lie", get_args(Lie))
def test_a_system_that_lies_is_found(lie: Lie) -> None:
    counts = [found(KeySystem(lie=lie), seed)[0].counts[SHOWS[lie]] for seed in SEEDS]

    assert sum(count > 0 for count in counts) > len(SEEDS) // 2, counts
