"""``qdo offsets``: show and set how far a group is."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import click

from qdo.cli.options import Workplace, queues_option, with_workplace
from qdo.cli.status import id_of, row, say_if_cut, time_of
from qdo.client import Client
from qdo.compat.positions import STATUS_QUEUE, positions, to_offsets
from qdo.groups.assign import Partition
from qdo.groups.coordination import CommittedOffset, Coordinator, last_id_of
from qdo.groups.lag import PartitionStatus, lags
from qdo.groups.view import view_of
from queuey.errors import InvalidParameter
from queuey.ids import ZERO_ID, MessageId, parse_timestamp
from queuey.terminal.commands import CommandGroup
from queuey.terminal.completion import complete_ends, complete_queues, queue_argument
from queuey.terminal.output import NothingFound, many, output_option, say, write_rows
from queuey.terminal.times import Moment

COLUMNS = ("queue", "partition", "message_id", "time", "lag_messages", "lag_exact", "lag_seconds")
PREVIEW_COLUMNS = ("queue", "partition", "old_message_id", "old_time", "message_id", "time", "lag_before", "lag_after")


@click.group("offsets", cls=CommandGroup)
def offsets_command() -> None:
    """How far a group is, by partition."""


@offsets_command.command("show")
@with_workplace
@queues_option
@output_option
def show(workplace: Workplace, queues: tuple[str, ...], output: str | None) -> None:
    """The last message done in each partition, and the lag behind it.

    For a group by slots it looks at the first 1,000 queues by name, with two requests each. --queue selects others.

    Example: qdo offsets show -g reports
    """
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator:
        view = view_of(client, coordinator, workplace.group, queues, idle_too=True)
    found = [each for each in view.found if each.offset is not None]
    say_if_cut(view)
    if not found:
        raise NothingFound(f"group {workplace.group} has no offsets on {workplace.where}")
    write_rows([{name: row(each)[name] for name in COLUMNS} for each in found], COLUMNS, output)


class OffsetTarget(click.ParamType[str]):
    """``beginning``, ``end``, or a moment."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value if value in ("beginning", "end") else Moment(ago=True).convert(value, param, ctx)


yes_option = click.option("--yes", is_flag=True, help="Do it. Without this the command only shows what it would do.")


@offsets_command.command("set")
@queue_argument
@with_workplace
@click.option(
    "--to",
    type=OffsetTarget(),
    required=True,
    shell_complete=complete_ends,
    help="beginning, end, the id of the last message that counts as done, or the time of the first that does not, "
    "such as 2026-11-21T10:00:00Z, or 10m for ten minutes ago.",
)
@click.option(
    "-p",
    "--partition",
    "numbers",
    type=click.IntRange(1),
    multiple=True,
    help="Only this partition; may be repeated. Default: all.",
)
@yes_option
@output_option
def set_(workplace: Workplace, queue: str, to: str, numbers: tuple[int, ...], yes: bool, output: str | None) -> None:
    """Let a group go on from somewhere else in QUEUE, also further back.

    It shows what would change: the new lag is what the group will do, maybe again. --yes changes it at once. Workers need
    not be stopped: those at work there begin anew from the new place.

    Example: qdo offsets set crashes -g reports --to 10m
    """
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator:
        info = client.queue_info(queue)
        place = place_of(to, info.watermark)
        known = [part.number for part in info.partitions]
        if beyond := sorted(set(numbers) - set(known)):
            raise InvalidParameter(
                problems={"partition": f"{queue} has {len(known)} partitions: there is no {beyond[0]}"}
            )
        offset = CommittedOffset(info.uuid, place)
        _change(client, coordinator, {Partition(queue, n): offset for n in numbers or known}, yes=yes, output=output)


def place_of(to: str, watermark: str) -> MessageId:
    """The id of the last message that counts as done.

    >>> place_of("beginning", "1.5").ticks
    0
    """
    if to == "beginning":
        return ZERO_ID
    if to == "end":
        return last_id_of(parse_timestamp(watermark))
    return last_id_of(parse_timestamp(to) - 1) if "." in to else MessageId.parse(to)


@offsets_command.command("import")
@with_workplace
@click.option(
    "--from",
    "queue",
    default=STATUS_QUEUE,
    show_default=True,
    shell_complete=complete_queues,
    help="Queue in which qdo 0.1 kept its positions.",
)
@yes_option
@output_option
def import_(workplace: Workplace, queue: str, yes: bool, output: str | None) -> None:
    """Go on where qdo 0.1 was: its positions become the offsets of the group.

    It reads all partitions of the queue, and takes the newest position of each. It shows what would change; --yes does it.

    Example: qdo offsets import -g reports --yes
    """
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator:
        found = positions(client, queue)
        offsets, gone = to_offsets(client, found)
        for partition in gone:
            say(f"{partition} is gone: its position is left out")
        if not offsets:
            raise NothingFound(f"there are no positions in {queue}")
        _change(client, coordinator, offsets, yes=yes, output=output)


def _change(
    client: Client, coordinator: Coordinator, new: Mapping[Partition, CommittedOffset], *, yes: bool, output: str | None
) -> None:
    old = coordinator.offsets()
    before, after = lags(client, new, old), lags(client, new, new)
    rows = []
    for each, offset in new.items():
        was = PartitionStatus(each, None, None, old.get(each), before.get(each))
        will = PartitionStatus(each, None, None, offset, after.get(each))
        rows.append(
            {
                "queue": each.queue,
                "partition": each.number,
                "old_message_id": id_of(was),
                "old_time": time_of(was),
                "message_id": id_of(will),
                "time": time_of(will),
                "lag_before": was.lag and was.lag.messages,
                "lag_after": will.lag and will.lag.messages,
            }
        )
    write_rows(rows, PREVIEW_COLUMNS, output)
    if yes:
        coordinator.reset(dict(new))
    say(f"{many(len(rows), 'offset')} {'set' if yes else 'would change; --yes sets them'}")
