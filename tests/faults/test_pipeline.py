"""G7: streaming queries of Spark whose whole process tree is killed at random moments lose no row and store none twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from qdo.client import NewMessage
from tests.support.figures import Figures
from tests.support.node import Node, busy
from tests.support.servers import FIRST_KEY
from tests.support.spark_query import SOURCE, TARGET

KILLS = 1
"""Of a round: each is a Spark that starts anew."""
FEED_SECONDS = 0.1
"""Between two appends: what comes while Spark starts is all read at the end."""


@pytest.mark.drawn
def test_killed_queries_lose_nothing_and_store_nothing_twice(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    with Node(tmp_path) as node:
        client, producer = node.client(), node.client()
        for name in (SOURCE, TARGET):
            client.create_queue(name, partitions=3)
        acked: list[str] = []

        def produce() -> None:
            for stored in producer.append_batch(SOURCE, [NewMessage("x" * 100)] * 20):
                acked.append(stored.id.hex)  # noqa: PERF401 - what is acknowledged counts at once
            time.sleep(FEED_SECONDS)

        mid_batch = 0
        with busy(produce):
            for _ in rounds(KILLS):
                with query(node, tmp_path) as running:
                    assert running.stdout is not None
                    running.stdout.readline()  # a first batch has gone through
                    time.sleep(chance.random() * 2)
                mid_batch += planned_and_not_committed(tmp_path)
        with query(node, tmp_path, "drain") as running:
            assert running.wait(300) == 0
        stored: Counter[str | None] = Counter(message.key for message in client.iterate(TARGET))
        written = parquet_ids(tmp_path / "out")

    found = [judged(acked, written), judged(acked, stored)]
    lost, repeated = (sum(counts) for counts in zip(*found, strict=True))
    figures("G7", kills=len(rounds(KILLS)), mid_batch=mid_batch, rows=len(acked), lost=lost, repeated=repeated)
    assert found == [(0, 0), (0, 0)]
    assert acked


@contextmanager
def query(node: Node, folder: Path, mode: str = "") -> Iterator[subprocess.Popen[str]]:
    """The queries in a process group of their own; what is left of it is killed."""
    with (folder / "spark.log").open("a") as said:
        command = [
            sys.executable,
            "-m",
            "tests.support.spark_query",
            node.running.url,
            str(folder),
            *([mode] if mode else []),
        ]
        running = subprocess.Popen(
            command,
            env={**os.environ, "QUEUEY_KEY": FIRST_KEY},
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
        )
    try:
        yield running
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        if running.stdout is not None:
            running.stdout.close()


def planned_and_not_committed(folder: Path) -> int:
    """How many queries were in the midst of a batch."""

    def last(kind: str, sink: str) -> int:
        return max((int(path.name) for path in (folder / f"checkpoint-{sink}" / kind).glob("[0-9]*")), default=-1)

    return sum(last("offsets", sink) > last("commits", sink) for sink in ("parquet", "queuey"))


def parquet_ids(folder: Path) -> Counter[str | None]:
    """By Spark's own list of the files that count: killed tasks leave others."""
    files: set[str] = set()
    logs = [path for path in (folder / "_spark_metadata").iterdir() if not path.name.startswith(".")]
    for path in logs:
        files |= {json.loads(line)["path"] for line in path.read_text().splitlines()[1:]}
    found: Counter[str | None] = Counter()
    for name in files:
        found.update(pq.read_table(name.removeprefix("file://"), columns=["message_id"])["message_id"].to_pylist())
    return found


def judged(acked: Sequence[str], found: Counter[str | None]) -> tuple[int, int]:
    """How many messages a sink lacks, and how many it has more than once or nobody wrote."""
    wanted: Counter[str | None] = Counter(acked)
    return sum((wanted - found).values()), sum((found - wanted).values())


def test_the_judge_finds_what_is_planted() -> None:
    assert judged(["a", "b", "c"], Counter("abc")) == (0, 0)
    assert judged(["a", "b", "c"], Counter("aab")) == (1, 1)
    assert judged(["a"], Counter(["a", None])) == (0, 1)
