"""``qdo pipeline dead-letters``."""

from __future__ import annotations

import click

from qdo.cli.options import dead_letters_option, queues_option
from qdo.cli.pipeline.options import Place, ask, html_option, out_option, with_spark
from qdo.dead import DeadLetters
from queuey.cli.options import Server, with_server
from queuey.cli.output import output_option, say, write_rows


@click.command("dead-letters")
@with_server
@dead_letters_option
@queues_option
@click.option("--samples", type=click.IntRange(0, 100), default=3, show_default=True, help="Letters shown of each.")
@out_option
@html_option
@output_option
@with_spark
def dead_letters_command(
    place: Place,
    server: Server,
    dead_letters: str,
    queues: tuple[str, ...],
    samples: int,
    out: str | None,
    html: str | None,
    output: str | None,
) -> None:
    """Why jobs failed for the last time, and how often: by queue, group of workers and exception.

    Reads queues of dead letters, as 'qdo work' writes them, and tells of each group the first and the last
    time, the attempts, samples, and the command that tries its messages again.
    """
    from qdo.pipeline.jobs.dead_letters import READ, SHOWN, page
    from qdo.pipeline.jobs.dead_letters import dead_letters as job
    from qdo.pipeline.jobs.messages import pattern_of, read_messages
    from qdo.pipeline.jobs.pages import write_page
    from qdo.pipeline.jobs.results import demand_new, printable, write_results

    where = DeadLetters(dead_letters, "")
    pattern = pattern_of([where.queue_for(queue) for queue in queues] or [where.queue_for("*")])
    ask(server)
    spark = place.session("dead-letters")
    if out is not None:
        demand_new(spark, out)
    messages = read_messages(
        spark,
        server.url,
        server.application,
        server.token or server.key,
        pattern=pattern,
        columns=READ,
        timeout_seconds=server.timeout_seconds,
    )
    found = job(messages, samples=samples)
    if out is not None:
        write_results(out, {"groups": found.groups, "hours": found.hours})
    if html is not None:
        write_page(page(found), html)
    write_rows((printable(row.asDict(recursive=True)) for row in found.groups.collect()), SHOWN, output)
    if found.strangers:
        say(f"{found.strangers} messages in these queues are no dead letters")
    found.close()
