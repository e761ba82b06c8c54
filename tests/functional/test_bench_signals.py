"""Ctrl-C in a terminal reaches all processes of ``queuey bench``: the parent ends them, and none has a traceback of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.proc import born, children_of
from tests.support.source import ROOT

LONG = """
name: long
producerRate: 400
messageSize: 128
queuey:
  about: Longer than the test waits.
  seconds: 600
  warmup: 0
  repeats: 1
  processes: 4
  start: queuey
"""


@pytest.mark.parametrize(
    ("words", "after"),
    [
        *(("run long.yaml", after) for after in (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)),
        ("speed --seconds 600", 0.0),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_processes_that_begin_are_ended_without_a_traceback(
    tmp_path: Path, number: signal.Signals, words: str, after: float
) -> None:
    """SIGINT goes to all of them, as a terminal sends it; SIGTERM to the command alone."""
    (tmp_path / "long.yaml").write_text(LONG)
    program = subprocess.Popen(
        [sys.executable, "-m", "queuey.cli", "bench", *words.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        give_up = time.monotonic() + 60
        while not (processes := children_of(program.pid, "multiprocessing.spawn")):
            assert program.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.002)
        time.sleep(after)
        os.killpg(program.pid, number) if number is signal.SIGINT else program.send_signal(number)
        _, said = program.communicate(timeout=60)
    finally:
        program.kill()
        program.wait()

    assert program.returncode == 128 + number
    assert "Traceback" not in said
    assert [pid for pid in processes if born(pid) is not None] == []
