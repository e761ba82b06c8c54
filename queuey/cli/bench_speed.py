"""``queuey bench speed``: how fast the load harness is by itself."""

from __future__ import annotations

import sys

import click

from queuey.terminal.numbers import Number
from queuey.terminal.output import output_option, write_rows


@click.command("speed")
@click.option("--seconds", default=1.0, show_default=True, type=Number(0, above=True), help="Of each turn.")
@output_option
def speed_command(seconds: float, output: str | None) -> None:
    """How fast the generator and the judge are by themselves, on one core.

    The generator is measured alone, with a system that does nothing: what is left are the moments at which
    requests are due, bodies with their checksums, clocks, and rows for the judge. Then with a connection to a
    server that answers each request at once, with nothing; what that takes is the system's, mostly. Times are
    those of the processor. Exits with 3 if a goal is not reached.

    Example: queuey bench speed --seconds 0.5
    """
    from qdo.bench.speed import LEAST_RATE, MOST_OVERHEAD, own_speed

    found = own_speed(seconds)
    rows = [
        (
            "requests/s of one core, against nothing",
            f"{found.alone:,.0f}",
            f"{LEAST_RATE:,.0f}",
            found.alone >= LEAST_RATE,
        ),
        ("requests/s of one core, to a server that answers nothing", f"{found.over_http:,.0f}", "", True),
        (
            "writing down for the judge, share of such a request",
            f"{found.written:.1%}",
            f"{MOST_OVERHEAD:.0%}",
            found.written <= MOST_OVERHEAD,
        ),
        ("receipts/s that the judge reads afterwards", f"{found.judged:,.0f}", "", True),
    ]
    write_rows(
        [{"what": what, "found": text, "goal": goal, "reached": reached} for what, text, goal, reached in rows],
        ["what", "found", "goal", "reached"],
        output,
    )
    if not all(reached for *_, reached in rows):
        sys.exit(3)
