"""A process that a test can stop, kill and find again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import eventually
from tests.support.services.process import Process, ServiceError

COUNTS = "import itertools, time\nfor n in itertools.count(): print(n, flush=True); time.sleep(0.01)"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """One that says ever higher numbers."""
    process = Process(tmp_path / "counter", [sys.executable, "-c", COUNTS])
    process.start()
    yield process
    process.kill()


def says_more(process: Process) -> bool:
    before = process.log.stat().st_size
    return eventually(lambda: process.log.stat().st_size > before)


def test_it_runs_in_a_session_of_its_own(process: Process) -> None:
    assert process.pid is not None
    assert os.getsid(process.pid) == process.pid
    assert says_more(process)
    assert process.resident_bytes > 0


def test_paused_it_says_nothing_and_goes_on_afterwards(process: Process) -> None:
    process.pause()
    assert process.paused
    said = process.log.read_text()

    assert process.log.read_text() == said
    process.resume()
    assert says_more(process)


def test_killed_it_is_gone_and_may_start_again(process: Process) -> None:
    first = process.pid
    process.kill()

    assert process.pid is None
    assert process.resident_bytes == 0
    process.start()
    assert process.pid not in (None, first)


def test_a_paused_one_is_stopped_too(process: Process) -> None:
    process.pause()
    assert process.paused

    process.stop()

    assert process.pid is None


def test_whoever_has_the_folder_finds_it(process: Process) -> None:
    other = Process(process.folder, [])

    assert other.pid == process.pid
    other.kill()
    assert process.pid is None


def test_two_at_once_are_refused(process: Process) -> None:
    with pytest.raises(ServiceError, match="counter runs already, as process"):
        process.start()


def test_one_that_ended_is_no_longer_there_and_what_it_said_is(tmp_path: Path) -> None:
    process = Process(tmp_path / "brief", [sys.executable, "-c", "print('too early')"])
    process.start()
    eventually(lambda: process.pid is None)

    assert process.log_end() == "too early"
    with pytest.raises(ServiceError, match="brief does not run; it said:\ntoo early"):
        process.pause()


def test_another_process_under_its_number_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(f"{os.getpid()} 1")
    process = Process(tmp_path, [])

    assert process.pid is None
    process.kill()  # or this line would be the last
