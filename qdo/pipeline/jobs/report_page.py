"""The delivery report for people.

It says what happened, to which queues most, and how long it took.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qdo.pipeline.jobs.delivery import CALLS, RANKS, Floats, tally_percentiles
from qdo.pipeline.jobs.pages import HtmlPage, legend, plain, plot, shown
from qdo.pipeline.jobs.report import ALL, Report

SHOWN = (
    "queue",
    "sent",
    "received",
    "duplicates",
    "missing",
    "corrupt",
    "strangers",
    "out_of_order",
    "displacement",
    "delivery_p50_ms",
    "delivery_p99_ms",
    "delivery_max_ms",
)
"""The columns that people look at first."""
WORST = 20
_BARS = 120
_STEPS = {f"p{rank:g}": rank for rank in (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.99, 100)}


def page(report: Report) -> HtmlPage:
    """The whole report, with the worst queues only."""
    total = report.total
    found = HtmlPage(
        "Delivery report",
        f"{shown(total['sent'])} messages sent, {shown(total['received'])} of them received, "
        f"{shown(total['missing'])} lost, {shown(total['corrupt'])} corrupt, {shown(total['duplicates'])} duplicates.",
    )
    worst = report.worst(WORST)
    found.heading("All queues, then those with the most trouble")
    found.table(SHOWN, [total, *worst])
    found.text(
        f"{ALL} is all queues. Out of order: the share of messages to take out to leave the longest rising sequence. "
        "Displacement: the mean distance from a message's place in order. In the first line both are means over queues."
    )
    for kind, line in (("sent", "of senders"), ("received", "of receivers")):
        if report.unreadable(kind):
            found.text(f"{shown(report.unreadable(kind))} lines {line} could not be used.")
    _times(found, report)
    _over_time(found, report)
    _trouble(found, worst)
    return found


def _times(found: HtmlPage, report: Report) -> None:
    known = [call for call in CALLS if report.tallies.get(call)]
    if not known:
        return
    found.heading("How long it took, in milliseconds")
    rows = [{"call": call, **{name: report.total[f"{call}_{name}_ms"] for name in RANKS}} for call in known]
    found.table(("call", *RANKS), rows)
    figure, axes = plot("Share of calls that took no longer", "milliseconds", "percent")
    for call in known:
        percentiles = tally_percentiles(report.tallies[call], _STEPS)
        axes.plot([value / 1000 for value in percentiles.values()], list(_STEPS.values()), marker=".", label=call)
    axes.set_xscale("symlog", linthresh=0.1)
    legend(axes)
    found.figure(figure, "Send and receive: from the call to its answer. Delivery: from the send to the first receipt.")


def _over_time(found: HtmlPage, report: Report) -> None:
    series = {kind: report.tallies[kind] for kind in ("sent", "received") if report.tallies.get(kind)}
    if not series:
        return
    found.heading("Messages over time")
    first = min(values[0][0] for values in series.values())
    last = max(values[-1][0] for values in series.values())
    width = max(1, -(-(last - first + 1) // _BARS))
    figure, axes = plot("Messages a second", "time (UTC)", "messages a second")
    for kind, values in series.items():
        counts = _binned(values, first, last, width)
        ends = np.array([*range(first, last + 1, width), last + 1])
        rates = counts / np.diff(ends)
        # A step goes from its time to the next one, so the last one needs an end.
        axes.step(ends.astype("datetime64[s]"), [*rates, rates[-1]], where="post", label=kind)
    axes.set_ylim(bottom=0)
    legend(axes)
    found.figure(figure, f"Each step is {width:,} s; every receipt counts.")


def _binned(values: Sequence[tuple[int, int]], first: int, last: int, width: int) -> Floats:
    seconds, counts = np.array(values).T
    return np.bincount((seconds - first) // width, counts, (last - first) // width + 1).astype(np.float64)


def _trouble(found: HtmlPage, worst: Sequence[dict[str, object]]) -> None:
    shares = ("loss", "duplication", "out_of_order")
    if not any(row[name] for row in worst for name in shares):
        return
    found.heading("Where the trouble is")
    figure, axes = plot("Share of messages", "", "percent")
    places = np.arange(len(worst))
    for at, name in enumerate(shares):
        heights = [100 * float(str(row[name] or 0)) for row in worst]
        axes.bar(places + (at - 1) * 0.27, heights, 0.27, label=name.replace("_", " "))
    axes.set_xticks(places, [plain(str(row["queue"])) for row in worst], rotation=30, ha="right", fontsize=8)
    legend(axes)
    found.figure(figure, "The queues with the most losses, then duplicates, then disorder.")
