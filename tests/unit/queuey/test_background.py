"""A thread that takes turns: it is woken, outlives failures, and ends."""

from __future__ import annotations

import threading

import pytest

from queuey.background import BackgroundWork
from tests.support.servers import eventually


class Turns(BackgroundWork):
    """Counts its turns; those whose numbers are in ``failing`` fail."""

    def __init__(self, *failing: int, rest_seconds: float = 0.0, rests_first: bool = False) -> None:
        super().__init__("turns", rest_seconds, rests_first=rests_first)
        self.failing, self.taken = failing, 0

    async def turn(self) -> None:
        self.taken += 1
        if self.taken in self.failing:
            raise ArithmeticError


def test_it_sleeps_until_it_is_woken() -> None:
    work = Turns()
    work.start()

    assert work.taken == 0
    work.wake()
    eventually(lambda: work.taken == 1)
    work.wake()
    eventually(lambda: work.taken == 2)
    work.stop()
    work.stop()

    work.wake()
    assert work.taken == 2
    assert work.stopping


def test_a_turn_that_fails_is_followed_by_another(caplog: pytest.LogCaptureFixture) -> None:
    work = Turns(1, 2)
    work.start()

    work.wake()

    eventually(lambda: work.taken == 3)
    work.stop()
    assert [record.message for record in caplog.records] == ["a turn of turns failed"] * 2


@pytest.mark.parametrize("rest_seconds", [0.0, 1e6])
def test_one_whose_first_turn_was_taken_rests_first(rest_seconds: float) -> None:
    work = Turns(rest_seconds=rest_seconds, rests_first=True)
    work.wake()
    work.start()

    if not rest_seconds:
        assert eventually(lambda: work.taken == 1)
    work.stop()
    assert work.taken == (not rest_seconds)


def test_one_that_never_began_stops() -> None:
    work = Turns()

    work.stop()

    assert "turns" not in [thread.name for thread in threading.enumerate()]
