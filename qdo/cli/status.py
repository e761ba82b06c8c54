"""``qdo status`` and ``qdo check``: how far a group is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import click

from qdo.cli.lease_status import show_lease_group
from qdo.cli.options import Workplace, queues_option, refuse_without_meaning, with_workplace
from qdo.client import Client
from qdo.groups.coordination import Coordinator, Member
from qdo.groups.lag import MOST_COUNTED, Lag, PartitionStatus, total
from qdo.groups.view import GroupView, most_lag_first, view_of
from queuey.moments import rfc3339
from queuey.terminal.numbers import Number
from queuey.terminal.output import NothingFound, many, output_option, say, write_one, write_rows

MEMBER_COLUMNS = ("member", "host", "pid", "partitions", "done", "per_second", "failed", "dead", "committed")
_TOLD = MEMBER_COLUMNS[4:]
"""Members update these every few seconds."""
COLUMNS = ("queue", "partition", "owner", "message_id", "time", "lag_messages", "lag_seconds")


@click.command("status")
@with_workplace
@queues_option
@click.option(
    "--most",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="N",
    help="For a group by slots: partitions of queues to show, with the most lag first; with -o all are there.",
)
@click.option("--json", "as_json", is_flag=True, help="As -o json.")
@click.option("--lease", is_flag=True, help="Show what the lease group of this name holds, in each queue that has it.")
@output_option
def status_command(
    workplace: Workplace, queues: tuple[str, ...], most: int, as_json: bool, lease: bool, output: str | None
) -> None:
    """The members of a group, the partitions of each, and how much is left.

    Lag in seconds is the age of the first message that is not done. Lag in messages is what can be read behind the offset;
    in one partition up to 10,000 messages are counted, and above that it reads '10000+'. This takes one request for each
    queue and one for each 1,000 messages of lag: with very many queues, name some. For a group by slots, 20,000 queues by
    name are asked whether they got something since their slot was last done, and 1,000 of these are looked at.

    With --lease it shows a group of 'qdo work --lease': messages that workers have or that wait for another try, and dead
    letters. It asks 1,000 queues by name; 'queuey lease info QUEUE GROUP --leased' lists the messages and their workers.

    -o json gives one object with everything, -o jsonl and csv the partitions; without -o it is a text for people, also in a
    pipe.

    Example: qdo status -g reports --queue 'mail-*' -o json
    """
    output = "json" if as_json else output
    if lease:
        refuse_without_meaning({"most": "it is for groups by slots"})
        with workplace.server.client() as client:
            show_lease_group(client, workplace, queues, output)
        return
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator:
        view = look(client, coordinator, workplace, queues)
    if output == "json":
        write_one(summary(workplace, view), output)
    elif output in ("jsonl", "csv"):
        write_rows(map(row, view.found), COLUMNS, output)
    else:
        write_status(workplace, view, most)


def look(client: Client, coordinator: Coordinator, workplace: Workplace, queues: Sequence[str]) -> GroupView:
    """:raises NothingFound: the group has no members, and nothing was ever done in it."""
    view = view_of(client, coordinator, workplace.group, queues)
    if not view.members and not view.owned:
        named = f" in {', '.join(queues)}" if queues else ""
        raise NothingFound(
            f"group {workplace.group} has no workers and no offsets{named} on {workplace.where}: "
            "'qdo work MODULE:FUNCTION --queue NAME' starts one; "
            "'qdo status --lease' shows workers on leases and on tasks"
        )
    return view


def write_status(workplace: Workplace, view: GroupView, most: int) -> None:
    """Print the view for people."""
    click.echo(headline(workplace, view))
    if view.members:
        click.echo()
        write_rows(member_rows(view), MEMBER_COLUMNS, "table")
    shown_ones = view.found if view.queues is None else most_lag_first(view.found)[:most]
    for line in troubles(view):
        click.echo(line)
    if shown_ones:
        click.echo()
        rows = [row(status) for status in shown_ones]
        write_rows([each | {"lag_messages": _counted(each)} for each in rows], COLUMNS, "table")
    sys.stdout.flush()
    if (left := len(view.found) - len(shown_ones)) > 0:
        say(f"{many(left, 'more partition')} with no more lag than these: --most {len(view.found)} shows all")
    say_if_cut(view)


def say_if_cut(view: GroupView) -> None:
    """Say so if there is more than was looked at."""
    if view.cut:
        say(f"not all queues were looked at, only the first of {view.queues:,} by name: --queue looks at others")


def headline(workplace: Workplace, view: GroupView) -> str:
    """The group in one line."""
    lag, idle = total(view.found), sum(status.owner is None for status in view.owned)
    what, where = ("partition", "") if view.queues is None else ("slot", _where(view))
    unowned = f", {idle} without an owner" if idle else ""
    return (
        f"{workplace.group} of {workplace.server.application}: {many(len(view.members), 'worker')}, "
        f"{many(len(view.owned), what)}{unowned}; lag {shown(lag)} messages, {lag.seconds:.1f} s{where}"
    )


def _where(view: GroupView) -> str:
    behind = {each.partition.queue for each in view.found if each.lag is not None and each.lag.messages}
    return f" in {len(behind):,} of {many(view.queues or 0, 'queue')}"


def shown(lag: Lag) -> str:
    """Messages as people read them.

    >>> shown(Lag(12)), shown(Lag(10000, exact=False))
    ('12', '10000+')
    """
    return f"{lag.messages}{'' if lag.exact else '+'}"


def member_rows(view: GroupView) -> list[dict[str, Any]]:
    """The members: what each owns, and how it does.

    A row has partitions or slots owned, messages done since the member began, and its last commit.
    """
    return [
        {
            "member": member.name,
            "host": member.about.get("host"),
            "pid": member.about.get("pid"),
            "partitions": sum(status.owner == member.name for status in view.owned),
            **{name: member.about.get(name) for name in _TOLD},
        }
        for member in view.members
    ]


def row(status: PartitionStatus) -> dict[str, Any]:
    """A partition in the words of the API."""
    lag = status.lag
    return {
        "queue": status.partition.queue,
        "partition": status.partition.number,
        "owner": status.owner,
        "generation": status.generation,
        "message_id": id_of(status),
        "time": time_of(status),
        "lag_messages": None if lag is None else lag.messages,
        "lag_exact": None if lag is None else lag.exact,
        "lag_seconds": None if lag is None else round(lag.seconds, 3),
    }


def id_of(status: PartitionStatus) -> str | None:
    """The id of the offset; None at the beginning."""
    place = status.offset and status.offset.message_id
    return place.hex if place and place.ticks else None


def time_of(status: PartitionStatus) -> str | None:
    """The time of the offset; None at the beginning."""
    place = status.offset and status.offset.message_id
    return rfc3339(place.ticks)[:23] + "Z" if place and place.ticks else None


def _counted(found: dict[str, Any]) -> str:
    if found["lag_messages"] is None:
        return "no queue"
    return shown(Lag(found["lag_messages"], exact=found["lag_exact"]))


def troubles(view: GroupView) -> list[str]:
    """What stands still, as the members say."""
    found = [(member.name, each) for member in view.members for each in _troubles_of(member)]
    return [f"{_place(each)} stands still: {each['why']} ({name})" for name, each in found]


def _troubles_of(member: Member) -> Sequence[dict[str, Any]]:
    return member.about.get("troubles") or ()


def _place(trouble: dict[str, Any]) -> str:
    number = trouble.get("partition")
    return str(trouble["queue"]) if number is None else f"{trouble['queue']}:{number}"


def summary(workplace: Workplace, view: GroupView) -> dict[str, Any]:
    """The view for programs."""
    lag = total(view.found)
    told = {
        "group": workplace.group,
        "application": workplace.server.application,
        "members": member_rows(view),
        "troubles": [{"member": member.name, **each} for member in view.members for each in _troubles_of(member)],
        "partitions": [row(status) for status in view.found],
        "lag_messages": lag.messages,
        "lag_exact": lag.exact,
        "lag_seconds": round(lag.seconds, 3),
    }
    if view.queues is not None:
        told |= {"slots": [_slot(status) for status in view.owned], "queues": view.queues, "cut": view.cut}
    return told


def _slot(status: PartitionStatus) -> dict[str, Any]:
    """A slot: everything up to its time is finished in all of its queues."""
    found = row(status)
    return {"slot": found["partition"]} | {name: found[name] for name in ("owner", "generation", "time")}


@click.command("check")
@with_workplace
@queues_option
@click.option("--max-lag", type=click.IntRange(0), metavar="N", help="Messages allowed behind an offset.")
@click.option("--max-lag-seconds", type=Number(0), metavar="S", help="Age allowed for a message that is not done.")
@output_option
@click.pass_context
def check_command(
    ctx: click.Context,
    workplace: Workplace,
    queues: tuple[str, ...],
    max_lag: int | None,
    max_lag_seconds: float | None,
    output: str | None,
) -> None:
    """Exit with 1 if a partition of the group stands still or lags too much.

    It says which partitions these are.

    A partition stands still if a dead letter can never be written, or if its queue cannot be read. Each partition is
    checked by itself. Give --max-lag, --max-lag-seconds or both.

    Example: qdo check -g reports --max-lag 1000
    """
    if max_lag is None and max_lag_seconds is None:
        raise click.UsageError("say how much lag is allowed: --max-lag, --max-lag-seconds or both.")
    most = MOST_COUNTED if max_lag is None else max_lag + 1
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator:
        view = view_of(client, coordinator, workplace.group, queues, most=most)
    if not view.owned:
        raise NothingFound(f"group {workplace.group} has no partitions on {workplace.where}")
    over = [status for status in view.found if is_over(status.lag, max_lag, max_lag_seconds)]
    still = troubles(view)
    if output is not None:
        rows = [{**row(status), "why": None} for status in over]
        rows += [{"queue": None, "partition": None, **each} for member in view.members for each in _troubles_of(member)]
        write_rows(rows, (*COLUMNS, "why"), output)
    for status in over if output is None else ():
        lag = status.lag or Lag()
        click.echo(f"{status.partition}: lag {shown(lag)} messages, {lag.seconds:.1f} s")
    among = "" if view.queues is None else f" in {many(view.queues, 'queue')}"
    say(f"{len(over)} of {many(len(view.found), 'partition')}{among} over")
    say_if_cut(view)
    for line in still if output is None else ():
        click.echo(line)
    ctx.exit(1 if over or still else 0)


def is_over(lag: Lag | None, max_lag: int | None, max_lag_seconds: float | None) -> bool:
    """Whether a lag is more than allowed. A queue that is gone has no lag."""
    if lag is None:
        return False
    too_many = max_lag is not None and lag.messages > max_lag
    return too_many or (max_lag_seconds is not None and lag.seconds > max_lag_seconds)
