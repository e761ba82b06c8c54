"""Results as one HTML page that needs nothing else: tables, plots, the machine, the exact workload, the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import chain
from statistics import median
from typing import Any

import msgspec

from qdo.bench.document import Document
from qdo.bench.plots import Plot
from qdo.bench.summary import is_by_powers, lines_over, varied_number
from qdo.bench.tables import found, overview, speeds, verdict_of

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } td, th { padding: .15rem .7rem; text-align: right }
td:first-child, th:first-child { text-align: left } th { border-bottom: 1px solid #888; font-weight: 600 }
pre { background: #f5f5f5; padding: .8rem; overflow: auto; font-size: 13px }
svg { max-width: 620px; width: 100%; font: 12px system-ui, sans-serif; display: block; margin: 1rem 0 }
svg .grid { stroke: #e4e4e4 } svg .title { font-weight: 600 } svg .mark { stroke: #d33; stroke-dasharray: 3 3 }
/* A name stays readable where lines cross it. */
svg text { paint-order: stroke; stroke: #fff; stroke-width: 3px }
.wide { overflow-x: auto }
.good { color: #19692c } .bad { color: #a31621; font-weight: 600 }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } pre { background: #222 }
  svg text { fill: #ddd; stroke: #181818 } svg .grid { stroke: #333 } .good { color: #7c7 } .bad { color: #f88 } }
"""


def page(documents: Sequence[Document]) -> str:
    """The page about some drivers under one workload."""
    workload = documents[0]["workload"]
    name = escape(workload["name"])
    parts = [
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><main>',
        f"<h1>{name}</h1><p>{escape(workload['queuey']['about'])}</p>",
    ]
    if len(documents) > 1:
        parts.append(f'<pre tabindex="0">{escape(overview(documents))}</pre>')
        parts += [plot.svg() for plot in _over_values(documents)]
    parts += chain.from_iterable(map(_section, documents))
    text = msgspec.json.format(msgspec.json.encode(workload), indent=2).decode()
    parts.append(f'<h2>The exact workload</h2><pre tabindex="0">{escape(text)}</pre></main></body></html>')
    return "\n".join(parts)


def _section(document: Document) -> list[str]:
    is_good = document["verdict"]["exit"] == 0
    verdict = document["verdict"]
    said = [
        *(f"<li>{escape(one)}</li>" for one in (*verdict["violations"], *verdict["not_found"])),
        *(
            f'<li class="{"good" if one["ok"] else "bad"}">{escape(one["name"])}: {escape(one["said"])}</li>'
            for one in verdict["checks"]
        ),
    ]
    about = [[name, text] for part in ("environment", "versions") for name, text in document[part].items()]
    return [
        f"<h2>Driver {escape(document['label'])}, {escape(document['loop'])}</h2>",
        f'<p class="{"good" if is_good else "bad"}">{escape(verdict_of(document))}</p><ul>{"".join(said)}</ul>',
        html_table(speeds(document)),
        html_table(found(document)),
        *(plot.svg() for plot in _plots(document)),
        "<h3>Where</h3>",
        html_table([["part", "version or kind"], *about]),
    ]


def html_table(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = ([escape(cell) for cell in row] for row in rows)
    lines = [f"<tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rest]
    return f'<div class="wide" tabindex="0"><table>{"".join(lines)}</table></div>'


def _plots(document: Document) -> list[Plot]:
    runs = document["runs"]
    loop = document["loop"]
    own = [run["queuey"] for run in runs]
    marks = [(one["second"], one["what"]) for one in own[0]["faults"] if one["second"] >= 0]
    plots = [
        Plot(
            f"Response times, {loop}",
            "milliseconds",
            "share of the requests",
            [(f"run {at}", one["curves"]["response"]) for at, one in enumerate(own, 1)],
            log_across=True,
        ),
        Plot(
            f"From due to received, {loop}",
            "milliseconds",
            "share of the messages",
            [(f"run {at}", one["curves"]["end_to_end"]) for at, one in enumerate(own, 1)],
            log_across=True,
        ),
        Plot(
            f"Throughput of the first run, {loop}",
            "second",
            "messages a second",
            [
                ("sent", _over_time(runs[0], "publishRate")),
                ("received", _over_time(runs[0], "consumeRate")),
                ("not stored", _over_time(runs[0], "publishErrorRate")),
            ],
            marks=marks,
        ),
        Plot(
            f"Service times of the first run, {loop}",
            "second",
            "milliseconds",
            [(rank, _over_time(runs[0], f"publishLatency{rank}")) for rank in ("50pct", "95pct", "99pct")],
            marks=marks,
        ),
    ]
    phases = own[0]["phases"]
    if len(phases) > 1:
        plots.append(Plot(f"Response over load, {loop}", "requests a second", "milliseconds", _over_load(own)))
    return plots


def _over_values(documents: Sequence[Document]) -> list[Plot]:
    """Figures over the first varied number; a line for each combination of the other values."""
    across = varied_number(documents)
    if across is None:
        return []
    plots = []
    for title, unit, figure in (
        ("duplication", "share of the receipts", "duplication"),
        ("disorder", "share of the messages", "disorder"),
        ("sent a second", "messages a second", "publish_rate"),
    ):
        lines = lines_over(documents, across, _median_of(figure))
        by_powers = is_by_powers(documents, across)
        plots.append(Plot(f"{title} over {across}", across, unit, lines, log_across=by_powers))
    return plots


def _median_of(figure: str) -> Callable[[Document], float]:
    """Over the runs."""
    return lambda one: median(run["queuey"][figure] for run in one["runs"])


def _over_time(run: Any, figure: str) -> list[tuple[float, float]]:
    return [(float(at * run["queuey"]["period"]), float(value)) for at, value in enumerate(run[figure])]


def _over_load(runs: Sequence[Any]) -> list[tuple[str, list[tuple[float, float]]]]:
    """Medians over the runs."""
    lines = []
    for rank in ("p50", "p95", "p99"):
        points = []
        for at, phase in enumerate(runs[0]["phases"]):
            values = [run["phases"][at]["response_ms"].get(rank) for run in runs]
            known = [value for value in values if value is not None]
            if known:
                points.append((phase["target"] or phase["rate"], median(known)))
        lines.append((rank, sorted(points)))
    return lines
