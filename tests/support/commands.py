"""Commands as processes, run to their end."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.loaded import Program


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def rows(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.text.splitlines()]

    def column(self, name: str) -> list[object]:
        return [row[name] for row in self.rows]


def command(*arguments: str, module: str = "queuey.cli") -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def run_in(
    environment: dict[str, str],
    folder: Path | None,
    *arguments: str,
    given: bytes = b"",
    module: str = "queuey.cli",
    may_log_tracebacks: bool = False,
    **variables: str,
) -> Ended:
    """:param may_log_tracebacks: of jobs that fail."""
    started = Program(
        command(*arguments, module=module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment | variables,
        cwd=folder,
    )
    with started:
        try:
            out, said = started.communicate(given, 120)
        except BaseException:
            started.kill()
            raise
    err = said.decode()
    assert may_log_tracebacks or "Traceback" not in err, err
    return Ended(started.returncode, out, err)


def run_on_terminal(
    environment: dict[str, str], answer: bytes, *arguments: str, folder: Path | None = None
) -> tuple[int, str]:
    """A command whose input and outputs are one terminal, on which somebody types ``answer``.

    :returns: the exit code, and all that the terminal shows.
    """
    ours, theirs = pty.openpty()
    with Program(
        command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | environment, cwd=folder
    ) as process:
        os.close(theirs)
        os.write(ours, answer)
        said = b""
        while chunk := _read(ours):
            said += chunk
    os.close(ours)
    return process.returncode, said.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:
        # How Linux says that the other side of a terminal is closed.
        return b""


def done(ended: Ended) -> Ended:
    assert ended.code == 0, ended.err
    return ended
