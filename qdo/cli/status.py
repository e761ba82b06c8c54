"""``qdo status`` and ``qdo check``: how far a group is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import click

from qdo.cli.options import Workplace, one_of, queues_option, with_workplace
from qdo.client import Client
from qdo.coordination import Coordinator, Member
from qdo.lag import MOST_COUNTED, Lag, Standing, standings, total
from queuey.cli.output import NothingFound, say, to_json, write_rows
from queuey.cli.times import rfc3339

MEMBER_COLUMNS = ("member", "host", "pid", "partitions", "done", "per_second", "failed", "dead", "committed")
_TOLD = MEMBER_COLUMNS[4:]
"""By the members themselves, every few seconds."""
COLUMNS = ("queue", "partition", "owner", "message_id", "time", "lag_messages", "lag_seconds")


@click.command("status")
@with_workplace
@queues_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status_command(workplace: Workplace, queues: tuple[str, ...], as_json: bool) -> None:
    """Who is in the group, who works on which partition, how far it is, and how much is left.

    Lag in seconds is the age of the first message that is not done. Lag in messages is what can be read
    behind the offset; of one partition up to 10,000 messages are counted, above that it reads '10000+'.
    Asks for each queue once and for each 1,000 messages of lag: of very many queues, name some.
    """
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator:
        members, found = look(client, coordinator, workplace, queues)
    if as_json:
        click.echo(to_json(summary(workplace, members, found), indent=2))
    else:
        write_status(workplace, members, found)


def look(
    client: Client, coordinator: Coordinator, workplace: Workplace, queues: Sequence[str]
) -> tuple[Sequence[Member], list[Standing]]:
    """:raises NothingFound: nobody is in the group, and nobody ever got anywhere."""
    members = coordinator.members()
    found = standings(client, coordinator, one_of(queues))
    if not members and not found:
        named = f" in {', '.join(queues)}" if queues else ""
        raise NothingFound(
            f"group {workplace.group} has no workers and no offsets{named} on {workplace.where}: "
            "'qdo work MODULE:FUNCTION --queue NAME' starts one"
        )
    return members, found


def write_status(workplace: Workplace, members: Sequence[Member], found: Sequence[Standing]) -> None:
    """For people."""
    click.echo(headline(workplace, members, found))
    if members:
        click.echo()
        write_rows(member_rows(members, found), MEMBER_COLUMNS, "table")
    if found:
        click.echo()
        rows = [row(standing) for standing in found]
        write_rows([each | {"lag_messages": _counted(each)} for each in rows], COLUMNS, "table")
    sys.stdout.flush()


def headline(workplace: Workplace, members: Sequence[Member], found: Sequence[Standing]) -> str:
    """The group in a line."""
    lag, idle = total(found), sum(standing.owner is None for standing in found)
    unowned = f", {idle} without an owner" if idle else ""
    return (
        f"{workplace.group} of {workplace.server.application}: {_many(len(members), 'worker')}, "
        f"{_many(len(found), 'partition')}{unowned}; lag {shown(lag)} messages, {lag.seconds:.1f} s"
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def shown(lag: Lag) -> str:
    """Messages as people read them.

    >>> shown(Lag(12)), shown(Lag(10000, exact=False))
    ('12', '10000+')
    """
    return f"{lag.messages}{'' if lag.exact else '+'}"


def member_rows(members: Sequence[Member], found: Sequence[Standing]) -> list[dict[str, Any]]:
    """Who is there, how many partitions each owns, and how it does: messages done since it began, and its last commit."""
    return [
        {
            "member": member.name,
            "host": member.about.get("host"),
            "pid": member.about.get("pid"),
            "partitions": sum(standing.owner == member.name for standing in found),
            **{name: member.about.get(name) for name in _TOLD},
        }
        for member in members
    ]


def row(standing: Standing) -> dict[str, Any]:
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


def id_of(standing: Standing) -> str | None:
    """Of the offset; the beginning has none."""
    place = standing.offset and standing.offset.message_id
    return place.hex if place and place.ticks else None


def time_of(standing: Standing) -> str | None:
    """Of the offset; the beginning has none."""
    place = standing.offset and standing.offset.message_id
    return rfc3339(place.ticks)[:23] + "Z" if place and place.ticks else None


def _counted(found: dict[str, Any]) -> str:
    if found["lag_messages"] is None:
        return "no queue"
    return shown(Lag(found["lag_messages"], exact=found["lag_exact"]))


def summary(workplace: Workplace, members: Sequence[Member], found: Sequence[Standing]) -> dict[str, Any]:
    """For programs."""
    lag = total(found)
    return {
        "group": workplace.group,
        "application": workplace.server.application,
        "members": member_rows(members, found),
        "partitions": [row(standing) for standing in found],
        "lag_messages": lag.messages,
        "lag_exact": lag.exact,
        "lag_seconds": round(lag.seconds, 3),
    }


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
    """Exit with 1 if a partition of the group lags by more than it may, and say which.

    Each partition is looked at by itself. Needs --max-lag, --max-lag-seconds or both.
    """
    if max_lag is None and max_lag_seconds is None:
        raise click.UsageError("say how much may be left: --max-lag, --max-lag-seconds or both.")
    most = MOST_COUNTED if max_lag is None else max_lag + 1
    with workplace.server.client() as client, closing(workplace.coordinator()) as coordinator:
        found = standings(client, coordinator, one_of(queues), most=most)
    if not found:
        raise NothingFound(f"group {workplace.group} has no partitions on {workplace.where}")
    over = [standing for standing in found if is_over(standing.lag, max_lag, max_lag_seconds)]
    for standing in over:
        lag = standing.lag or Lag()
        click.echo(f"{standing.partition}: lag {shown(lag)} messages, {lag.seconds:.1f} s")
    say(f"{len(over)} of {_many(len(found), 'partition')} over")
    ctx.exit(1 if over else 0)


def is_over(lag: Lag | None, max_lag: int | None, max_lag_seconds: float | None) -> bool:
    """Of a queue that is gone nothing is left."""
    if lag is None:
        return False
    too_many = max_lag is not None and lag.messages > max_lag
    return too_many or (max_lag_seconds is not None and lag.seconds > max_lag_seconds)
