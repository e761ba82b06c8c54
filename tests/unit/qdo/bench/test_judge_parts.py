"""What is judged in parts is judged as it is in one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qdo.bench import judge_parts
from qdo.bench.bodies import NO_KEY
from qdo.bench.clock import SECOND
from qdo.bench.judge import judged
from qdo.bench.judge_parts import judged_by_parts, parts_of
from qdo.bench.records import CORRUPT, STORED, ReceivedRow, SentRow
from tests.support.bench_by_clock import workload_of

STREAMS = 40


def receipt(stream: int, number: int, moment: int, flags: int = 0) -> ReceivedRow:
    arrived = SECOND + moment
    held = arrived + 10 * SECOND
    return ReceivedRow(0, stream, stream, number, NO_KEY, flags, 0, 0, 0, arrived - 1, arrived, held, 0, 0)


@pytest.mark.parametrize("part", [1, 7, 1000])
def test_a_run_with_every_fault_has_the_same_findings(
    part: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(judge_parts, "PART", part)
    workload = workload_of(topics=STREAMS, messages=3, receiving={"visibility": 10})
    sent = [SentRow(stream, 0, 3, STORED, 0, 0, 0, 0) for stream in range(STREAMS)]
    # The second message of each third stream is lost; each fifth one comes twice; each seventh is out of order.
    received = []
    for stream in range(STREAMS):
        numbers = [0, 2] if stream % 3 == 0 else [2, 1, 0] if stream % 7 == 0 else [0, 1, 2]
        received += [(stream, number) for number in numbers * (1 + (stream % 5 == 0))]
    rows = [
        receipt(stream, number, at) for at, (stream, number) in enumerate(sorted(received, key=lambda one: one[1] % 2))
    ]
    rows += [receipt(0, 0, len(rows), CORRUPT), receipt(STREAMS, 0, len(rows) + 1)]

    whole, parts = judged(workload, sent, rows), judged_by_parts(workload, sent, rows, tmp_path)

    assert replace(parts, examples={}) == replace(whole, examples={})
    assert {kind for kind, count in parts.counts.items() if count} == {
        "lost",
        "duplicates",
        "overlaps",
        "out_of_order",
        "corrupt",
        "ghosts",
    }
    assert {*tmp_path.iterdir()} == set()


def test_the_number_of_parts_grows_with_the_streams_up_to_a_bound() -> None:
    found = [parts_of(workload_of(topics=topics, messages=1)) for topics in (1, 50_000, 50_001, 1_000_000)]

    assert found == [1, 1, 2, 20]
