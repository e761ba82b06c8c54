"""The judge of the load harness in Spark finds what the one finds that reads the files itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import Any, get_args

import pytest
from pyspark.sql import SparkSession

from qdo.bench import running, spark_judge
from qdo.bench.bodies import NO_KEY
from qdo.bench.clock import SECOND
from qdo.bench.document import Subject, document_of
from qdo.bench.generator import Ran
from qdo.bench.judge import KINDS, Findings
from qdo.bench.measuring import Times
from qdo.bench.planting import Plant, Planting
from qdo.bench.records import (
    CORRUPT,
    FAILED,
    FOREIGN,
    RECEIVED,
    REFUSED,
    SENT,
    STORED,
    UNKNOWN,
    ReceivedRow,
    SentRow,
    Writer,
)
from qdo.bench.unsettled import Quiet
from qdo.bench.verdict import Repeat
from qdo.bench.workload import Workload
from tests.support.bench_by_clock import workload_of

STREAMS, MESSAGES, VIEWS, BATCH = 3, 602, 2, 7
STEP = SECOND // 1000


def rows_of_senders() -> list[SentRow]:
    """Each third request of the last ones has no answer, or a refusal."""
    rows = []
    for at in range(STREAMS * MESSAGES // BATCH):
        stream, turn = at % STREAMS, at // STREAMS
        outcome = STORED if turn < 77 else (STORED, UNKNOWN, REFUSED)[turn % 3]
        due = (1 + at) * STEP
        rows.append(SentRow(stream, turn * BATCH, BATCH, outcome, due, due - STEP, due + 10, due + 1000 + at))
    return rows


def rows_of_receivers(sent: Sequence[SentRow]) -> list[ReceivedRow]:
    """All that was sent, refused or not, in two views; with rows that come again, fail, or are nobody's."""
    rows = []
    for view in range(VIEWS):
        for row in sent:
            for number in range(row.first, row.first + row.messages):
                arrived = row.due + (view + 2) * STEP
                key = number % 7 if number % 2 else NO_KEY
                one = ReceivedRow(
                    view, number % 4, row.stream, number, key, 0, row.due, row.begun, row.due, arrived - 500, arrived,
                    arrived + 2 * SECOND, arrived + 900, arrived + 800,
                )  # fmt: skip
                rows.append(one)
                if number % 91 == 3:
                    later = arrived + (2 + number % 5) * SECOND
                    rows[-1] = one._replace(settled=0, settling=0, flags=FAILED if number % 3 else 0)
                    again = one._replace(asked=later - 500, arrived=later, held_until=later + SECOND)
                    rows += [again, again._replace(asked=later + 5000, arrived=later + 6000)]
                if number % 211 == 5:
                    rows.append(one._replace(stream=0, number=0, flags=FOREIGN if view else CORRUPT))
    return sorted(rows, key=lambda row: row.arrived)


def written(folder: Path, name: str, rows: Sequence[Any], form: Struct, files: int) -> list[Path]:
    """In several files, as several threads leave them."""
    paths = [folder / f"{name}-{at}" for at in range(files)]
    for at, path in enumerate(paths):
        with Writer(path, form) as out:
            for row in rows[at::files]:
                out.write(row)
    return paths


def with_plants(rows: Sequence[ReceivedRow]) -> Sequence[ReceivedRow]:
    """One fault of each kind in fifty rows. Pairs are swapped before they are copied: copies are never swapped."""
    kinds = sorted(get_args(Plant), key=lambda kind: kind != "swap")
    for kind in kinds:
        planted: list[ReceivedRow] = []
        planting = Planting(kind, planted.append)
        for row in rows:
            planting.write(row)
        planting.end()
        assert planting.planted
        rows = planted
    return rows


def document(workload: Workload, findings: Findings, times: Times) -> Any:
    """All figures of a run but for the examples, which are whichever came first."""
    about: dict[str, dict[str, str]] = {"environment": {}, "versions": {}}
    (run,) = document_of(Subject(workload, "memory"), [Repeat(findings, times, 0, 0, ())], about, None)["runs"]
    return {**run, "queuey": {**run["queuey"], "examples": None}}


def test_both_judges_agree(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = workload_of(
        producersPerTopic=STREAMS,
        subscriptionsPerTopic=VIEWS,
        phases=[{"seconds": 1, "rate": 500}, {"seconds": 1, "rate": 900}],
        receiving={"visibility": 1, "wait": 0},
        keys={"count": 7, "noisy": 0.5},
        expect={"late_seconds": 3},
    )
    sent = rows_of_senders()
    received = with_plants(rows_of_receivers(sent))
    files = written(tmp_path, "sent", sent, SENT, 2), written(tmp_path, "received", received, RECEIVED, 3)
    last = max(row.arrived for row in received)
    ran = Ran(0, 0, 0, 0, [], *files, Quiet(last, last + 60 * SECOND, {}))
    monkeypatch.setattr(spark_judge, "CHUNK_ROWS", 700)
    monkeypatch.setattr(spark_judge, "GROUPED_ROWS", 2000)

    here = running.figures_of(workload, ran)
    monkeypatch.setattr(running, "MOST_READ_HERE", 0)
    there = running.figures_of(workload, ran)

    assert document(workload, *there) == document(workload, *here)
    assert [kind for kind in KINDS if not here[0].counts[kind]] == []
    assert there[0].examples.keys() == here[0].examples.keys()
