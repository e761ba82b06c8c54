"""``qdo pipeline replay``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from qdo.cli.pipeline.options import SparkPlace, ask, reached, with_spark, with_times
from queuey.terminal.completion import complete_queues
from queuey.terminal.options import Server, check_can_ask, confirm, with_server, yes_option
from queuey.terminal.output import many, output_option, say, write_done


@click.command("replay")
@click.argument("folder")
@with_server
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_queues,
    help="Only of this queue; may be repeated.",
)
@with_times
@click.option("--key", "keys", multiple=True, help="Only messages with this key; may be repeated.")
@click.option(
    "--to",
    metavar="QUEUE",
    shell_complete=complete_queues,
    help="The queue for all messages. Default: the one that each was in.",
)
@click.option("--rate", type=click.IntRange(1), help="Messages a second, at most.")
@click.option("--ttl", type=click.IntRange(1), help="Seconds that the new messages live. Default: the server's.")
@click.option(
    "--keep-ids", is_flag=True, help="Put messages back under their own ids: only for messages that were lost."
)
@click.option("--dry-run", is_flag=True, help="Only say how many messages it would be, and whether they have a place.")
@yes_option
@output_option
@with_spark
def replay_command(
    place: SparkPlace,
    server: Server,
    folder: str,
    queues: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    keys: tuple[str, ...],
    to: str | None,
    rate: int | None,
    ttl: int | None,
    keep_ids: bool,
    dry_run: bool,
    yes: bool,
    output: str | None,
) -> None:
    """Bring messages of the archive in FOLDER back into queues.

    They keep the order of their partitions.

    They are new messages. A message that is replayed again within a day is stored once. With --keep-ids messages get the
    ids and the remaining lives that they had: that is for an empty queue in place of one that was lost, since readers do
    not look at places behind them.

    Example: qdo pipeline replay /data/archive --queue orders --since 2026-11-01 --dry-run
    """
    from qdo.pipeline.jobs.replay import Chosen, preview, replay, restore

    if keep_ids and (rate or ttl):
        raise click.UsageError("--keep-ids: leave out --rate and --ttl: messages keep the lives they had")
    where = to or "the queues they were in"
    if not dry_run:
        check_can_ask(f"{'Put back' if keep_ids else 'Append'} messages of {folder} to {where}?", yes=yes)
    ask(server, lists=False)
    spark = place.session("replay")
    options = reached(server)
    chosen = Chosen(queues, since, until, keys)
    count = preview(
        spark, folder, options=options, chosen=chosen, queue=to, now=datetime.now(UTC) if keep_ids else None
    )
    if dry_run:
        write_done({"messages": count, "to": to}, output)
        say(f"{many(count, 'message')} would go to {where}")
        return
    if keep_ids:
        confirm(f"Put {many(count, 'message')} of {folder} back into {where}?", yes=yes)
        place.left = lambda: "some messages may be back in their places; run it again, since they stay the same"
        done, expired = restore(spark, folder, options=options, now=datetime.now(UTC), chosen=chosen, queue=to)
        write_done({"restored": done, "expired": expired}, output)
        say(f"restored {many(done, 'message')}; {expired} had expired")
        return
    confirm(f"Append {many(count, 'message')} of {folder} to {where}?", yes=yes)
    place.left = lambda: "some messages may be appended; the same replay within a day appends none of them twice"
    ttls = {} if ttl is None else {"ttl": str(ttl)}
    replay(spark, folder, options=options | ttls, chosen=chosen, queue=to, rate=rate)
    write_done({"replayed": count, "to": to}, output)
    say(f"replayed {many(count, 'message')} to {where}")
