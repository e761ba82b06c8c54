"""Queues in a compact form, compared with a dictionary."""

from __future__ import annotations

import tracemalloc
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.model import Queue, QueueKind, Retention
from queuey.model.lease_groups import LeaseDefaults
from queuey.service import compact_queues
from queuey.service.compact_queues import MOST_KIND_CHARACTERS, CompactQueues

_SETTINGS: list[dict[str, Any]] = [
    {},
    {"partitions": 4, "kind": QueueKind.PUBLIC},
    {"retention": Retention.ACKNOWLEDGED, "leases": LeaseDefaults('{"k": 3}'), "attributes": "{}"},
]


def _queue(number: int, **settings: Any) -> Queue:
    return Queue("demo", f"q{number}", UUID(int=number + 1), 1000 + number)._replace(**settings)


@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from([None, 0, 1, 2])), max_size=400))
def test_what_was_added_is_found_until_it_is_forgotten(steps: list[tuple[int, int | None]]) -> None:
    known, model = CompactQueues(), dict[int, Queue]()
    for number, kind in steps:
        if kind is None:
            known.forget("demo", f"q{number}")
            model.pop(number, None)
        else:
            model[number] = _queue(number, **_SETTINGS[kind])
            known.add(model[number])
    assert len(known) == len(model)
    assert [known.find("demo", f"q{number}") for number in range(100)] == [model.get(number) for number in range(100)]


def test_applications_do_not_share_names() -> None:
    known = CompactQueues()
    known.add(_queue(1))

    assert known.find("other", "q1") is None
    known.forget("other", "q1")
    assert known.find("demo", "q1") == _queue(1)


def test_there_is_a_bound_and_the_last_ones_are_mostly_there() -> None:
    known = CompactQueues(most=1000)
    for number in range(5000):
        known.add(_queue(number))

    assert len(known) == 1000
    assert sum(known.find("demo", f"q{number}") is not None for number in range(4000, 5000)) > 500


def test_a_queue_takes_64_bytes_at_most() -> None:
    known, queue = CompactQueues(), _queue(0)
    tracemalloc.start()
    try:
        for number in range(10_000):
            known.add(queue._replace(name=f"q{number}"))
        taken = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()

    own = taken.filter_traces([tracemalloc.Filter(True, compact_queues.__file__)])  # no other thread's
    size = sum(one.size for one in own.statistics("filename"))
    assert 20 < size / 10_000 <= 64


def test_settings_that_are_mostly_its_own_are_not_kept() -> None:
    known = CompactQueues()
    known.add(_queue(1))
    known.add(_queue(1, principals=("user:a",)))
    known.add(_queue(2, attributes="x" * MOST_KIND_CHARACTERS))

    assert [known.find("demo", "q1"), known.find("demo", "q2")] == [None, None]
    assert not len(known)


def test_kinds_of_settings_are_bounded_and_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_queues, "MOST_KINDS", 3)
    known = CompactQueues()
    for number in range(4):
        known.add(_queue(number, attributes=str(number)))
    assert known.find("demo", "q3") is None
    known.forget("demo", "q0")
    known.add(_queue(3, attributes="3"))

    assert [known.find("demo", f"q{number}") for number in range(1, 4)] == [
        _queue(number, attributes=str(number)) for number in range(1, 4)
    ]


def test_a_digest_that_stands_across_two_records_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    incarnation = uuid4()
    digests = {"a": b"A" * 14, "b": b"B" * 14, "c": incarnation.bytes[:14]}
    monkeypatch.setattr(CompactQueues, "_digest", lambda _, application, name: digests[name])
    known = CompactQueues()
    known.add(Queue("demo", "a", incarnation, 1))
    assert known.find("demo", "c") is None
    known.add(Queue("demo", "c", uuid4(), 2))

    assert [getattr(known.find("demo", name), "created_ticks", None) for name in "abc"] == [1, None, 2]
