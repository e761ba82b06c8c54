"""Tracebacks in logs: they are there, they are bounded, and they can be written whatever an exception says."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from qdo.worker.job import FailedMessages
from queuey.monitor.logs import JsonFormatter, TextFormatter
from queuey.tracebacks import MOST_CHARACTERS


def fail(text: str) -> None:
    raise ValueError(text)


def record(text: str) -> logging.LogRecord:
    try:
        fail(text)
    except ValueError:
        return logging.LogRecord("qdo", logging.WARNING, __file__, 1, "attempt failed", None, sys.exc_info())
    raise AssertionError


@pytest.mark.parametrize("text", ["no", "x" * 3_000_000, "\udcff", "two\nlines"])
def test_a_log_has_a_bounded_traceback_in_both_forms(text: str) -> None:
    line = json.loads(JsonFormatter().format(record(text)))
    plain = TextFormatter().format(record(text))

    for said in (line["exception"], plain):
        assert said.encode()
        assert "raise ValueError(text)" in said
        assert len(said) < MOST_CHARACTERS + 200


def test_a_failure_is_told_from_the_lines_of_the_job_on() -> None:
    try:
        fail("no")
    except ValueError as error:
        failed = FailedMessages("q", (), 1, error)

    assert failed.traceback.startswith("Traceback (most recent call last):\n")
    assert failed.traceback.endswith("ValueError: no")
    assert Path(__file__).name in failed.traceback
