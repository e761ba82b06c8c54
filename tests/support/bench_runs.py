"""Whole runs of ``queuey bench``, by the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.source import ROOT

SMALL = """
name: small
producerRate: 400
messageSize: 128
producersPerTopic: 2
consumerPerSubscription: 2
queuey:
  about: A second of a small load.
  seconds: 1
  warmup: 0
  repeats: 1
  linger: 0.1
  receiving: {wait: 0.2}
"""


def bench(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("QUEUEY_")}
    return subprocess.run(
        [sys.executable, "-m", "queuey.cli", "bench", *words],
        cwd=folder,
        env={**outside, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def runs_of(path: Path) -> list[Any]:
    return [run["queuey"] for run in json.loads(path.read_text())["runs"]]
