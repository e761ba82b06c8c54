"""A program that is forked from a process with its modules is as one that began anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.loaded import Program
from tests.support.proc import born
from tests.support.servers import eventually
from tests.support.source import ROOT

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("QUEUEY", "QDO"))}
BEGIN = {"forked": Program, "anew": subprocess.Popen}


def program(*arguments: str, begin: type[subprocess.Popen[bytes]] = Program, **given: object) -> tuple[int, str, str]:
    """Exit code, output and errors of ``queuey``."""
    command = [sys.executable, "-m", "queuey.cli", *arguments]
    started = begin(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)  # type: ignore[call-overload]
    out, err = started.communicate(timeout=60)
    return started.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("arguments", [("--version",), ("nonsense",), ("put", "--help"), ("config", "check", "no.ini")])
def test_what_it_says_is_the_same(arguments: tuple[str, ...]) -> None:
    forked, anew = (program(*arguments, begin=begin, env=ENVIRONMENT) for begin in BEGIN.values())
    assert forked == anew


def test_it_has_its_own_environment_and_folder(tmp_path: Path) -> None:
    (tmp_path / "queuey.ini").write_text("[limits]\nnone = 1\n")
    given = ENVIRONMENT | {"QUEUEY_CONFIG": "queuey.ini", "COLUMNS": "60"}
    forked, anew = (program("serve", "--port", "0", begin=begin, env=given, cwd=tmp_path) for begin in BEGIN.values())
    assert forked == anew
    assert "none" in forked[2]


def test_it_is_a_child_with_signals_and_a_code(tmp_path: Path) -> None:
    said = tmp_path / "said.txt"
    with said.open("wb") as output:
        command = [sys.executable, "-m", "queuey.cli", "serve", "--port", "0", "--data"]
        first, second = (Program([*command, str(tmp_path / name)], stdout=output, stderr=output) for name in "ab")
    eventually(lambda: said.read_text().count("listens on") == 2)
    second.kill()
    first.send_signal(signal.SIGTERM)
    assert (first.wait(60), second.wait(60)) == (0, -signal.SIGKILL)
    with pytest.raises(ProcessLookupError):
        os.kill(first.pid, 0)


def test_its_input_is_its_own() -> None:
    command = [sys.executable, "-m", "queuey.cli", "put", "q"]
    nowhere = ENVIRONMENT | {"QUEUEY_URL": "http://127.0.0.1:1", "QUEUEY_KEY": "k", "QUEUEY_APPLICATION": "demo"}
    started = Program(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=nowhere)
    assert b"127.0.0.1:1" in started.communicate(b"text", 60)[1]
    assert started.returncode == 5


def test_variables_that_python_reads_first_let_it_begin_anew() -> None:
    forked = program("--version", env=ENVIRONMENT | {"PYTHONVERBOSE": "1"})
    assert "import 'queuey.cli'" in forked[2].replace("# ", "")


@pytest.mark.parametrize("variables", [{}, {"PYTHONUTF8": "1"}], ids=["forked", "anew"])
def test_it_ends_with_the_tests_though_they_are_killed(tmp_path: Path, variables: dict[str, str]) -> None:
    tests = (
        "import os, subprocess, sys, time\n"
        "from tests.support.loaded import Program\n"
        "command = [sys.executable, '-m', 'queuey.cli', 'serve', '--port', '0', '--data', sys.argv[1]]\n"
        "nowhere = subprocess.DEVNULL\n"
        f"environment = {{**os.environ, **{variables!r}}}\n"
        "print(Program(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=environment).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", tests, str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        assert born(pid) is not None
        started.kill()
    eventually(lambda: born(pid) is None)


def test_each_draws_its_own_random_numbers() -> None:
    assert len({program("token", "key", env=ENVIRONMENT)[1] for _ in range(2)}) == 2
