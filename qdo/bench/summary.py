"""What is kept of an experiment: its figures by variant, small enough for a repository, and plots drawn from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from qdo.bench.document import Document
from qdo.bench.json_files import read_json, write_json
from qdo.bench.plots import Plot, Points, drawing, lines_of, place_of
from qdo.bench.tables import number, verdict_of
from queuey.errors import ConfigurationError
from queuey.whole_files import write_whole

__all__ = [
    "Summary",
    "is_by_powers",
    "lines_over",
    "read_summary",
    "save_summary",
    "summary_of",
    "summary_plots",
    "summary_rows",
    "varied_number",
]

FORMAT = 1
Summary = dict[str, Any]
KEPT = ("seed", "repeats", "seconds", "faults", "receiving", "group", "arrivals")
"""Of the section ``queuey``, beside what varies."""


def summary_of(documents: Sequence[Document]) -> Summary:
    """The figures of all drivers and variants of one workload; medians over the runs, sums of what was found."""
    first = documents[0]
    workload = first["workload"]
    own = workload["queuey"]
    return {
        "summary": FORMAT,
        "workload": workload["name"],
        "about": own["about"],
        "settings": {name: own[name] for name in KEPT},
        "loop": first["loop"],
        "environment": first["environment"],
        "versions": {name: text for name, text in first["versions"].items() if name != "url"},
        "began": min(run["queuey"]["began"] for run in first["runs"]),
        "variants": [_variant(one) for one in documents],
    }


def _variant(document: Document) -> Mapping[str, Any]:
    runs = [run["queuey"] for run in document["runs"]]
    return {
        "label": document["label"],
        "driver": document["driver"],
        "values": document["values"],
        "runs": len(runs),
        "sent_per_second": median(run["publish_rate"] for run in runs),
        "received_per_second": median(run["consume_rate"] for run in runs),
        "response_ms": _middle(runs, "response_ms"),
        "receive_ms": _middle(runs, "receive_ms"),
        "end_to_end_ms": _middle(runs, "end_to_end_ms"),
        "memory_mib": max((run["memory_mib"] for run in runs if run["memory_mib"] is not None), default=None),
        "duplication": median(run["duplication"] for run in runs),
        "disorder": median(run["disorder"] for run in runs),
        "displacement": median(run["displacement"] for run in runs),
        "redelivered": sum(run["redelivered"] for run in runs),
        "stored": sum(run["stored"] for run in runs),
        "found": {kind: sum(run["found"][kind] for run in runs) for kind in runs[0]["found"]},
        "phases": [
            {"target": phase["target"], "response_ms": _middle([run["phases"][at] for run in runs], "response_ms")}
            for at, phase in enumerate(runs[0]["phases"])
        ],
        "verdict": verdict_of(document),
        "doubts": [f"{one['name']}: {one['said']}" for one in document["verdict"]["checks"] if not one["ok"]],
    }


def _middle(runs: Sequence[Any], name: str) -> Mapping[str, float]:
    ranks = runs[0][name].keys() & {"mean", "p50", "p95", "p99", "max"}
    return {rank: median(run[name][rank] for run in runs if rank in run[name]) for rank in sorted(ranks)}


def summary_rows(summary: Summary) -> list[list[str]]:
    """A row for each variant."""
    rows = [
        [
            "",
            "sent/s",
            "received/s",
            "response p50, p99, ms",
            "receive p50, p99, ms",
            "memory, MiB",
            "lost",
            "duplication",
            "disorder",
            "displacement",
            "verdict",
        ]
    ]
    for one in summary["variants"]:
        memory = one.get("memory_mib")
        rows.append(
            [
                one["label"],
                number(one["sent_per_second"]),
                number(one["received_per_second"]),
                _two(one["response_ms"]),
                _two(one.get("receive_ms", {})),
                "-" if memory is None else number(memory),
                f"{one['found']['lost']:,} of {one['stored']:,}",
                f"{one['duplication']:.2%}",
                f"{one['disorder']:.2%}",
                f"{one['displacement']:.2f}",
                one["verdict"].partition(":")[0],
            ]
        )
    return rows


def _two(times: Mapping[str, float]) -> str:
    """The median and the 99th percentile, as far as they are known."""
    return ", ".join(f"{times[rank]:.1f}" if rank in times else "-" for rank in ("p50", "p99"))


def summary_plots(summary: Summary) -> list[Plot]:
    """Response times over the load if there were several loads, else figures over what varied."""
    variants = summary["variants"]
    if any(len(one["phases"]) > 1 for one in variants):
        lines = [
            (f"{one['label']}, {rank}", [(phase["target"], phase["response_ms"][rank]) for phase in one["phases"]])
            for one in variants
            for rank in ("p50", "p99")
            if all(rank in phase["response_ms"] for phase in one["phases"])
        ]
        return [
            Plot(
                f"{summary['workload']}: response over load",
                "requests a second",
                "milliseconds",
                lines,
                log_across=True,
            )
        ]
    name = varied_number(variants)
    if name is None:
        return []
    return [
        Plot(
            f"{summary['workload']}: {figure} over {name}",
            name,
            "%",
            lines_over(variants, name, lambda one, figure=figure: 100 * one[figure]),  # type: ignore[misc]
            log_across=is_by_powers(variants, name),
        )
        for figure in ("duplication", "disorder")
    ]


def varied_number(variants: Sequence[Any]) -> str | None:
    """The first that varies in numbers, if any does; beside them it may have other values, such as ``auto``."""
    names = variants[0]["values"]
    return next((name for name in names if any(place_of(one["values"][name]) is not None for one in variants)), None)


def is_by_powers(variants: Sequence[Any], across: str) -> bool:
    """Whether an axis of these values goes by powers of ten, as that of shares does."""
    return any(isinstance(one["values"][across], Mapping) for one in variants)


def lines_over(variants: Sequence[Any], across: str, figure: Callable[[Any], float]) -> Sequence[tuple[str, Points]]:
    """A line for each combination of the other values. A variant whose value is no number has no place on the axis."""
    return lines_of(
        (" ".join([one["driver"], *_rest_of(one["values"], across)]), at, figure(one))
        for one in variants
        if (at := place_of(one["values"][across])) is not None
    )


def _rest_of(values: Mapping[str, Any], across: str) -> list[str]:
    """The other values of a variant."""
    return [f"{name}={value}" for name, value in values.items() if name != across]


def save_summary(summary: Summary, path: Path) -> None:
    """Write it as JSON, and its plots beside that, as ``.svg``."""
    write_json(summary, path)
    write_whole(path.with_suffix(".svg"), drawing(summary_plots(summary)).encode())


def read_summary(path: Path) -> Summary:
    """The summary in a file.

    :raises ConfigurationError: it holds none, or one of another format.
    """
    found = read_json(path)
    if found.get("summary") != FORMAT or not found.get("variants"):
        raise ConfigurationError(f"{path}: no summary of 'queuey bench run --summary', or of another version")
    return found
