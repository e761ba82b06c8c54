"""How a run is judged: what a failing test leaves fails no other, and a skipped one has failed where all must run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source import ROOT

FAILING = """
import gc
import subprocess
import sys

import pytest


def kept_open():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.itself = child  # only the garbage collector finds it
    child.kill()
    return child


@pytest.fixture
def brings_something():
    child = kept_open()
    raise AssertionError("the fixture fails")


@pytest.fixture
def breaks_at_the_end():
    yield
    child = kept_open()
    raise AssertionError("the end of the fixture fails")


def test_fails():
    child = kept_open()
    try:
        child.nothing
    except AttributeError as error:
        raise ExceptionGroup("a group fails", [ValueError("inner")]) from error


def test_whose_fixture_fails(brings_something):
    pass


def test_whose_fixture_fails_at_its_end(breaks_at_the_end):
    pass


def test_comes_after_them():
    gc.collect()
"""


def run(folder: Path, *options: str, **variables: str) -> str:
    """What pytest says of the tests in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        [*command, "--rootdir", str(folder), str(folder)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_failing_test_left_open_fails_no_other(tmp_path: Path, alone: bool) -> None:
    (tmp_path / "test_open.py").write_text(FAILING)

    said = run(tmp_path, *(["-p", "tests.support.alone"] if alone else []))

    assert "AssertionError: the fixture fails" in said
    assert "a group fails" in said
    assert ("ResourceWarning" not in said) is alone, said
    if alone:
        assert "1 failed, 2 passed, 2 errors" in said


SKIPPING = """
import pytest


@pytest.mark.skipif(True, reason="a program is missing")
def test_by_its_mark():
    pass


def test_in_its_middle():
    pytest.skip("only root may do this")


@pytest.mark.xfail
def test_that_is_known_to_fail():
    assert False
"""


def test_nothing_is_skipped_where_all_must_run(tmp_path: Path) -> None:
    (tmp_path / "test_skips.py").write_text(SKIPPING)
    (tmp_path / "test_import.py").write_text("import pytest\npytest.importorskip('nothing_of_this_name')\n")

    said = run(tmp_path, "-p", "tests.support.unskipped", "--continue-on-collection-errors", CI="true")

    assert "1 failed, 1 xfailed, 2 errors" in said, said
    assert "only root may do this" in said
    assert "3 skipped" in run(tmp_path, "-p", "tests.support.unskipped")


FATAL = """
import os


def test_before():
    pass


def test_kills_its_process():
    os._exit(1)


def test_after():
    pass
"""

SCHEDULER = """
from tests.support.by_file import ByFile


def pytest_xdist_make_scheduler(config, log):
    return ByFile(config, log)
"""


def test_a_process_that_dies_takes_one_test_with_it(tmp_path: Path) -> None:
    """More finished files than tests that are left, so that empty work would stop the run."""
    (tmp_path / "conftest.py").write_text(SCHEDULER)
    for number in range(12):
        (tmp_path / f"test_a{number:02d}.py").write_text("def test_passes():\n    pass\n")
    (tmp_path / "test_b.py").write_text(FATAL)
    for number in range(2):
        (tmp_path / f"test_c{number}.py").write_text("def test_passes():\n    pass\n")

    said = run(tmp_path, "-p", "xdist", "-n", "1", "--no-loadscope-reorder")

    assert "1 failed, 16 passed" in said, said
    assert "crashed while running 'test_b.py::test_kills_its_process'" in said


def test_what_a_test_starts_hears_ctrl_c_however_the_run_was_started() -> None:
    """``make test &`` in a script begins with both signals ignored."""
    asked = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGQUIT).name)"
    child = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert child.stdout.split() == ["True", "SIG_DFL"]
