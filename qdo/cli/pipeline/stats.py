"""``qdo pipeline stats``."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

import click

from qdo.cli.options import queues_option
from qdo.cli.pipeline.options import SparkPlace, ask, reached, with_spark, with_times
from qdo.cli.pipeline.results import Results, with_results
from queuey.terminal.options import Server, with_server
from queuey.terminal.output import say


@click.command("stats")
@with_server
@queues_option
@with_times
@click.option("--hours", "by_hour", is_flag=True, help="Print a row for each queue and hour.")
@click.option(
    "--top-keys", type=click.IntRange(0, 100), default=5, show_default=True, help="Keys to name of each queue."
)
@with_results
@with_spark
def stats_command(
    place: SparkPlace,
    results: Results,
    server: Server,
    queues: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    by_hour: bool,
    top_keys: int,
) -> None:
    """What is in queues, by queue and hour.

    The figures are messages, bytes, rates, gaps, the largest message, ages and keys.

    It reads all messages of the queues with their bodies, and prints a row for each queue.

    Example: qdo pipeline stats --queue orders
    """
    from qdo.pipeline.jobs.messages import pattern_of, read_messages
    from qdo.pipeline.jobs.stats import READ, SHOWN, page, readable, stats

    ask(server, queues)
    spark = place.session("stats")
    results.check(spark)
    messages = read_messages(spark, reached(server), pattern=pattern_of(queues), columns=READ, since=since, until=until)
    with closing(stats(messages, now=datetime.now(UTC), top_keys=top_keys)) as found:
        results.keep(found.tables, lambda: page(found))
        rows = [row.asDict(recursive=True) for row in (found.hours if by_hour else found.queues).collect()]
        flat = results.form in ("table", "csv")
        results.show(map(readable, rows) if flat else rows, (SHOWN[0], "hour", *SHOWN[1:]) if by_hour else SHOWN)
        if not rows:
            say("there are no messages to count")
