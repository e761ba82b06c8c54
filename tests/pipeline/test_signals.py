"""Signals to a job: which are the first one again, and which end it without waiting for Spark."""

from __future__ import annotations

from queue import SimpleQueue
from signal import SIGHUP, SIGINT, SIGTERM

import pytest

from qdo.cli.pipeline.running import _another


@pytest.mark.parametrize(
    ("numbers", "times", "ending"),
    [
        ([SIGTERM], [1.0], SIGTERM),
        ([SIGHUP, SIGHUP, SIGINT], [1.0] * 3, SIGINT),  # a terminal that goes, and its shell
        ([SIGTERM, SIGINT], [0.0, 1.0], SIGINT),  # timeout sends one to the process and one to its group
        ([None, SIGTERM], [1.0] * 2, SIGTERM),  # the job has ended
    ],
)
def test_another_signal_is_none_that_belongs_to_the_first(
    numbers: list[int | None], times: list[float], ending: int
) -> None:
    heard: SimpleQueue[int | None] = SimpleQueue()
    for number in numbers:
        heard.put(number)
    now = iter(times)

    assert _another(heard, 0.1, lambda: next(now)) == ending
    assert heard.empty()
