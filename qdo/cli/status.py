"""``qdo status`` and ``qdo check``: how far a group is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import click

from qdo.cli.options import Workplace, queues_option, with_workplace
from qdo.client import Client
from qdo.groups.coordination import Coordinator
from qdo.groups.lag import MOST_COUNTED, Lag, PartitionStatus, total
from qdo.groups.view import GroupView, most_lag_first, see
from queuey.terminal.output import NothingFound, say, to_json, write_rows
from queuey.terminal.times import rfc3339

MEMBER_COLUMNS = ("member", "host", "pid", "partitions", "done", "per_second", "failed", "dead", "committed")
_TOLD = MEMBER_COLUMNS[4:]
"""By the members themselves, every few seconds."""
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
    help="Of a group by slots, show so many partitions of queues, those with the most lag first; with --json all.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status_command(workplace: Workplace, queues: tuple[str, ...], most: int, as_json: bool) -> None:
    """Who is in the group, who works on which partition, how far it is, and how much is left.

    Lag in seconds is the age of the first message that is not done. Lag in messages is what can be read
    behind the offset; of one partition up to 10,000 messages are counted, above that it reads '10000+'.
    Asks for each queue once and for each 1,000 messages of lag: of very many queues, name some. By slots, 20,000 queues
    by name are asked whether they got something since their slot was last done, and 1,000 of those are looked at.
    """
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator:
        seen = look(client, coordinator, workplace, queues)
    if as_json:
        click.echo(to_json(summary(workplace, seen), indent=2))
    else:
        write_status(workplace, seen, most)


def look(client: Client, coordinator: Coordinator, workplace: Workplace, queues: Sequence[str]) -> GroupView:
    """:raises NothingFound: nobody is in the group, and nobody ever got anywhere."""
    seen = see(client, coordinator, workplace.group, queues)
    if not seen.members and not seen.owned:
        named = f" in {', '.join(queues)}" if queues else ""
        raise NothingFound(
            f"group {workplace.group} has no workers and no offsets{named} on {workplace.where}: "
            "'qdo work MODULE:FUNCTION --queue NAME' starts one"
        )
    return seen


def write_status(workplace: Workplace, seen: GroupView, most: int) -> None:
    """For people."""
    click.echo(headline(workplace, seen))
    if seen.members:
        click.echo()
        write_rows(member_rows(seen), MEMBER_COLUMNS, "table")
    shown_ones = seen.found if seen.queues is None else most_lag_first(seen.found)[:most]
    for line in troubles(seen):
        click.echo(line)
    if shown_ones:
        click.echo()
        rows = [row(standing) for standing in shown_ones]
        write_rows([each | {"lag_messages": _counted(each)} for each in rows], COLUMNS, "table")
    sys.stdout.flush()
    if (left := len(seen.found) - len(shown_ones)) > 0:
        say(f"{_many(left, 'more partition')} with no more lag than these: --most {len(seen.found)} shows all")
    say_if_cut(seen)


def say_if_cut(seen: GroupView) -> None:
    """That there is more than was looked at."""
    if seen.cut:
        say(f"not all queues were looked at, only the first of {seen.queues:,} by name: --queue looks at others")


def headline(workplace: Workplace, seen: GroupView) -> str:
    """The group in a line."""
    lag, idle = total(seen.found), sum(standing.owner is None for standing in seen.owned)
    what, where = ("partition", "") if seen.queues is None else ("slot", _where(seen))
    unowned = f", {idle} without an owner" if idle else ""
    return (
        f"{workplace.group} of {workplace.server.application}: {_many(len(seen.members), 'worker')}, "
        f"{_many(len(seen.owned), what)}{unowned}; lag {shown(lag)} messages, {lag.seconds:.1f} s{where}"
    )


def _where(seen: GroupView) -> str:
    behind = {each.partition.queue for each in seen.found if each.lag is not None and each.lag.messages}
    return f" in {len(behind):,} of {_many(seen.queues or 0, 'queue')}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def shown(lag: Lag) -> str:
    """Messages as people read them.

    >>> shown(Lag(12)), shown(Lag(10000, exact=False))
    ('12', '10000+')
    """
    return f"{lag.messages}{'' if lag.exact else '+'}"


def member_rows(seen: GroupView) -> list[dict[str, Any]]:
    """Who is there, how many partitions or slots each owns, and how it does: messages done since it began, and its last commit."""
    return [
        {
            "member": member.name,
            "host": member.about.get("host"),
            "pid": member.about.get("pid"),
            "partitions": sum(standing.owner == member.name for standing in seen.owned),
            **{name: member.about.get(name) for name in _TOLD},
        }
        for member in seen.members
    ]


def row(standing: PartitionStatus) -> dict[str, Any]:
    """A partition in the words of the API."""
    lag = standing.lag
    return {
        "queue": standing.partition.queue,
        "partition": standing.partition.number,
        "owner": standing.owner,
        "generation": standing.generation,
        "message_id": id_of(standing),
        "time": time_of(standing),
        "lag_messages": None if lag is None else lag.messages,
        "lag_exact": None if lag is None else lag.exact,
        "lag_seconds": None if lag is None else round(lag.seconds, 3),
    }


def id_of(standing: PartitionStatus) -> str | None:
    """Of the offset; the beginning has none."""
    place = standing.offset and standing.offset.message_id
    return place.hex if place and place.ticks else None


def time_of(standing: PartitionStatus) -> str | None:
    """Of the offset; the beginning has none."""
    place = standing.offset and standing.offset.message_id
    return rfc3339(place.ticks)[:23] + "Z" if place and place.ticks else None


def _counted(found: dict[str, Any]) -> str:
    if found["lag_messages"] is None:
        return "no queue"
    return shown(Lag(found["lag_messages"], exact=found["lag_exact"]))


def troubles(seen: GroupView) -> list[str]:
    """What stands still, as the members say."""
    found = [(member.name, each) for member in seen.members for each in member.about.get("troubles") or ()]
    return [f"{_place(each)} stands still: {each['why']} ({name})" for name, each in found]


def _place(trouble: dict[str, Any]) -> str:
    number = trouble.get("partition")
    return str(trouble["queue"]) if number is None else f"{trouble['queue']}:{number}"


def summary(workplace: Workplace, seen: GroupView) -> dict[str, Any]:
    """For programs."""
    lag = total(seen.found)
    told = {
        "group": workplace.group,
        "application": workplace.server.application,
        "members": member_rows(seen),
        "troubles": [
            {"member": member.name, **each} for member in seen.members for each in member.about.get("troubles") or ()
        ],
        "partitions": [row(standing) for standing in seen.found],
        "lag_messages": lag.messages,
        "lag_exact": lag.exact,
        "lag_seconds": round(lag.seconds, 3),
    }
    if seen.queues is not None:
        told |= {"slots": [_slot(standing) for standing in seen.owned], "queues": seen.queues, "cut": seen.cut}
    return told


def _slot(standing: PartitionStatus) -> dict[str, Any]:
    """Everything up to its time is finished in all of its queues."""
    found = row(standing)
    return {"slot": found["partition"]} | {name: found[name] for name in ("owner", "generation", "time")}


@click.command("check")
@with_workplace
@queues_option
@click.option("--max-lag", type=click.IntRange(0), metavar="N", help="Messages that may be behind an offset.")
@click.option("--max-lag-seconds", type=click.FloatRange(0), metavar="S", help="How old a message not done may be.")
@click.pass_context
def check_command(
    ctx: click.Context,
    workplace: Workplace,
    queues: tuple[str, ...],
    max_lag: int | None,
    max_lag_seconds: float | None,
) -> None:
    """Exit with 1 if a partition of the group stands still or lags by more than it may, and say which.

    A partition stands still where a dead letter can never be written, or its queue cannot be read. Each partition is looked at by itself. Needs --max-lag, --max-lag-seconds or both.
    """
    if max_lag is None and max_lag_seconds is None:
        raise click.UsageError("say how much may be left: --max-lag, --max-lag-seconds or both.")
    most = MOST_COUNTED if max_lag is None else max_lag + 1
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator:
        seen = see(client, coordinator, workplace.group, queues, most=most)
    if not seen.owned:
        raise NothingFound(f"group {workplace.group} has no partitions on {workplace.where}")
    over = [standing for standing in seen.found if is_over(standing.lag, max_lag, max_lag_seconds)]
    for standing in over:
        lag = standing.lag or Lag()
        click.echo(f"{standing.partition}: lag {shown(lag)} messages, {lag.seconds:.1f} s")
    among = "" if seen.queues is None else f" in {_many(seen.queues, 'queue')}"
    say(f"{len(over)} of {_many(len(seen.found), 'partition')}{among} over")
    say_if_cut(seen)
    still = troubles(seen)
    for line in still:
        click.echo(line)
    ctx.exit(1 if over or still else 0)


def is_over(lag: Lag | None, max_lag: int | None, max_lag_seconds: float | None) -> bool:
    """Of a queue that is gone nothing is left."""
    if lag is None:
        return False
    too_many = max_lag is not None and lag.messages > max_lag
    return too_many or (max_lag_seconds is not None and lag.seconds > max_lag_seconds)
