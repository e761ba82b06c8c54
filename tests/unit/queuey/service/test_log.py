"""Surveys in steps, and reads of many partitions in turns with others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.clock import ManualClock
from queuey.future import run
from queuey.ids import MAX_ID, ZERO_ID
from queuey.model import AppendRequest, Draft, Queue, Span, SpanCount
from queuey.service import Service
from queuey.service.log import CountPace
from queuey.service.queues import QueueSettings
from queuey.settings import load_settings

EVERYTHING = Span(ZERO_ID, MAX_ID)
COUNT = 40


class Ticking(ManualClock):
    """A clock on which a second passes with each look."""

    def elapsed(self) -> float:
        self.advance(1)
        return super().elapsed()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    opened = Service.open(load_settings(None, {}, {"storage": {"backend": "memory"}}), clock=Ticking())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def queue(service: Service) -> Queue:
    """A queue with some messages in its first partition."""
    made = run(service.queues.create("demo", "q", QueueSettings(partitions=2)))
    run(service.log.append(AppendRequest(made, [Draft(1, b"x", 86_400)] * COUNT)))
    return made


def surveyed(service: Service, queue: Queue, limit: int, step: int, seconds: float, together: int) -> SpanCount:
    spans = [(1, EVERYTHING)]
    _, found = run(service.log.count_spans(queue, spans, limit=limit, step=step, pace=CountPace(seconds, together)))
    return found[0][1]


@given(limit=st.integers(0, 50), step=st.integers(0, 50), together=st.integers(1, 50))
def test_a_count_in_steps_is_that_in_one(service: Service, queue: Queue, limit: int, step: int, together: int) -> None:
    at_once = surveyed(service, queue, limit, step, 1e9, 1000)

    assert surveyed(service, queue, limit, step, 1e9, together) == at_once


def test_a_count_stops_counting_when_its_time_is_up(service: Service, queue: Queue) -> None:
    found = surveyed(service, queue, 1000, 0, 3.5, 10)
    whole = surveyed(service, queue, 1000, 0, 1e9, 10)

    assert (found.messages, found.more, found.newest) == (30, True, whole.newest)
    assert (whole.messages, whole.more) == (COUNT, False)


def test_a_count_without_time_still_tells_the_end(service: Service, queue: Queue) -> None:
    _, found = run(
        service.log.count_spans(queue, [(1, EVERYTHING), (2, EVERYTHING)], limit=9, step=0, pace=CountPace(0))
    )

    assert [(number, each.messages, each.more) for number, each in found] == [(1, 0, True), (2, 0, False)]
    assert found[0][1].newest is not None
