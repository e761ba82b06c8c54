"""``queuey group``: groups of a queue whose offsets Queuey keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from queuey.ids import parse_timestamp
from queuey.moments import rfc3339
from queuey.terminal.commands import CommandGroup
from queuey.terminal.completion import complete_ends, group_argument, queue_argument
from queuey.terminal.options import check_can_ask, confirm, with_client, yes_option
from queuey.terminal.output import NothingFound, output_option, say, write_done, write_rows
from queuey.terminal.times import place_in_queue, shown_place

if TYPE_CHECKING:
    from qdo.client import Client, GroupOffset

COLUMNS = ("group", "kind")
OFFSETS = ("partition", "message_id", "time", "generation", "changed")
CHANGES = ("partition", "old_message_id", "message_id", "time", "generation")


@click.group("group", cls=CommandGroup)
def group_command() -> None:
    """List, look at, set and forget groups, which know how far they have read a queue.

    'queuey get --group' reads in one. Workers have theirs in Queuey with 'qdo work --offsets queuey'. Lease groups, whose
    receivers share the messages, are listed here, too; 'queuey lease' is for them.
    """


@group_command.command("ls")
@queue_argument
@output_option
@with_client
def list_groups(client: Client, queue: str, output: str | None) -> None:
    """Groups of QUEUE by name: those with offsets, and lease groups.

    Example: queuey group ls orders
    """
    with_offsets = [{"group": name, "kind": "offsets"} for name in client.offset_groups(queue)]
    of_leases = [{"group": name, "kind": "leases"} for name in client.lease_groups(queue)]
    write_rows(with_offsets + of_leases, COLUMNS, output)


@group_command.command("show")
@queue_argument
@group_argument
@output_option
@with_client
def show_group(client: Client, queue: str, group: str, output: str | None) -> None:
    """How far GROUP is in each partition of QUEUE: the last message that it has done.

    Example: queuey group show orders printers
    """
    found = client.offsets(queue, group)
    _refuse_unknown(queue, group, found)
    write_rows(map(_row, found), OFFSETS, output)


@group_command.command("reset")
@queue_argument
@group_argument
@click.option(
    "--to",
    required=True,
    shell_complete=complete_ends,
    callback=place_in_queue,
    help="beginning, end, 10m (ago), a time, or the id of the last message that counts as done.",
)
@click.option("-p", "--partition", "numbers", type=click.IntRange(1), multiple=True, help="Only this one. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@yes_option
@output_option
@with_client
def reset_group(
    client: Client,
    queue: str,
    group: str,
    to: str,
    numbers: Sequence[int],
    dry_run: bool,
    yes: bool,
    output: str | None,
) -> None:
    """Let GROUP go on elsewhere in QUEUE, also further back. A group that is new is made.

    A reader of the group that runs ends, or begins anew there.

    Example: queuey group reset orders printers --to 1h --dry-run
    """
    if not dry_run:
        confirm(
            f"Let group {group} of queue {queue} go on at {shown_place(to)}?",
            yes=yes,
            look=lambda: client.reset_offsets(queue, group, to, partitions=list(numbers) or None, preview=True),
        )
    changed = client.reset_offsets(queue, group, to, partitions=list(numbers) or None, preview=dry_run)
    rows = ({**_row(offset), "old_message_id": offset.old_id and offset.old_id.hex} for offset in changed)
    write_rows(rows, CHANGES, output)
    say(f"group {group} of {queue} {'would go on' if dry_run else 'goes on'} at {shown_place(to)}")


@group_command.command("rm")
@queue_argument
@group_argument
@yes_option
@output_option
@with_client
def forget_group(client: Client, queue: str, group: str, yes: bool, output: str | None) -> None:
    """Forget how far GROUP is in QUEUE. The messages stay. End its readers first.

    A later group of this name begins anew. 'queuey lease rm' forgets a lease group.

    Example: queuey group rm orders printers --yes
    """
    question = f"Forget how far group {group} is in queue {queue}?"
    check_can_ask(question, yes=yes)
    _refuse_unknown(queue, group, client.offsets(queue, group))
    confirm(question, yes=yes)
    client.delete_offsets(queue, group)
    write_done({"queue": queue, "group": group, "kind": "offsets"}, output)
    say(f"forgot group {group} of {queue}")


def _refuse_unknown(queue: str, group: str, found: Sequence[GroupOffset]) -> None:
    """:raises NothingFound: nobody has read in this group."""
    if not any(offset.generation or offset.timestamp for offset in found):
        raise NothingFound(f"queue {queue} has no group {group} with offsets: 'queuey group ls {queue}' lists them")


def _row(offset: GroupOffset) -> dict[str, Any]:
    return {
        "partition": offset.partition,
        "message_id": offset.id and offset.id.hex,
        "time": offset.id and rfc3339(offset.id.ticks),
        "generation": offset.generation,
        "changed": offset.timestamp and rfc3339(parse_timestamp(offset.timestamp)),
    }
