"""What is kept of an experiment, and what is drawn from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qdo.bench.document import Document, Subject, document_of
from qdo.bench.plots import drawing
from qdo.bench.summary import read_summary, save_summary, summary_of, summary_plots, summary_rows
from queuey.errors import ConfigurationError
from tests.support.bench_by_clock import run_by_clock, workload_of

ABOUT = {"environment": {"processor": "2 x test"}, "versions": {"queuey": "1", "url": "http://127.0.0.1:1"}}


def document(values: dict[str, Any], **workload: Any) -> Document:
    made = workload_of(producerRate=200, seconds=1, **workload)
    return document_of(Subject(made, "memory", values), [run_by_clock(made), run_by_clock(made)], ABOUT, None)


@pytest.fixture(scope="module")
def varied() -> list[Document]:
    return [document({"k": k, "receivers": some}) for k in (1, 2, 3) for some in (1, 2)]


def test_it_has_a_row_for_each_variant(varied: list[Document], tmp_path: Path) -> None:
    save_summary(summary_of(varied), tmp_path / "a.json")
    found = read_summary(tmp_path / "a.json")

    head, *rows = summary_rows(found)
    assert [row[0] for row in rows] == [one["label"] for one in varied]
    assert all(len(row) == len(head) for row in rows)
    assert rows[0][head.index("lost")] == "0 of 400"
    assert rows[0][head.index("receive p50, p99, ms")] != "-, -"
    assert rows[0][head.index("memory, MiB")] == "-", "nothing was started"
    assert "url" not in found["versions"], "an address says nothing, and may be nobody's business"


def test_duplication_and_disorder_are_drawn_over_what_varied(varied: list[Document]) -> None:
    duplication, disorder = summary_plots(summary_of(varied))

    assert duplication.title.endswith("duplication over k")
    assert [name for name, _ in disorder.lines] == ["memory receivers=1", "memory receivers=2"]
    assert [x for x, _ in disorder.lines[0][1]] == [1, 2, 3]


def test_losses_of_a_network_are_an_axis() -> None:
    some = [document({"network": {"requests": p, "answers": p}}) for p in (0.01, 0.1)]

    (_, points), *_ = summary_plots(summary_of(some))[0].lines
    assert [x for x, _ in points] == [0.01, 0.1]


def test_response_times_are_drawn_over_the_load() -> None:
    phases = [{"seconds": 2, "rate": rate} for rate in (100, 200)]
    workload = workload_of(phases=phases)
    some = document_of(Subject(workload, "memory"), [run_by_clock(workload)], ABOUT, None)

    (plot,) = summary_plots(summary_of([some]))
    assert [x for x, _ in plot.lines[0][1]] == [100, 200]


def test_a_drawing_is_a_file_of_its_own(varied: list[Document]) -> None:
    text = drawing(summary_plots(summary_of(varied)))

    assert text.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert text.count("<svg") == text.count("</svg>") == 3


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"summary": 2}', '{"summary": 1}', '{"summary": 1, "variants": []}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)

    with pytest.raises(ConfigurationError):
        read_summary(path)
