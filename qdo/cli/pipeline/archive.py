"""``qdo pipeline archive``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from qdo.cli.options import queues_option
from qdo.cli.pipeline.options import Place, ask, reached, with_spark
from queuey.cli.options import Server, with_server
from queuey.cli.output import output_option, say, write_rows
from queuey.errors import DataLost

SHOWN = ("queue", "day", "messages", "first", "last", "name")


@click.command("archive")
@click.argument("folder")
@with_server
@queues_option
@click.option(
    "--max-per-batch",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Messages of one step; what a run that is killed does again is one step at most.",
)
@click.option(
    "--skip-lost", is_flag=True, help="Go on where messages are gone: expired, or deleted, alone or with their queue."
)
@click.option("--compact/--no-compact", default=True, show_default=True, help="Put the files of days past together.")
@click.option("--list", "listed", is_flag=True, help="Only print what is in the archive.")
@output_option
@with_spark
def archive_command(
    place: Place,
    server: Server,
    folder: str,
    queues: tuple[str, ...],
    max_per_batch: int,
    skip_lost: bool,
    compact: bool,
    listed: bool,
    output: str | None,
) -> None:
    """Copy queues into FOLDER as Parquet, by queue and day: what is there now and not in the archive yet.

    FOLDER is on any file system of Spark's. Run it again, or after it was killed, and it goes on where it ended: each
    message is in the archive once. 'qdo pipeline replay' brings messages back.
    """
    from qdo.pipeline.jobs.archive import Archive, archive
    from qdo.pipeline.jobs.failures import plain_errors
    from qdo.pipeline.jobs.messages import pattern_of

    if not listed:
        ask(server)
    spark = place.session("archive")
    if listed:
        rows = [{name: getattr(file, name) for name in SHOWN} for file in Archive(spark, folder).files()]
        write_rows(rows, SHOWN, output)
        return
    options = {
        **reached(server),
        "subscribePattern": pattern_of(queues),
        "maxOffsetsPerTrigger": str(max_per_batch),
        "failOnDataLoss": str(not skip_lost).lower(),
    }
    today = datetime.now(UTC).date()
    try:
        with plain_errors():
            done = archive(spark, folder, options=options, compact_before=today if compact else None)
    except DataLost as error:
        raise DataLost(str(error).replace("failOnDataLoss=false", "--skip-lost")) from error
    say(f"archived {done} messages to {folder}")
