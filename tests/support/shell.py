"""The commands of a README, typed into a shell in an empty folder, with ports that are free."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import requests

ROOT = Path(__file__).parent.parent.parent


def commands_of(readme: Path) -> list[str]:
    found = re.search(r"^```sh\n(.*?)^```", readme.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=60).ok
    except requests.RequestException:
        return False


class Shell:
    """A bash that does what it is sent, line by line; all that it started ends with it."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self._said = folder / "said.txt"
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "LANG": "C.UTF-8",
            **variables,
        }
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                ["bash"],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def type(self, *lines: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n".join([*lines, ""]))
        self._process.stdin.flush()

    @property
    def is_over(self) -> bool:
        """It has ended: a line failed after ``set -e``."""
        return self._process.poll() is not None

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
