"""Completion in a shell, of commands and of names that the server knows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.client import Server, new_name
from tests.support.commands import Ended, done, run_in

Run = Callable[..., "Ended"]


def completed(environment: dict[str, str], line: str, program: str = "queuey") -> list[str]:
    """What the script of bash would offer at the end of a line."""
    asked = {
        f"_{program.upper()}_COMPLETE": "bash_complete",
        "COMP_WORDS": f"{program} {line}",
        "COMP_CWORD": str(1 + line.count(" ")),
        "QUEUEY_COMPLETION_TIMEOUT": "90",
    }
    module = {"queuey": "queuey.cli", "qdo": "qdo.cli"}[program]
    ended = run_in({**environment, **asked}, None, module=module)
    return [offer.partition(",")[2] for offer in ended.text.splitlines() if offer]


def test_names_of_queues_and_groups_are_completed(environment: dict[str, str], seen: Server, queuey: Run) -> None:
    begin = new_name()
    for number in range(2):
        seen.queue(name=f"{begin}-{number}")
    done(queuey("put", f"{begin}-0", "x"))
    done(queuey("get", f"{begin}-0", "-g", "readers"))
    done(queuey("receive", f"{begin}-0", "-g", "workers"))
    both = [f"{begin}-0", f"{begin}-1"]

    for line in ("put", "get", "get other", "queue info", "queue ls", "purge", "lease ls", "receive", "import"):
        assert completed(environment, f"{line} {begin}") == both, line
    assert completed(environment, f"receive {begin}-1,{begin}-0") == [f"{begin}-1,{begin}-0"]
    assert completed(environment, f"group show {begin}-0 r") == ["readers"]
    assert completed(environment, f"get {begin}-0 --group r") == ["readers"]
    assert completed(environment, f"lease info {begin}-0 w") == ["workers"]
    assert completed(environment, f"work m:f --queue {begin}", "qdo") == both
    assert completed(environment, f"dead ls {begin}", "qdo") == both


def test_commands_and_contexts_are_completed(environment: dict[str, str], tmp_path: Path) -> None:
    contexts = {**environment, "QUEUEY_CONTEXTS": str(tmp_path / "contexts.json")}
    done(run_in(contexts, None, "context", "add", "work"))

    assert completed(environment, "que") == ["queue"]
    assert completed(environment, "sta", "qdo") == ["status"]
    assert completed(contexts, "context use w") == ["work"]
    assert completed(contexts, "get --context w") == ["work"]


@pytest.mark.parametrize(
    "variables", [{"QUEUEY_URL": "http://127.0.0.1:1"}, {"QUEUEY_URL": "none"}, {"QUEUEY_KEY": "\u00e4"}]
)
def test_what_goes_wrong_says_nothing_into_the_line(environment: dict[str, str], variables: dict[str, str]) -> None:
    assert completed({**environment, **variables}, "get q") == []


@pytest.mark.parametrize("program", ["queuey", "qdo"])
def test_bash_takes_the_script(program: str) -> None:
    script = done(run_in({}, None, "completion", "bash", module=f"{program}.cli")).text
    name = f"_{program}_completion"

    told = subprocess.run(
        ["bash", "-c", f"{script}\ncomplete -p {program}"],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert name in told.stdout, told.stderr
