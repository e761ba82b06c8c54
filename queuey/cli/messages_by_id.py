"""``queuey show`` and ``queuey rm``: single messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from queuey.cli.messages import COLUMNS, row_of
from queuey.ids import MessageId
from queuey.moments import rfc3339
from queuey.terminal.completion import queue_argument
from queuey.terminal.options import check_can_ask, confirm, with_client, yes_option
from queuey.terminal.output import NothingFound, form_for, many, output_option, say, write_done, write_one, write_rows

if TYPE_CHECKING:
    from qdo.client import Client, Message

TABLE = ("time", "partition", "message_id", "key", "body")

ids_argument = click.argument("ids", nargs=-1, required=True, metavar="ID...")


@click.command("show")
@queue_argument
@ids_argument
@click.option("--raw", is_flag=True, help="Only the body, byte for byte.")
@output_option
@with_client
def show_command(client: Client, queue: str, ids: Sequence[str], raw: bool, output: str | None) -> None:
    """Show messages of QUEUE by their ids.

    ID is what 'put' and 'get' print, alone or as PARTITION:ID. With - ids come from the input, one a line, alone or in lines of
    JSON.

    Example: queuey show orders 1f9f6640e56711f189bf02fc00000001
    """
    wanted = list(_ids(ids))
    found = _messages(client, queue, wanted)
    if raw:
        for message in found:
            sys.stdout.buffer.write(message.body)
        sys.stdout.flush()
    elif len(wanted) == 1 and found:
        (message,) = found
        row = row_of(message)
        write_one({"time": rfc3339(message.id.ticks), **row} if form_for(output) == "table" else row, output)
    else:
        form = form_for(output)
        rows = ({"time": rfc3339(message.id.ticks), **row_of(message)} for message in found)
        write_rows(rows, TABLE, form) if form == "table" else write_rows(map(row_of, found), COLUMNS, form)
    _refuse_missing(queue, wanted, found)


@click.command("rm")
@queue_argument
@ids_argument
@yes_option
@output_option
@with_client
def rm_command(client: Client, queue: str, ids: Sequence[str], yes: bool, output: str | None) -> None:
    """Remove messages of QUEUE by their ids, for all of its readers and groups.

    ID is as for 'show'. Ids of messages that are not there are named, the others are removed, and the command ends with 3.
    A message that is not due yet is removed, too. 'queuey purge' removes all messages, 'queuey queue rm' the queue.

    Example: queuey get orders --format '{partition}:{id}' --until 1h | queuey rm orders - --yes
    """
    check_can_ask(f"Remove messages of queue {queue} of {client.application}?", yes=yes)
    wanted = list(_ids(ids))
    what = f"message {wanted[0]}" if len(wanted) == 1 else many(len(wanted), "message")
    found = _messages(client, queue, wanted)
    confirm(f"Remove {what} of queue {queue} of {client.application}?", yes=yes)
    client.delete(queue, _addresses(client, queue, wanted))
    write_done({"queue": queue, "removed": len(found)}, output)
    say(f"removed {many(len(found), 'message')}")
    _refuse_missing(queue, wanted, found)


def _ids(given: Sequence[str]) -> Iterator[str]:
    """Ids as they are sent, each with its partition if it is known.

    :raises click.UsageError: a text is no id.
    """
    for text in dict.fromkeys(_texts(given)):
        number, colon, of = text.rpartition(":")
        try:
            message_id = MessageId.parse(of)
        except ValueError:
            raise click.UsageError(f"{text!r} is no id of a message: 'queuey get' shows them.") from None
        if colon and not (number.isascii() and number.isdecimal()):
            raise click.UsageError(f"{text!r}: what stands before the colon is no number of a partition.")
        yield f"{number}:{message_id.hex}" if colon else message_id.hex


def _texts(given: Iterable[str]) -> Iterator[str]:
    for text in given:
        if text != "-":
            yield text
            continue
        for line in map(str.strip, sys.stdin):
            if line:
                yield _id_in(line)


def _id_in(line: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        entry = json.loads(line)
        return f"{entry['partition']}:{entry['message_id']}"
    except (ValueError, LookupError, RecursionError):
        raise click.UsageError(f"A line has no partition and message_id: {line[:60]}") from None


def _messages(client: Client, queue: str, wanted: Sequence[str]) -> list[Message]:
    return client.get(queue, _addresses(client, queue, wanted))


def _addresses(client: Client, queue: str, wanted: Sequence[str]) -> list[str]:
    """With the partition before each id. Where it is not known, the message may be in any."""
    if all(":" in text for text in wanted):
        return list(wanted)
    count = client.survey(queue, partitions=[1]).partitions
    return [
        one
        for text in wanted
        for one in ([text] if ":" in text else [f"{number}:{text}" for number in range(1, count + 1)])
    ]


def _refuse_missing(queue: str, wanted: Sequence[str], found: Sequence[Message]) -> None:
    """:raises NothingFound: an id is none of a message that can be read."""
    known = {text for message in found for text in (message.id.hex, f"{message.partition}:{message.id.hex}")}
    missing = [text for text in wanted if text not in known]
    for text in missing[1:]:
        say(f"no message {text} in queue {queue}")
    if missing:
        raise NothingFound(
            f"no message {missing[0]} can be read in queue {queue}: it expired, was removed, or is not due"
        )
