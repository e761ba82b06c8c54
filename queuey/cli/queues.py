"""``queuey queue``: queues of an application."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import click

from queuey.cli.leases import flat_settings
from queuey.errors import PartitionsCannotShrink
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, parse_timestamp
from queuey.model import MAX_PARTITIONS, Consistency, QueueKind, Retention
from queuey.moments import rfc3339
from queuey.terminal.commands import CommandGroup
from queuey.terminal.completion import complete_queues
from queuey.terminal.options import confirm, refuse_missing_queue, with_client, yes_option
from queuey.terminal.output import form_for, output_option, say, write_done, write_one, write_rows

if TYPE_CHECKING:
    from qdo.client import Client, PartitionInfo, QueueSettings

COLUMNS = ("queue_name", "partitions", "type", "consistency", "principals", "created")


def _given(ctx: click.Context, option: click.Parameter, principals: Sequence[str]) -> Sequence[str]:
    """Refuse an empty principal: it is a script's variable that is not set.

    Sent, it would clear the list.
    """
    if not all(principals):
        raise click.BadParameter("it is empty: leave it out, or say --no-principals to clear the list.")
    return principals


def _lease_settings(_ctx: click.Context, _param: click.Parameter, given: Sequence[str]) -> dict[str, str] | None:
    """Settings of lease groups by name, as they are sent; None if there are none."""
    for text in given:
        if not re.fullmatch(r"[a-z_]+=.*", text, re.DOTALL):
            raise click.BadParameter(f"{text!r} is not SETTING=VALUE, such as visibility=60.")
    return dict(text.split("=", 1) for text in given) or None


def _settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """The settings of a queue; what is not given is not named."""
    for option in reversed(
        [
            click.option(
                "--partitions", type=click.IntRange(1, MAX_PARTITIONS), help="They can grow later, never fall."
            ),
            click.option(
                "--type", "kind", type=click.Choice(list(map(str, QueueKind))), help="public: anybody may read."
            ),
            click.option("--consistency", type=click.Choice(list(map(str, Consistency)))),
            click.option(
                "--retention",
                type=click.Choice(list(map(str, Retention))),
                help="acknowledged: a message goes once each lease group has settled it.",
            ),
            click.option(
                "--principal",
                "principals",
                multiple=True,
                callback=_given,
                help="A principal that may read and delete: app:NAME, bid:ADDRESS. Repeatable.",
            ),
            click.option(
                "--lease",
                "leases",
                metavar="SETTING=VALUE",
                multiple=True,
                callback=_lease_settings,
                help="What its lease groups begin with: visibility=60, order=key, backoff='{\"first\":5}'; k= for the default. "
                "Repeatable.",
            ),
        ]
    ):
        command = option(command)
    return command


name_argument = click.argument("name", shell_complete=complete_queues)


@click.group("queue", cls=CommandGroup)
def queue_command() -> None:
    """List, make, look at, change and remove queues."""


@queue_command.command("ls")
@click.argument("prefix", default="", shell_complete=complete_queues)
@click.option("--counts", is_flag=True, help="Count the messages of each.")
@click.option("--mine", is_flag=True, help="Only those that name the caller.")
@click.option("-n", "--limit", type=click.IntRange(1), help="The most queues to list.")
@output_option
@with_client
def list_queues(client: Client, prefix: str, counts: bool, mine: bool, limit: int | None, output: str | None) -> None:
    """Queues by name, those that begin with PREFIX.

    Example: queuey queue ls mail- --counts
    """
    if mine and counts:
        raise click.UsageError("--mine and --counts exclude each other.")
    found = takewhile(
        lambda queue: queue.name.startswith(prefix),
        client.queues(start=prefix, page_size=min(limit or 1000, 1000), with_counts=counts, mine=mine),
    )
    columns = (*COLUMNS, "count") if counts else COLUMNS
    write_rows((_row(queue, counts=counts) for queue in islice(found, limit)), columns, output)


@queue_command.command("add")
@click.argument("name", required=False)
@_settings_options
@click.option("--new", "only_new", is_flag=True, help="Fail if there is one of this name.")
@output_option
@with_client
def add_queue(
    client: Client, name: str | None, principals: Sequence[str], only_new: bool, output: str | None, **settings: Any
) -> None:
    """Make a queue, with a random name if none is given.

    Making it again is no error: the settings that are given take effect. Fewer partitions than it has are refused; the other
    settings take effect all the same.

    Example: queuey queue add orders --partitions 4 --retention acknowledged
    """
    if name == "":
        raise click.BadParameter("it is empty: leave it out for a random name.", param_hint="'NAME'")
    made = client.create_queue(name, principals=principals or None, only_new=only_new, **settings)
    write_one(_row(made), output)
    asked = settings["partitions"]
    if asked is not None and asked < made.partitions:
        raise PartitionsCannotShrink(f"queue {made.name} was there, and keeps its {made.partitions} partitions")


@queue_command.command("info")
@name_argument
@output_option
@with_client
def show_queue(client: Client, name: str, output: str | None) -> None:
    """Settings, depth, bytes, oldest and newest message of a queue, and of each partition.

    Example: queuey queue info orders
    """
    info = client.queue_info(name)
    row = {
        **_row(info.settings),
        "application": info.application,
        "uuid": info.uuid,
        "depth": info.depth,
        "scheduled": info.scheduled,
        "bytes": info.bytes,
        "watermark": info.watermark,
        "tag": info.tag,
        **{f"lease_{name}": value for name, value in info.settings.leases.items()},
    }
    details = [_partition_row(part) for part in info.partitions]
    if form_for(output) != "table":
        write_one({**row, "partition_details": details}, output)
        return
    write_one(flat_settings({**row, "watermark": rfc3339(parse_timestamp(info.watermark))}), "table")
    click.echo()
    write_rows(details, ("partition", "depth", "scheduled", "bytes", "rate", "oldest_time", "newest_time"), "table")


@queue_command.command("edit")
@name_argument
@_settings_options
@click.option("--no-principals", is_flag=True, help="Nobody but the owner reads.")
@click.option(
    "--if-match", metavar="TAG", help="Change nothing unless the settings are those with this tag of 'queue info'."
)
@output_option
@with_client
def edit_queue(
    client: Client,
    name: str,
    principals: Sequence[str],
    no_principals: bool,
    if_match: str | None,
    output: str | None,
    **settings: Any,
) -> None:
    """Change what is given, keep the rest. Principals given replace those there are.

    Example: queuey queue edit orders --partitions 8
    """
    if principals and no_principals:
        raise click.UsageError("--principal and --no-principals exclude each other.")
    if not principals and not no_principals and not any(value is not None for value in settings.values()):
        raise click.UsageError("Nothing to change: say what.")
    listed = principals if principals or no_principals else None
    changed = client.update_queue(name, if_match=if_match, principals=listed, **settings)
    write_one(_row(changed), output)


@queue_command.command("rm")
@name_argument
@yes_option
@output_option
@with_client
def remove_queue(client: Client, name: str, yes: bool, output: str | None) -> None:
    """Remove a queue and all its messages. 'queuey purge' removes the messages alone.

    Example: queuey queue rm orders --yes
    """
    confirm(
        f"Remove queue {name} of {client.application} and all its messages?",
        yes=yes,
        look=lambda: refuse_missing_queue(client, name),
    )
    client.delete_queue(name)
    write_done({"queue_name": name, "application": client.application}, output)
    say(f"removed queue {name}")


def _row(queue: QueueSettings, *, counts: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {
        "queue_name": queue.name,
        "partitions": queue.partitions,
        "type": queue.kind,
        "consistency": queue.consistency,
        "principals": list(queue.principals),
    }
    if queue.retention is not None:
        row["retention"] = queue.retention
    if queue.created is not None:
        row["created"] = rfc3339(EPOCH_TICKS + round(queue.created * 1_000_000) * (TICKS_PER_SECOND // 1_000_000))
    return {**row, "count": queue.count} if counts else row


def _partition_row(part: PartitionInfo) -> dict[str, Any]:
    row: dict[str, Any] = {
        "partition": part.number,
        "depth": part.depth,
        "scheduled": part.scheduled,
        "bytes": part.bytes,
        "rate": part.rate,
    }
    for end in ("oldest", "newest"):
        found = getattr(part, end)
        row[end] = found and found.hex
        row[f"{end}_time"] = found and rfc3339(found.ticks)
    return row
