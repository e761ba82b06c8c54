"""The perfect system is perfect: whatever its receivers do, the judge has nothing against it."""

from __future__ import annotations

from tests.support.bench_by_clock import run_by_clock, workload_of


def test_what_is_given_back_is_handed_out_once() -> None:
    """Receivers forget some messages, and fail at others, which so come to another one at once."""
    receiving = {"batch": 7, "visibility": 0.1, "wait": 0, "crash": 0.2, "poison": 0.05}
    workload = workload_of(producerRate=1000, seconds=0.5, consumerPerSubscription=3, receiving=receiving)

    findings = run_by_clock(workload, steps=3000).findings

    assert findings.redelivered > 0
    assert {kind: count for kind, count in findings.counts.items() if count and kind != "out_of_order"} == {}
