"""``qdo pipeline report``."""

from __future__ import annotations

import click

from qdo.cli.pipeline.options import Place, html_option, out_option, with_spark
from queuey.cli.output import output_option, say, write_rows


@click.command("report")
@click.option(
    "--sent", multiple=True, required=True, metavar="PATH", help="Log of sends, a file or a folder; more than once."
)
@click.option(
    "--received", multiple=True, required=True, metavar="PATH", help="Log of receipts, the same; more than once."
)
@click.option("--queue", metavar="NAME", help="The queue of lines that name none.")
@click.option("--worst", type=click.IntRange(0), default=20, show_default=True, help="So many queues are printed.")
@out_option
@html_option
@output_option
@with_spark
def report_command(
    place: Place,
    sent: tuple[str, ...],
    received: tuple[str, ...],
    queue: str | None,
    worst: int,
    out: str | None,
    html: str | None,
    output: str | None,
) -> None:
    """What a delivery did: loss, duplicates, disorder and times, by queue and in total.

    From two logs, JSON lines or Parquet: what senders sent, in the columns queue, sequence or message_id,
    checksum, sent and acknowledged; what receivers got, in queue, sequence or message_id, checksum, asked
    and received. Times are seconds since 1970 or RFC 3339. Prints all queues as '*', then those with the
    most trouble.
    """
    from qdo.pipeline.jobs.logs import read_log
    from qdo.pipeline.jobs.pages import write_page
    from qdo.pipeline.jobs.report import report
    from qdo.pipeline.jobs.report_page import SHOWN, page
    from qdo.pipeline.jobs.results import demand_new, printable, write_results

    spark = place.session("report")
    if out is not None:
        demand_new(spark, out)
    found = report(read_log(spark, sent), read_log(spark, received), queue=queue)
    for kind in ("sent", "received"):
        if found.unreadable(kind):
            say(f"{found.unreadable(kind)} lines of --{kind} could not be used")
    if out is not None:
        write_results(out, {"queues": found.queues, "total": found.total_table()})
    if html is not None:
        write_page(page(found), html)
    write_rows([printable(row) for row in (found.total, *found.worst(worst))], SHOWN, output)
    found.close()
