"""``qdo pipeline stats``."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import click

from qdo.cli.options import queues_option
from qdo.cli.pipeline.options import Place, ask, html_option, out_option, with_spark
from queuey.cli.options import Server, with_server
from queuey.cli.output import form_for, output_option, write_rows
from queuey.cli.times import Moment


@click.command("stats")
@with_server
@queues_option
@click.option(
    "--since", type=Moment(ago=True, ids=False), help="From here on: 10m (ago), RFC 3339, seconds since 1970."
)
@click.option("--until", type=Moment(ago=True, ids=False), help="Up to here, in the same forms.")
@click.option("--hours", "by_hour", is_flag=True, help="Print a row for each queue and hour.")
@click.option("--top-keys", type=click.IntRange(0, 100), default=5, show_default=True, help="Keys named of each.")
@out_option
@html_option
@output_option
@with_spark
def stats_command(
    place: Place,
    server: Server,
    queues: tuple[str, ...],
    since: str | None,
    until: str | None,
    by_hour: bool,
    top_keys: int,
    out: str | None,
    html: str | None,
    output: str | None,
) -> None:
    """What is in queues, by queue and hour: messages, bytes, rates, gaps, the largest, ages and keys.

    Reads all messages of the queues, bodies too, and prints a row for each queue.
    """
    from qdo.pipeline.jobs.messages import pattern_of, read_messages
    from qdo.pipeline.jobs.pages import write_page
    from qdo.pipeline.jobs.results import demand_new, printable, write_results
    from qdo.pipeline.jobs.stats import READ, SHOWN, page, readable, stats

    ask(server)
    spark = place.session("stats")
    if out is not None:
        demand_new(spark, out)
    messages = read_messages(
        spark,
        server.url,
        server.application,
        server.token or server.key,
        pattern=pattern_of(queues),
        columns=READ,
        since=_milliseconds(since),
        until=_milliseconds(until),
        timeout_seconds=server.timeout_seconds,
    )
    found = stats(messages, now=datetime.now(UTC), top_keys=top_keys)
    if out is not None:
        write_results(out, {"queues": found.queues, "hours": found.hours})
    if html is not None:
        write_page(page(found), html)
    rows = [row.asDict(recursive=True) for row in (found.hours if by_hour else found.queues).collect()]
    if form_for(output) in ("table", "csv"):
        rows = [readable(row) for row in rows]
    columns = (SHOWN[0], "hour", *SHOWN[1:]) if by_hour else SHOWN
    write_rows([printable(row) for row in rows], columns, output)
    found.close()


def _milliseconds(moment: str | None) -> str | None:
    """Since 1970, as Spark has it."""
    return None if moment is None else str(int(Decimal(moment) * 1000))
