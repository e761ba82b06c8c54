"""What is cached of queues, and what a change drops."""

from __future__ import annotations

from math import inf
from uuid import UUID

import pytest

from queuey.model import Queue
from queuey.recent import ONE_IN
from queuey.service import queue_cache
from queuey.service.queue_cache import QueueCache


def _queue(number: int) -> Queue:
    return Queue("demo", f"q{number}", UUID(int=number + 1), number)


def _cache(trusted: float = inf) -> QueueCache:
    return QueueCache(trusted, lambda: 0.0)


def _found(cache: QueueCache, number: int) -> Queue | None:
    return cache.queue("demo", f"q{number}")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_cache, "CACHED_QUEUES", 2)


@pytest.mark.usefixtures("few")
def test_queues_that_were_used_before_are_known_in_the_compact_form() -> None:
    cache = _cache()
    for number in range(10):
        cache.learn(_queue(number), 0.0, cache.changes)

    assert [_found(cache, number) for number in range(11)] == [*map(_queue, range(10)), None]


@pytest.mark.usefixtures("few")
def test_where_others_change_queues_only_the_last_ones_are_known() -> None:
    cache = _cache(30.0)
    for number in range(10):
        cache.learn(_queue(number), 0.0, cache.changes)

    assert [number for number in range(10) if _found(cache, number)] == [8, 9]


@pytest.mark.usefixtures("few")
def test_a_change_drops_a_queue_in_both_forms() -> None:
    cache = _cache()
    for number in range(4):
        cache.learn(_queue(number), 0.0, cache.changes)
    for number in (0, 3):
        cache.forget(_queue(number))

    assert [number for number in range(4) if _found(cache, number)] == [1, 2]


def test_a_look_up_from_before_a_change_is_not_kept() -> None:
    cache = _cache()
    before = cache.changes
    cache.forget(_queue(1))
    cache.learn(_queue(1), 0.0, before)

    assert _found(cache, 1) is None


def test_a_queue_that_was_made_is_known_unless_it_was_changed_meanwhile() -> None:
    cache, before = _cache(), 0
    cache.made(_queue(1), before)
    cache.forget(_queue(2))
    cache.made(_queue(2), before)

    assert [_found(cache, 1), _found(cache, 2)] == [_queue(1), None]
    other = _cache(30.0)
    other.made(_queue(1), before)
    assert _found(other, 1) is None


def test_over_very_many_queues_only_those_in_steady_use_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_cache, "CACHED_QUEUES", 8)
    cache = _cache()
    for number in range(400):
        cache.made(_queue(number), 0)
    for number in range(80):
        _found(cache, number)

    objects = [number for number in range(80, 400) if [_found(cache, number)] == cache.used("demo", 1)]
    assert len(objects) in (320 // ONE_IN, 320 // ONE_IN + 1)
    steady = [_found(cache, 1) for _ in range(ONE_IN)]
    assert steady == [_queue(1)] * len(steady)
    assert cache.used("demo", 1) == [_queue(1)]


def test_settings_that_are_too_old_are_known_and_not_used() -> None:
    now = 0.0
    cache = QueueCache(30.0, lambda: now)
    cache.learn(_queue(1), 0.0, 0)
    now = 30.0
    known = cache.get("demo", "q1")

    assert _found(cache, 1) is None
    assert known is not None
    assert (known.queue, known.since) == (_queue(1), 0.0)
