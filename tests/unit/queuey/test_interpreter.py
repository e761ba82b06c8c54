"""How an interpreter was built, and which one ``scripts/env.sh`` takes."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from queuey import interpreter
from queuey.interpreter import has_pgo, how_built

ROOT = Path(__file__).parents[3]


def test_a_program_may_ask_an_interpreter_that_has_no_queuey() -> None:
    asked = subprocess.run([sys.executable, "-P", "queuey/interpreter.py"], cwd=ROOT, check=False)
    assert asked.returncode == (0 if has_pgo() else 1)


@pytest.mark.parametrize(
    ("arguments", "prefix", "debian", "wanted"),
    [
        ("'--enable-optimizations' '--with-lto'", "/opt/python", False, True),
        ("'--enable-shared'", "/usr", True, True),
        ("'--enable-shared'", "/usr", False, False),
        (None, "/opt/python", True, False),
    ],
)
def test_what_its_configuration_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: str | None, prefix: str, debian: bool, wanted: bool
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: arguments)
    monkeypatch.setattr(sys, "base_prefix", prefix)
    monkeypatch.setattr(interpreter, "_DEBIAN", tmp_path if debian else tmp_path / "none")
    assert has_pgo() is wanted
    assert how_built() == ("built with PGO" if wanted else "built without PGO")


@pytest.fixture
def path(tmp_path: Path) -> list[Path]:
    """Folders with interpreters: one without PGO, one that is too old, one with PGO, and those of the system."""
    made = [tmp_path / name for name in ("plain", "old", "pgo", "later")]
    for folder in made:
        folder.mkdir()
        is_pgo, is_new = folder.name in ("old", "pgo", "later"), folder.name != "old"
        program = folder / "python3.11"
        program.write_text(f"#!/bin/sh\n[ $1 = -P ] && exit {int(not is_pgo)}\nexit {int(not is_new)}\n")
        program.chmod(0o700)
    return made


def chosen(path: list[Path], **variables: str) -> str:
    folders = ":".join([*map(str, path), "/usr/bin", "/bin"])
    made = subprocess.run(
        ["/bin/sh", "scripts/python.sh"],
        cwd=ROOT,
        env={"PATH": folders, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.strip()


def test_of_several_the_first_that_was_built_with_pgo_is_taken(path: list[Path]) -> None:
    assert chosen(path) == str(path[2] / "python3.11")


def test_a_chosen_one_is_taken(path: list[Path]) -> None:
    assert chosen(path, PYTHON="mine") == "mine"
