"""For how long an event loop lets receivers wait is noted."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from selectors import EVENT_READ

import pytest

from qdo.bench.clock import MILLISECOND
from qdo.bench.histogram import TimeHistogram
from qdo.bench.serving import WatchedSelector


class MovedClock:
    """A clock that a test moves."""

    moment = 0

    def __call__(self) -> int:
        return self.moment


@pytest.fixture
def readable() -> Iterator[socket.socket]:
    here, there = socket.socketpair()
    there.send(b"x")
    with here, there:
        yield here


def waits(readable: socket.socket, begin: int, *work_ms: int) -> list[int]:
    """Milliseconds that are noted when the loop works for these times between its looks."""
    clock, lag = MovedClock(), TimeHistogram()
    with WatchedSelector(lag, begin, clock) as selector:
        selector.register(readable, EVENT_READ)
        for took in work_ms:
            assert len(selector.select(0)) == 1
            clock.moment += took * MILLISECOND
        selector.select(0)
    return [round(milliseconds) for milliseconds, _ in lag.curve()]


def test_an_event_waited_since_the_look_before_at_most(readable: socket.socket) -> None:
    assert waits(readable, 0, 3, 4) == [3, 7]


def test_what_is_handled_in_the_warm_up_does_not_count(readable: socket.socket) -> None:
    assert waits(readable, 5 * MILLISECOND, 3, 4) == [7]
