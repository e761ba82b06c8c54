"""Whatever the wall clock does, and whenever a process dies: the next one goes on above all that was given out (G3, G4)."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from queuey.clock import ManualClock
from queuey.ids import Anchor, IdGenerator

STEPS = st.floats(-100, 100)


class Lives(RuleBasedStateMachine):
    """Processes one after the other on one disk, which holds the last anchor that was noted."""

    keeps_to_anchors = True

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.on_disk: Anchor | None = None
        self.noting: Anchor | None = None
        self.stamped = 0
        self.served = 0
        self.begin()

    def begin(self) -> None:
        """As a store is opened: above what the anchor tells, and with an anchor of its own."""
        self.ids = IdGenerator(self.clock)
        if self.on_disk is not None:
            self.ids.raise_floor(self.on_disk.bound(self.clock.elapsed()))
        self.start_noting()
        self.finish_noting()

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(seconds=STEPS)
    def the_wall_clock_is_stepped(self, seconds: float) -> None:
        self.clock.step(seconds)

    @rule(count=st.integers(1, 100))
    def stamp(self, count: int) -> None:
        first = self.ids.stamp(count)
        assert first > max(self.stamped, self.served)
        self.stamped = first + count - 1

    @rule()
    def serve_a_watermark(self) -> None:
        watermark = self.ids.watermark()
        assert watermark >= max(self.served, self.stamped)
        self.served = watermark

    @rule()
    def start_noting(self) -> None:
        self.noting = self.ids.anchor() if self.keeps_to_anchors else Anchor(self.ids.last_ticks, self.clock.elapsed())

    @precondition(lambda self: self.noting is not None)
    @rule()
    def finish_noting(self) -> None:
        assert self.noting is not None
        self.on_disk = self.noting
        if self.keeps_to_anchors:
            self.ids.anchored(self.noting)
        self.noting = None

    @rule(noted=st.booleans(), down=st.floats(0, 100), step=STEPS)
    def die(self, noted: bool, down: float, step: float) -> None:
        """What was being noted may have come to the disk, or not."""
        if noted and self.noting is not None:
            self.on_disk = self.noting
        self.clock.advance(down)
        self.clock.step(step)
        self.begin()

    @invariant()
    def a_step_counts_once_it_is_noted(self) -> None:
        if not self.ids.held_back:
            assert self.ids.watermark() >= self.clock.now_ticks()
            self.served = self.ids.watermark()


class Careless(Lives):
    """The planted fault: notes where it is, and does not keep to it."""

    keeps_to_anchors = False


def test_no_life_gives_out_what_an_earlier_one_was_past() -> None:
    run_state_machine_as_test(Lives, settings=settings(max_examples=200, stateful_step_count=40, deadline=None))


def test_a_generator_that_does_not_keep_to_its_anchor_is_found_out() -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Careless,
            settings=settings(
                max_examples=2000, stateful_step_count=40, deadline=None, database=None, phases=[Phase.generate]
            ),
        )


def test_ids_stamped_in_one_moment_do_not_pass_the_anchor_either() -> None:
    """The wall clock was stepped, and the process dies before the step is noted."""
    clock = ManualClock()
    ids = IdGenerator(clock)
    anchor = ids.anchor()
    ids.anchored(anchor)
    clock.step(1.0)

    last = ids.stamp(10_000) + 10_000 - 1

    assert last <= anchor.bound(clock.elapsed())
