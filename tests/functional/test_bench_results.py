"""What ``queuey bench run`` has measured is kept, whatever comes after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from qdo.bench import running
from qdo.bench.drivers.memory import MemoryDriver
from qdo.bench.generator import Load, Ran, run_load
from queuey.cli import main
from queuey.errors import ConfigurationError, QueueNotFound, ServerStopping, StorageUnavailable, Unauthenticated
from tests.support.bench_runs import SMALL, bench, runs_of
from tests.support.source import ROOT


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(28, "No space left on device", "/tmp/x"), 5, "StorageUnavailable: /tmp/x: No space left on device"),
        (ServerStopping("later"), 5, "ServerStopping: later"),
        (QueueNotFound("gone"), 5, "QueueNotFound: gone"),
        (Unauthenticated("wrong key"), 5, "Unauthenticated: wrong key"),
        (BrokenPipeError(32, "Broken pipe"), 5, "StorageUnavailable: Broken pipe"),
        (ConfigurationError("wrong"), 2, "ConfigurationError: wrong"),
    ],
)
def test_whatever_ends_the_runs_keeps_those_that_are_finished_and_is_no_verdict(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, said: str
) -> None:
    """1 would say that the check found something, and 3 that figures are not to be trusted."""
    small.write_text(SMALL.replace("repeats: 1", "repeats: 3"))
    loads: list[Load] = []

    def fails(load: Load, **how: Any) -> Ran:
        loads.append(load)
        if len(loads) == 2:
            raise error
        return run_load(load, **how)

    monkeypatch.setattr(running, "run_load", fails)
    written = tmp_path / "a.json"

    done = CliRunner().invoke(main, ["bench", "run", str(small), "--driver", "memory", "--json", str(written)])

    assert done.exit_code == code, done.output
    assert said in done.stderr
    assert len(runs_of(written)) == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("redirection", "codes"), [("> /dev/full", {5}), ("| true", {0, 3})])
def test_a_place_that_takes_no_output_takes_no_file_with_it(
    small: Path, tmp_path: Path, redirection: str, codes: set[int], unbuffered: str
) -> None:
    """Nor is it a verdict."""
    words = "-m queuey.cli bench run small.yaml --driver memory --json a.json --html a.html"
    program = subprocess.run(
        ["sh", "-c", f"{{ {sys.executable} {words}; echo $? > code; }} {redirection}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert int((tmp_path / "code").read_text()) in codes
    assert "Traceback" not in program.stderr
    assert "Exception ignored" not in program.stderr
    assert len(runs_of(tmp_path / "a.json")) == 1
    assert (tmp_path / "a.html").stat().st_size > 0


def test_results_whose_labels_differ_in_signs_that_names_of_files_lack_are_all_kept(
    small: Path, tmp_path: Path
) -> None:
    small.write_text(SMALL.replace("seconds: 1", "seconds: 0.1") + "  vary: {payloadFile: ['a/b', 'a:b']}\n")

    done = CliRunner().invoke(
        main, ["bench", "run", str(small), "--driver", "memory", "--json", str(tmp_path / "a.json")]
    )

    assert done.exit_code == 3, done.output
    assert sorted(path.name for path in tmp_path.glob("a*.json")) == [
        f"a-memory-payloadFile=a-b-{at}.json" for at in (1, 2)
    ]


def test_what_many_receivers_wrote_down_is_read_where_few_files_may_be_open(small: Path, tmp_path: Path) -> None:
    """The limit of a process is 1,024 on most machines, and can be raised."""
    small.write_text(SMALL.replace("consumerPerSubscription: 2", "consumerPerSubscription: 150"))
    command = f"{sys.executable} -m queuey.cli bench run small.yaml --driver memory --json a.json"

    done = subprocess.run(
        ["sh", "-c", f"ulimit -Sn 100; exec {command}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode in (0, 3), done.stderr
    assert runs_of(tmp_path / "a.json")[0]["distinct"] == 400


def test_a_file_that_cannot_be_written_takes_no_other_one_with_it(small: Path, tmp_path: Path) -> None:
    """``/dev/full`` is a disk without room. A full disk is no finding of the judge, so the exit code is not 1."""
    words = ("--json", "/dev/full", "--html", "a.html", "--hlog", "a.hlog")

    done = bench("run", "small.yaml", "--driver", "memory", *words, folder=tmp_path)

    assert done.returncode == 2, done.stdout
    assert "/dev/full: No space left on device" in done.stderr
    assert "Verdict: " in done.stdout
    assert (tmp_path / "a.html").stat().st_size > 0
    assert (tmp_path / "a.hlog").stat().st_size > 0


def test_a_command_that_is_ended_keeps_the_runs_that_are_finished_and_says_that_they_are_not_all(
    small: Path, tmp_path: Path
) -> None:
    small.write_text(SMALL.replace("repeats: 1", "repeats: 9"))
    command = [sys.executable, "-m", "queuey.cli", "bench", "run", "small.yaml", "--driver", "memory"]
    program = subprocess.Popen(
        [*command, "--json", "a.json", "--html", "a.html"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stderr is not None
        for line in program.stderr:
            if "run 3 of 9" in line:
                break
        program.send_signal(signal.SIGINT)
        said, _ = program.communicate(timeout=60)
    finally:
        program.kill()
        program.wait()

    assert program.returncode == 128 + signal.SIGINT
    assert "the command ended after 2 of 9: these are partial results" in said
    assert "Verdict: not to be trusted" in said
    assert len(runs_of(tmp_path / "a.json")) == 2
    assert json.loads((tmp_path / "a.json").read_text())["verdict"]["exit"] == 3
    assert "these are partial results" in (tmp_path / "a.html").read_text()


def test_a_system_that_is_gone_after_the_load_takes_no_results_with_it(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its versions are asked before, and its queues stay where they are."""
    loads: list[Load] = []

    def noted(load: Load, **how: Any) -> Ran:
        loads.append(load)
        return run_load(load, **how)

    def versions(_driver: MemoryDriver) -> dict[str, str]:
        if loads:
            raise StorageUnavailable
        return {"memory": "1"}

    monkeypatch.setattr(running, "run_load", noted)
    monkeypatch.setattr(MemoryDriver, "versions", versions)

    done = CliRunner().invoke(
        main, ["bench", "run", str(small), "--driver", "memory", "--json", str(tmp_path / "a.json")]
    )

    assert done.exit_code in (0, 3), done.output
    assert json.loads((tmp_path / "a.json").read_text())["versions"] == {"memory": "1"}
