"""The Python process that reads for Spark: how much memory it takes over few rows, and over many.

``python -m tests.bench.spark.memory URL QUEUE FOLDER`` is one run, with a Spark of its own, and prints MiB.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.measure import BenchFailed
from tests.bench.servers import ROOT
from tests.bench.spark.processes import jvm_of, peak_mib
from tests.bench.spark.stage import ALONE, ALONE_FEW, Stage, session, thrown_away, where
from tests.bench.table import Row, number

_PATIENCE_SECONDS = 300


def measure(stage: Stage) -> Iterator[Row]:
    """The peak of the largest, after one task that read one partition."""
    few, everything = (_peak_of(stage, queue) for queue in (ALONE_FEW, ALONE))
    yield Row(
        f"memory of a Python reader over {stage.plan.messages:,} rows",
        f"{number(few)} MiB over {stage.plan.few:,}",
        f"{number(everything)} MiB, {everything - few:.1f} MiB more",
        goal="more <= 50 MiB",
        figures={"more": everything - few},
    )


def _peak_of(stage: Stage, queue: str) -> float:
    arguments = [stage.server.url, queue, str(stage.plan.fresh("memory"))]
    command = [sys.executable, "-m", "tests.bench.spark.memory", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False)
    if done.returncode:
        raise BenchFailed(f"a reader ended with {done.returncode} and said:\n{done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def main(url: str, queue: str, folder: str) -> None:
    """One run."""
    with session(Path(folder)) as spark:
        frame = spark.read.format("queuey").options(**where(url), subscribe=queue).load()
        thrown_away(frame)
        print(peak_mib(jvm_of(spark)))


if __name__ == "__main__":
    main(*sys.argv[1:])
