from __future__ import annotations

from queuey.clock import ManualClock
from queuey.service.shared_events import SharedEvents


def test_an_event_is_made_once_a_second_for_all_that_send_it() -> None:
    clock = ManualClock()
    shared, made = SharedEvents(clock), list[str]()

    def make() -> bytes:
        made.append("again")
        return b"%d" % len(made)

    for _ in range(10):
        assert shared.event("demo", make) == b"1"
    assert shared.event("other", make) == b"2"
    clock.advance(1)
    assert shared.event("demo", make) == b"3"
    assert len(made) == 3


def test_all_streams_wait_for_the_same_moment() -> None:
    clock = ManualClock()
    shared, began = SharedEvents(clock), clock.elapsed()

    moment = shared.next_second()
    assert began < moment <= began + 1
    clock.advance((moment - began) / 2)
    assert shared.next_second() == moment
    clock.advance((moment - began) / 2)
    assert shared.next_second() == moment + 1
