"""``queuey lease``: lease groups, their settings and what they hold."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from queuey.ids import parse_timestamp
from queuey.moments import rfc3339
from queuey.terminal.commands import CommandGroup
from queuey.terminal.completion import complete_ends, complete_queues, lease_group_argument, queue_argument
from queuey.terminal.numbers import Number
from queuey.terminal.options import check_can_ask, confirm, with_client, yes_option
from queuey.terminal.output import form_for, output_option, say, write_done, write_one, write_rows
from queuey.terminal.times import Duration, Moment, place_in_queue, shown_place

if TYPE_CHECKING:
    from qdo.client import Client, Lease, LeasePartition

LEASES = (
    "partition",
    "message_id",
    "state",
    "receiver",
    "deliveries",
    "failures",
    "key",
    "visible_at",
    "ended",
    "reason",
)
PARTITIONS = (
    "partition",
    "held",
    "leased",
    "waiting",
    "dead",
    "closed_keys",
    "k",
    "done_up_to",
    "oldest_time",
    "oldest_age",
    "more",
)
BACKLOG = ("visible", "hidden", "delayed")
_BACKOFF = ("first", "factor", "most", "jitter")


@click.group("lease", cls=CommandGroup)
def lease_command() -> None:
    """List, look at, set, reset and forget lease groups, whose receivers share the messages of a queue."""


@lease_command.command("ls")
@queue_argument
@output_option
@with_client
def list_groups(client: Client, queue: str, output: str | None) -> None:
    """Lease groups of QUEUE by name.

    Example: queuey lease ls jobs
    """
    write_rows(({"group": name} for name in client.lease_groups(queue)), ("group",), output)


@lease_command.command("info")
@queue_argument
@lease_group_argument
@click.option("--leased", is_flag=True, help="List the messages that it holds, and their receivers.")
@click.option("-n", "--limit", type=click.IntRange(1), help="With --leased: the most messages to list.")
@click.option("--backlog", is_flag=True, help="Count also the messages that it may hand out now, and those it may not.")
@output_option
@with_client
def show_group(
    client: Client, queue: str, group: str, leased: bool, limit: int | None, backlog: bool, output: str | None
) -> None:
    """Settings of GROUP, and what it holds in each partition of QUEUE.

    With --backlog a partition says how many messages are visible: a receive may hand them out now. Hidden ones are leased, or
    wait for another try; delayed ones are not due yet.

    Example: queuey lease info jobs default --backlog
    """
    if leased:
        rows = (_lease_row(one) for one in islice(client.leases(queue, group), limit))
        write_rows(rows, LEASES, output)
        return
    found = client.lease_group(queue, group, backlog=backlog)
    row = {"group": found.name, **found.settings}
    columns = (*PARTITIONS, *(BACKLOG if backlog else ()))
    details = [
        {name: value for name, value in _partition_row(one).items() if name in columns} for one in found.partitions
    ]
    if form_for(output) != "table":
        write_one({**row, "partitions": details}, output)
        return
    write_one(flat_settings(row), "table")
    click.echo()
    write_rows(details, columns, "table")


def _number_or_auto(_ctx: click.Context, param: click.Parameter, text: str | None) -> int | str | None:
    if text is None or text == "auto":
        return text
    return int(click.IntRange(1).convert(text, param, _ctx))  # type: ignore[arg-type]  # it takes a text


_BREAKER = re.compile(r"(?P<dead>[0-9]+)/(?P<seconds>.+)")


def _breaker(_ctx: click.Context, param: click.Parameter, text: str | None) -> dict[str, float] | str | None:
    if text in (None, "none"):
        return text
    found = _BREAKER.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is neither 'none' nor DEAD/TIME, such as 100/1m.")
    return {"dead": int(found["dead"]), "seconds": Duration().convert(found["seconds"], param, _ctx)}


@lease_command.command("set")
@queue_argument
@lease_group_argument
@click.option("--visibility", type=Duration(), help="How long a lease is.  [default: 30]")
@click.option("--max-failures", type=click.IntRange(0), help="Then to the dead letters; 0 for never.  [default: 20]")
@click.option(
    "--dead-letter-queue",
    metavar="NAME",
    shell_complete=complete_queues,
    help="Queue of the dead letters.  [default: QUEUE-dead]",
)
@click.option("--order", type=click.Choice(["none", "key"]), help="key: messages of one key come one after the other.")
@click.option("--per-key", type=click.IntRange(1), help="Messages of one key in one receive.  [default: 1]")
@click.option("--backoff-first", type=Duration(), help="The wait after the first failure.  [default: 1]")
@click.option("--backoff-factor", type=Number(1, 100), help="How much longer it is after each other.  [default: 2]")
@click.option("--backoff-most", type=Duration(), help="The longest wait.  [default: 1h; with --order key 30]")
@click.option("--backoff-jitter", type=Number(0, 1), help="The share by which it varies.  [default: 0.1]")
@click.option(
    "--k", callback=_number_or_auto, metavar="N|auto", help="Take at random among the N oldest.  [default: 1 or auto]"
)
@click.option(
    "--weak", "exact", flag_value=False, default=None, type=bool, help="Of a new group: servers need not agree."
)
@click.option("--fair/--unfair", default=None, help="fair: keys with many leases wait behind others.")
@click.option("--max-leased", type=click.IntRange(1), help="Messages that receivers have at once.")
@click.option("--max-held", type=click.IntRange(1), help="Messages that are leased or wait for a retry, at once.")
@click.option(
    "--pause-until", type=Moment(ids=False), help="Hand out nothing until then: RFC 3339 or seconds since 1970."
)
@click.option("--reason", "paused_reason", help="Why it is paused.")
@click.option("--resume", is_flag=True, help="End a pause, also that of a breaker.")
@click.option(
    "--breaker",
    callback=_breaker,
    metavar="DEAD/TIME",
    help="Pause after more dead letters in this time: 100/1m; none.",
)
@click.option(
    "--start",
    callback=place_in_queue,
    shell_complete=complete_ends,
    help="Of a new group: beginning, end, 10m (ago), a time or a message id.",
)
@output_option
@with_client
def set_group(
    client: Client, queue: str, group: str, pause_until: str | None, resume: bool, output: str | None, **settings: Any
) -> None:
    """Make GROUP, or change what is given and keep the rest.

    Example: queuey lease set jobs default --visibility 5m --max-failures 5
    """
    if resume and pause_until is not None:
        raise click.UsageError("--resume and --pause-until exclude each other.")
    backoff = {name: settings.pop(f"backoff_{name}") for name in _BACKOFF}
    backoff = {name: value for name, value in backoff.items() if value is not None}
    paused_until = 0.0 if resume else None if pause_until is None else float(pause_until)
    if resume and settings["paused_reason"] is None:
        settings["paused_reason"] = ""
    changed = client.set_lease_group(queue, group, backoff=backoff or None, paused_until=paused_until, **settings)
    row = {"group": group, **changed}
    write_one(flat_settings(row) if form_for(output) in ("table", "csv") else row, output)


@lease_command.command("reset")
@queue_argument
@lease_group_argument
@click.option(
    "--to",
    required=True,
    callback=place_in_queue,
    shell_complete=complete_ends,
    help="beginning, end, 10m (ago), a time, or a message id to go on behind.",
)
@click.option("--dry-run", is_flag=True, help="Show what the group holds, and change nothing.")
@yes_option
@output_option
@with_client
def reset_group(client: Client, queue: str, group: str, to: str, dry_run: bool, yes: bool, output: str | None) -> None:
    """Let GROUP of QUEUE begin anew at another place, with its settings. Its leases end.

    Shows what the group held before.

    Example: queuey lease reset jobs default --to end --dry-run
    """
    if not dry_run:
        confirm(
            f"Reset lease group {group} of queue {queue} to {shown_place(to)}? Its leases end.",
            yes=yes,
            look=lambda: client.reset_lease_group(queue, group, to, preview=True),
        )
    found = client.reset_lease_group(queue, group, to, preview=dry_run)
    write_rows(found["before"], PARTITIONS, output)
    say(f"lease group {group} of {queue} {'would begin' if dry_run else 'begins'} anew at {shown_place(to)}")


@lease_command.command("rm")
@queue_argument
@lease_group_argument
@yes_option
@output_option
@with_client
def forget_group(client: Client, queue: str, group: str, yes: bool, output: str | None) -> None:
    """Forget GROUP of QUEUE, its settings and its leases. The messages stay.

    A later group of this name begins anew.

    Example: queuey lease rm jobs default --yes
    """
    question = f"Forget lease group {group} of queue {queue}, its settings and its leases?"
    check_can_ask(question, yes=yes)
    client.lease_group(queue, group)  # to forget one that is not there would be no error
    confirm(question, yes=yes)
    client.forget_lease_group(queue, group)
    write_done({"queue": queue, "group": group, "kind": "leases"}, output)
    say(f"forgot lease group {group} of {queue}")


def flat_settings(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose members are no objects."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= {f"{name}_{part}": one for part, one in value.items()} if isinstance(value, dict) else {name: value}
    for name in ("paused_until", "lease_paused_until"):
        if flat.get(name):
            flat[name] = rfc3339(parse_timestamp(f"{flat[name]:.7f}"))
    return flat


def _lease_row(one: Lease) -> dict[str, Any]:
    return {
        "partition": one.partition,
        "message_id": one.id.hex,
        "state": one.state,
        "receiver": one.receiver,
        "deliveries": one.deliveries,
        "failures": one.failures,
        "key": one.key,
        "visible_at": one.visible_at,
        "ended": one.ended,
        "reason": one.reason,
    }


def _partition_row(one: LeasePartition) -> dict[str, Any]:
    return {
        "partition": one.number,
        "held": one.held,
        "leased": one.leased,
        "waiting": one.waiting,
        "dead": one.dead,
        "closed_keys": one.closed_keys,
        "k": one.k,
        "done_up_to": one.done_up_to,
        "oldest_time": one.oldest and rfc3339(one.oldest.ticks),
        "oldest_age": one.oldest_age,
        "more": one.more,
        "visible": one.visible,
        "hidden": one.hidden,
        "delayed": one.delayed,
    }
