"""How the programs begin."""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


def scripts() -> dict[str, str]:
    """Module and function by the name of the program."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options.entry_points"]["console_scripts"].split("\n")
    return {name.strip(): place.strip() for name, place in (line.split("=") for line in lines if line)}


@pytest.mark.parametrize("name", scripts())
def test_ctrl_c_while_a_program_is_loaded_ends_it_without_a_word(name: str, tmp_path: Path) -> None:
    """The moment is that at which the first large module is loaded, which each program needs."""
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    (tmp_path / "requests.py").write_text("raise KeyboardInterrupt\n")
    module, _, function = scripts()[name].partition(":")
    begin = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; from {module} import {function}; {function}()"
    )

    ended = subprocess.run([sys.executable, "-c", begin], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stderr) == (130, "")


@pytest.mark.parametrize("name", scripts())
def test_a_program_that_is_loaded_runs(name: str) -> None:
    module, _, function = scripts()[name].partition(":")
    begin = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = [{name!r}, '--help']; from {module} import {function}; {function}()"

    ended = subprocess.run([sys.executable, "-c", begin], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 0, ended.stderr
    assert name in ended.stdout
