"""Results as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from qdo.bench.document import Document
from qdo.bench.judge import KINDS
from qdo.bench.verdict import CLEAN, FOUND

VERDICTS = {
    CLEAN: "trusted and clean",
    FOUND: "the check found something: this run has no speed",
}
NOT_TRUSTED = "not to be trusted: these speeds say nothing"


LATENCIES = (
    "response p50",
    "response p99",
    "response max",
    "service p99",
    "receive p50",
    "receive p99",
    "end to end p50",
    "end to end p99",
)


def verdict_of(document: Document) -> str:
    """The verdict in a line."""
    if document["verdict"]["not_found"]:
        return "not to be trusted: the judge did not find what was planted"
    return VERDICTS.get(document["verdict"]["exit"], NOT_TRUSTED)


def report(document: Document) -> str:
    """Everything about one driver, in some 30 lines."""
    workload = document["workload"]
    lines = [f"{workload['name']}, driver {document['label']}, {document['loop']}", ""]
    lines += aligned(speeds(document))
    lines += ["", *aligned(found(document)), ""]
    lines += [
        f"{'ok  ' if one['ok'] else 'NOT '}  {one['name']}: {one['said']}" for one in document["verdict"]["checks"]
    ]
    lines += [f"FOUND {one}" for one in document["verdict"]["violations"]]
    lines += [f"NOT FOUND {one}" for one in document["verdict"]["not_found"]]
    lines += _refusals(document)
    lines += ["", f"Verdict: {verdict_of(document)}."]
    return "\n".join(lines)


def speeds(document: Document) -> list[list[str]]:
    """A row for each run, and for each phase if there are several."""
    rows = [["times in ms", "sent/s", "received/s", *LATENCIES]]
    for at, run in enumerate(document["runs"], 1):
        own = run["queuey"]
        rates = [number(own["publish_rate"]), number(own["consume_rate"])]
        rows.append([f"run {at}", *rates, *_latencies(own)])
        phases = own["phases"]
        rows += [
            [f"  at {number(phase['target'])} requests/s", number(phase["rate"]), "", *_latencies(phase)]
            for phase in (phases if len(phases) > 1 else ())
        ]
    return rows


def _latencies(own: Any) -> list[str]:
    response, service, end = own["response_ms"], own["service_ms"], own["end_to_end_ms"]
    receive = own.get("receive_ms", {})  # a phase has none
    cells = [
        response.get("p50"),
        response.get("p99"),
        response.get("max"),
        service.get("p99"),
        receive.get("p50"),
        receive.get("p99"),
        end.get("p50"),
        end.get("p99"),
    ]
    return [*map(_shown, cells)]


def _shown(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.2f}"


def found(document: Document) -> list[list[str]]:
    """What the judge counted: a column for each run."""
    runs = [run["queuey"] for run in document["runs"]]
    rows = [["messages, or receipts", *(f"run {at}" for at in range(1, len(runs) + 1)), "allowed"]]
    rows += [
        [name, *(f"{run[name]:,}" for run in runs), ""]
        for name in ("stored", "unknown", "refused", "received", "redelivered", "unanswered")
    ]
    limits = document["workload"]["queuey"]["expect"]
    for kind in KINDS:
        limit = "any" if limits[kind] is None else f"{limits[kind]:,}"
        rows.append([kind.replace("_", " "), *(f"{run['found'][kind]:,}" for run in runs), limit])
    rows += [[name, *(f"{run[name]:.2%}" for run in runs), ""] for name in ("duplication", "disorder")]
    quiet = [run["quiet_end_to_end_ms"] or {} for run in runs]
    if any(quiet):
        for rank in ("p50", "p95"):
            cells = [_shown(times.get(rank)) for times in quiet]
            rows.append([f"quiet keys, end to end {rank}, ms", *cells, ""])
    rows.append(["displacement, in messages", *(f"{run['displacement']:.3f}" for run in runs), ""])
    memory = [run["memory_mib"] for run in runs]
    if any(one is not None for one in memory):
        cells = ["-" if one is None else number(one) for one in memory]
        rows.append(["most memory of the system, MiB", *cells, ""])
    if document["plant"]:
        rows.append([f"planted: {document['plant']}", *(f"{run['planted']:,}" for run in runs), ""])
    return rows


def _refusals(document: Document) -> list[str]:
    said: dict[str, int] = {}
    for run in document["runs"]:
        for text, times in run["queuey"]["refusals"].items():
            said[text] = said.get(text, 0) + times
    most = sorted(said.items(), key=lambda one: -one[1])[:5]
    return [f"{times:,} times: {text}" for text, times in most]


def overview(documents: Sequence[Document]) -> str:
    """A row for each driver, medians over its runs."""
    rows = [
        [
            "driver",
            "loop",
            "sent/s",
            "response p50, ms",
            "response p99, ms",
            "end to end p99, ms",
            "lost",
            "duplicates",
            "duplication",
            "disorder",
            "verdict",
        ]
    ]
    for one in documents:
        runs = [run["queuey"] for run in one["runs"]]

        def middle(name: str, rank: str, runs: Any = runs) -> str:
            values = [run[name][rank] for run in runs if rank in run[name]]
            return f"{median(values):.2f}" if values else "-"

        rows.append(
            [
                one["label"],
                one["loop"],
                number(median(run["publish_rate"] for run in runs)),
                middle("response_ms", "p50"),
                middle("response_ms", "p99"),
                middle("end_to_end_ms", "p99"),
                f"{sum(run['found']['lost'] for run in runs):,}",
                f"{sum(run['found']['duplicates'] for run in runs):,}",
                f"{median(run['duplication'] for run in runs):.2%}",
                f"{median(run['disorder'] for run in runs):.2%}",
                verdict_of(one).partition(":")[0],
            ]
        )
    return "\n".join(aligned(rows))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of one width, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:{'<' if at == 0 else '>'}{width}}" for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """For a page of the documentation; the first row is the head.

    >>> print(markdown_table([["a", "b"], ["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    head, *rest = (f"| {' | '.join(cells)} |" for cells in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


def number(value: float) -> str:
    """Three digits, or more in front of the point.

    >>> number(1234.5), number(12.34), number(0)
    ('1,234', '12.3', '0')
    """
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
