"""Slots: which queue is where, and in which batches a server is asked."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from qdo.groups.assign import assign_sticky, moved
from qdo.groups.coordination import Plan, plan_to_text
from qdo.groups.hash_slots import SLOTS, every_slot, slot_of
from qdo.groups.probes import PARTITIONS_IN_A_BATCH, QUEUES_IN_A_BATCH, Probe, probe_batches


@given(queue=st.from_regex(r"[A-Za-z0-9_.-]{1,50}", fullmatch=True))
def test_each_queue_has_one_slot(queue: str) -> None:
    assert slot_of(queue) == slot_of(queue)
    assert 1 <= slot_of(queue) <= SLOTS


def test_numbered_queues_are_spread_evenly() -> None:
    counts = Counter(slot_of(f"user-{number:06d}") for number in range(100_000))

    assert len(counts) == SLOTS
    assert max(counts.values()) < 1.3 * 100_000 / SLOTS


def test_members_divide_them_like_partitions_and_the_plan_stays_small() -> None:
    three, four = ["a", "b", "c"], ["a", "b", "c", "d"]
    before = assign_sticky(three, every_slot(), {})
    after = assign_sticky(four, every_slot(), before)

    assert sorted(slot for owned in after.values() for slot in owned) == every_slot()
    assert moved(before, after) == SLOTS // 4
    assert len(plan_to_text(Plan(1, after))) < 2000


@given(sizes=st.lists(st.tuples(st.integers(1, 200), st.integers(0, 3)), max_size=300))
def test_a_batch_has_no_more_than_a_server_reads_at_once(sizes: list[tuple[int, int]]) -> None:
    probes = [Probe(f"q{at}", partitions, since) for at, (partitions, since) in enumerate(sizes)]

    batches = probe_batches(probes)

    assert sorted(probe.queue for batch in batches for probe in batch) == sorted(probe.queue for probe in probes)
    for batch in batches:
        assert len(batch) <= QUEUES_IN_A_BATCH
        assert sum(probe.partitions for probe in batch) <= PARTITIONS_IN_A_BATCH
    moments = [probe.since for batch in batches for probe in batch]
    assert moments == sorted(moments)
