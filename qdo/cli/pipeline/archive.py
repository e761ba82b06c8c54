"""``qdo pipeline archive``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from qdo.cli.options import queues_option
from qdo.cli.pipeline.options import SparkPlace, ask, reached, with_spark
from queuey.errors import CursorLost, DataLost, QueueNotFound
from queuey.terminal.options import Server, with_server
from queuey.terminal.output import many, output_option, progress, say, write_rows

if TYPE_CHECKING:
    from qdo.client import Client
    from qdo.pipeline.checkpoint import Offsets, QueueOffset
    from qdo.pipeline.jobs.archive import Archive

SHOWN = ("queue", "day", "messages", "first", "last", "name")

MOST_QUEUES = 1_000
"""With more queues, none is asked how much it has: that takes a request for each."""


@click.command("archive")
@click.argument("folder")
@with_server
@queues_option
@click.option(
    "--max-per-batch",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Messages of one step. A run that is killed repeats one step, at most.",
)
@click.option(
    "--skip-lost", is_flag=True, help="Go on if messages are gone: expired, or deleted, alone or with their queue."
)
@click.option("--compact/--no-compact", default=True, show_default=True, help="Put the files of earlier days together.")
@click.option("--list", "listed", is_flag=True, help="Only print what is in the archive.")
@output_option
@with_spark
def archive_command(
    place: SparkPlace,
    server: Server,
    folder: str,
    queues: tuple[str, ...],
    max_per_batch: int,
    skip_lost: bool,
    compact: bool,
    listed: bool,
    output: str | None,
) -> None:
    """Copy queues into FOLDER as Parquet, by queue and day.

    It copies what is there now and not in the archive yet.

    FOLDER is on any file system of Spark's. Run the command again, also after it was killed, and it goes on where it
    ended: each message is in the archive once. Ctrl-C ends it at once, and it says how much is in the archive by then.
    'qdo pipeline replay' brings messages back.

    Example: qdo pipeline archive /data/archive --queue 'mail-*'
    """
    from qdo.pipeline.jobs.archive import Archive, archive
    from qdo.pipeline.jobs.failures import plain_errors
    from qdo.pipeline.jobs.messages import pattern_of

    if not listed:
        ask(server, queues)
    spark = place.session("archive", own_progress=not listed)
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
        with plain_errors(), ExitStack() as stack:
            begun = partial(_tell, place, stack, server, queues)
            done = archive(spark, folder, options=options, compact_before=today if compact else None, begun=begun)
    except DataLost as error:
        raise DataLost(str(error).replace("failOnDataLoss=false", "--skip-lost")) from error
    say(f"archived {many(done, 'message')} to {folder}")


def _tell(place: SparkPlace, stack: ExitStack, server: Server, queues: Sequence[str], found: Archive) -> None:
    """Show a bar from now on, and let a signal say how to go on."""
    place.left = lambda: f"archived {many(found.stored, 'message')}; a new run goes on behind them"
    from qdo.pipeline.jobs.messages import pattern_of

    total = partial(waiting, server, pattern_of(queues), found.reached())
    stack.enter_context(progress("archived", total, lambda: found.stored))


def waiting(server: Server, pattern: str, reached: Offsets) -> int:
    """Messages behind these offsets in the queues of a pattern.

    It is 0 if there are too many queues to ask.
    """
    with server.client() as client:
        names = [queue.name for queue in client.queues() if re.fullmatch(pattern, queue.name)]
        if len(names) > MOST_QUEUES:
            return 0
        return sum(_behind(client, name, reached.get(name)) for name in names)


def _behind(client: Client, queue: str, offset: QueueOffset | None) -> int:
    from qdo.pipeline.options import MOST_COUNTED
    from qdo.pipeline.task_reader import Counting, survey

    try:
        # No server counts further. With a longer partition the bar waits at its end.
        found = survey(client, queue, offset, partitions="all", counting=Counting(MOST_COUNTED))
    except CursorLost:  # the queue was made anew
        return _behind(client, queue, None)
    except QueueNotFound:
        return 0
    return sum(span.messages or 0 for span in found.spans.values())
