"""``qdo status --lease``: what a lease group holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import click

from qdo.cli.options import Workplace
from qdo.client import Client, LeasePartition
from qdo.groups.dead_letter_names import DEFAULT_DEAD_LETTERS, DeadLetterNames
from qdo.groups.subscription import each_queue
from queuey.errors import LeaseGroupNotFound, QueueNotFound
from queuey.ids import MessageId
from queuey.moments import rfc3339
from queuey.terminal.output import NothingFound, say, write_one, write_rows

__all__ = ["lease_headline", "lease_rows", "show_lease_group"]

MOST_QUEUES = 1000
"""Each is a request."""
COLUMNS = ("queue", "partition", "held", "leased", "dead", "done_up_to")


def show_lease_group(client: Client, workplace: Workplace, queues: Sequence[str], output: str | None) -> None:
    """Print what the group holds in each partition of its queues.

    :param queues: names and patterns; none for all queues but those of dead letters.
    :raises NothingFound: no queue has a lease group of this name.
    """
    rows, is_cut = lease_rows(client, workplace, queues)
    if not rows:
        raise NothingFound(
            f"no queue has a lease group {workplace.group}: "
            "'qdo work MODULE:FUNCTION --lease --queue NAME' begins to receive in one"
        )
    if output == "json":
        about = {"group": workplace.group, "application": workplace.server.application}
        write_one({**about, **_totals(rows), "partitions": rows}, output)
    elif output in ("jsonl", "csv"):
        write_rows(rows, COLUMNS, output)
    else:
        click.echo(lease_headline(workplace, rows))
        click.echo()
        write_rows(rows, COLUMNS, "table")
    if is_cut:
        say(f"not all queues were looked at, only the first {MOST_QUEUES:,} by name: --queue looks at others")


def lease_rows(client: Client, workplace: Workplace, queues: Sequence[str]) -> tuple[list[dict[str, Any]], bool]:
    """A row for each partition, by queue, and whether there are more queues than were looked at."""
    leave_out = DeadLetterNames(DEFAULT_DEAD_LETTERS).is_one
    found = dict.fromkeys(one.name for one in islice(each_queue(client, queues or "*", leave_out), MOST_QUEUES + 1))
    rows = [row for name in islice(found, MOST_QUEUES) for row in _rows(client, name, workplace.group)]
    return rows, len(found) > MOST_QUEUES


def lease_headline(workplace: Workplace, rows: Sequence[dict[str, Any]]) -> str:
    """The group in one line."""
    totals, queues = _totals(rows), {row["queue"] for row in rows}
    return (
        f"lease group {workplace.group} of {workplace.server.application}: {len(queues):,} queue{'s' * (len(queues) != 1)}; "
        f"{totals['held']:,} messages held, {totals['leased']:,} of them leased; {totals['dead']:,} dead letters"
    )


def _totals(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {name: sum(row[name] for row in rows) for name in ("held", "leased", "dead")}


def _rows(client: Client, queue: str, group: str) -> Iterator[dict[str, Any]]:
    try:
        found = client.lease_group(queue, group)
    except (LeaseGroupNotFound, QueueNotFound):  # the queue may have gone meanwhile
        return
    for one in found.partitions:
        yield {
            "queue": queue,
            "partition": one.number,
            "held": one.held,
            "leased": one.leased,
            "dead": one.dead,
            "done_up_to": _time_of(one),
        }


def _time_of(partition: LeasePartition) -> str | None:
    """The moment up to which all messages are settled; None at the beginning."""
    if partition.done_up_to is None:
        return None
    return rfc3339(MessageId.parse(partition.done_up_to).ticks)[:23] + "Z"
