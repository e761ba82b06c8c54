"""``qdo pipeline report``."""

from __future__ import annotations

from contextlib import closing

import click

from qdo.cli.pipeline.options import SparkPlace, with_spark
from qdo.cli.pipeline.results import Results, with_results
from queuey.terminal.output import many, say


@click.command("report")
@click.option(
    "--sent", multiple=True, required=True, metavar="PATH", help="Log of sends, a file or a folder; may be repeated."
)
@click.option(
    "--received", multiple=True, required=True, metavar="PATH", help="Log of receipts, likewise; may be repeated."
)
@click.option("--queue", metavar="NAME", help="The queue of lines that name none.")
@click.option("--worst", type=click.IntRange(0), default=20, show_default=True, help="How many queues to print.")
@with_results
@with_spark
def report_command(
    place: SparkPlace,
    results: Results,
    sent: tuple[str, ...],
    received: tuple[str, ...],
    queue: str | None,
    worst: int,
) -> None:
    """What a delivery did: loss, duplicates, disorder and times.

    The figures are by queue and in total.

    It reads two logs, JSON lines or Parquet. The log of senders has the columns queue, sequence or message_id, checksum,
    sent and acknowledged. The log of receivers has queue, sequence or message_id, checksum, asked and received. Times are
    seconds since 1970 or RFC 3339. It prints all queues as '*', then the queues with the most trouble.

    Example: qdo pipeline report --sent sent.jsonl --received received.jsonl
    """
    from qdo.pipeline.jobs.logs import read_log
    from qdo.pipeline.jobs.report import report
    from qdo.pipeline.jobs.report_page import SHOWN, page

    spark = place.session("report")
    results.check(spark)
    sends = read_log(spark, sent)
    with closing(report(sends, read_log(spark, received, sent=sends), queue=queue)) as found:
        for kind in ("sent", "received"):
            if found.unreadable(kind):
                say(f"could not use {many(found.unreadable(kind), 'line')} of --{kind}")
        results.keep(found.tables, lambda: page(found))
        results.show((found.total, *found.worst(worst)), SHOWN)
