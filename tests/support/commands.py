"""Commands as processes, run to their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


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
    ended = subprocess.run(
        command(*arguments, module=module),
        input=given,
        capture_output=True,
        env=os.environ | environment | variables,
        cwd=folder,
        timeout=120,
        check=False,
    )
    err = ended.stderr.decode()
    assert may_log_tracebacks or "Traceback" not in err, err
    return Ended(ended.returncode, ended.stdout, err)


def done(ended: Ended) -> Ended:
    assert ended.code == 0, ended.err
    return ended
