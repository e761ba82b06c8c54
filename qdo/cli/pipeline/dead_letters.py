"""``qdo pipeline dead-letters``."""

from __future__ import annotations

from contextlib import closing

import click

from qdo.cli.options import dead_letters_option, queues_option
from qdo.cli.pipeline.options import SparkPlace, ask, reached, with_spark
from qdo.cli.pipeline.results import Results, with_results
from qdo.groups.dead_letter_names import DeadLetterNames
from queuey.terminal.options import Server, with_server
from queuey.terminal.output import many, say


@click.command("dead-letters")
@with_server
@dead_letters_option
@queues_option
@click.option(
    "--samples", type=click.IntRange(0, 100), default=3, show_default=True, help="Letters shown of each group."
)
@with_results
@with_spark
def dead_letters_command(
    place: SparkPlace,
    results: Results,
    server: Server,
    dead_letters: str,
    queues: tuple[str, ...],
    samples: int,
) -> None:
    """Why messages were given up, and how often.

    Figures are by queue, group and exception.

    It reads queues of dead letters, as 'qdo work' and the server's lease groups write them. For each group it shows the
    first and the last time, the failures, samples, and the command that tries its messages again.

    Example: qdo pipeline dead-letters --queue mail
    """
    from qdo.pipeline.jobs.dead_letters import READ, SHOWN, page
    from qdo.pipeline.jobs.dead_letters import dead_letters as job
    from qdo.pipeline.jobs.messages import pattern_of, read_messages

    where = DeadLetterNames(dead_letters)
    pattern = pattern_of([where.name_for(queue) for queue in queues] or [where.name_for("*")])
    ask(server)
    spark = place.session("dead-letters")
    results.check(spark)
    messages = read_messages(spark, reached(server), pattern=pattern, columns=READ)
    with closing(job(messages, samples=samples)) as found:
        results.keep(found.tables, lambda: page(found))
        groups = found.groups.collect()
        results.show((row.asDict(recursive=True) for row in groups), SHOWN)
        if not groups:
            say("there are no dead letters")
        if found.strangers:
            say(f"passed over {many(found.strangers, 'message')} in these queues: no dead letters")
