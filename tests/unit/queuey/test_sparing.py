from __future__ import annotations

import logging

import pytest

from queuey.clock import ManualClock
from queuey.sparing import QUIET_SECONDS, SparingLog

log = logging.getLogger(__name__)


def test_a_kind_has_a_line_at_once_and_then_one_a_second(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    sparing = SparingLog(log, clock.elapsed)
    for number in range(500):
        sparing.write("full", logging.WARNING, "refused %d", number)
    sparing.write("other", logging.ERROR, "failed", error="so")
    clock.advance(QUIET_SECONDS)
    sparing.write("full", logging.WARNING, "refused %d", 500)
    sparing.write("other", logging.ERROR, "failed", error="so")

    assert [record.getMessage() for record in caplog.records] == [
        "refused 0",
        "failed",
        "refused 500 (and 499 like it before)",
        "failed",
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "WARNING", "ERROR"]
    assert [vars(record).get("left_out") for record in caplog.records] == [None, None, 499, None]
    assert vars(caplog.records[1])["error"] == "so"


def test_very_many_kinds_take_no_more_memory(caplog: pytest.LogCaptureFixture) -> None:
    sparing = SparingLog(log, ManualClock().elapsed)
    for kind in range(2500):
        sparing.write(kind, logging.WARNING, "%d", kind)
    assert len(caplog.records) == 2500
    assert len(sparing._kinds) <= 1000
