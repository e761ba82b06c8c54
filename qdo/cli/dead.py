"""``qdo dead``: messages whose job failed for the last time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import click

from qdo.cli.options import dead_letters_option
from qdo.client import Client, Message
from qdo.groups.dead_letter_names import DeadLetterNames
from qdo.worker.dead_letters import DeadLetter, letters
from queuey.errors import Forbidden, MessageNotFound
from queuey.ids import MessageId
from queuey.model import header_to_json
from queuey.model.headers import header_in_any_case
from queuey.model.schedules import TASK_HEADER
from queuey.moments import rfc3339
from queuey.terminal.commands import CommandGroup
from queuey.terminal.completion import complete_group_names, queue_argument
from queuey.terminal.numbers import Number
from queuey.terminal.options import check_can_ask, confirm, with_client, yes_option
from queuey.terminal.output import (
    NothingFound,
    ProgressBar,
    body_members,
    many,
    output_option,
    say,
    write_one,
    write_rows,
)

_GROUPS_LOOKED_AT = 20
COLUMNS = ("letter", "time", "partition", "message_id", "group", "failures", "deliveries", "task", "reason")


@click.group("dead", cls=CommandGroup)
def dead_command() -> None:
    """Messages whose job failed for the last time, and those that lease groups gave up.

    The commands list them, show one, or try them again.

    QUEUE is the queue that the messages came from. --dead-letters names the queue of the letters, as in 'qdo work'.
    """


group_filter = click.option("-g", "--group", shell_complete=complete_group_names, help="Only letters of this group.")
reason_filter = click.option("--reason", metavar="TEXT", help="Only letters whose reason contains TEXT.")


@dead_command.command("ls")
@queue_argument
@with_client
@dead_letters_option
@group_filter
@reason_filter
@click.option("--last", type=click.IntRange(1), help="Only the newest letters: this many.")
@output_option
def ls(
    client: Client,
    queue: str,
    dead_letters: str,
    group: str | None,
    reason: str | None,
    last: int | None,
    output: str | None,
) -> None:
    """Dead letters of QUEUE, oldest first.

    Example: qdo dead ls mail --reason Timeout --last 10
    """
    found = [
        (message.id, row(message, letter)) for message, letter in _found(client, queue, dead_letters, group, reason)
    ]
    if not found and client.find_queue(queue) is None:
        raise _nothing_found(client, queue)
    found.sort(key=lambda pair: pair[0])
    rows = [one for _, one in (found[-last:] if last else found)]
    has_tasks = any(one["task"] for one in rows)
    write_rows(rows, [name for name in COLUMNS if has_tasks or name != "task"], output)
    name = DeadLetterNames(dead_letters).queue_for(queue)
    say(f"{len(found)} in {name}")
    for other, of in _elsewhere(client, queue, name, group).items() if not found else ():
        say(f"lease group {of} keeps its dead letters in {other}: --dead-letters {other}")


def _elsewhere(client: Client, queue: str, name: str, group: str | None) -> Mapping[str, str]:
    """Other queues for dead letters than ``name``, each with one of the lease groups that use it."""
    found: dict[str, str] = {}
    for one in islice(client.lease_groups(queue), _GROUPS_LOOKED_AT):
        other = client.lease_group(queue, one).settings["dead_letter_queue"]
        if other != name and group in (None, one):
            found.setdefault(other, one)
    return found


@dead_command.command("show")
@queue_argument
@click.argument("letter")
@with_client
@dead_letters_option
@click.option("--raw", is_flag=True, help="Only the message's body, as it was.")
@output_option
def show(client: Client, queue: str, letter: str, dead_letters: str, raw: bool, output: str | None) -> None:
    """One letter with its message.

    LETTER is the id in the column LETTER, or the id of the message.

    Example: qdo dead show mail 1f9f6640e56711f189bf02fc00000001
    """
    for message, found in letters(client, DeadLetterNames(dead_letters).queue_for(queue)):
        if letter in (message.id.hex, found.story.message_id):
            if raw:
                sys.stdout.buffer.write(found.as_it_was(client).raw)
                sys.stdout.flush()
            else:
                write_one(row(message, found) | details(found), output)
            return
    raise _nothing_found(client, queue, letter)


@dead_command.command("retry")
@queue_argument
@click.argument("wanted", nargs=-1, metavar="[LETTER]...")
@with_client
@dead_letters_option
@click.option("--all", "everything", is_flag=True, help="All letters that the other options select.")
@group_filter
@reason_filter
@click.option("--rate", type=Number(0.01, 100_000), help="Messages a second, at most.")
@yes_option
@output_option
def retry(
    client: Client,
    queue: str,
    wanted: tuple[str, ...],
    dead_letters: str,
    everything: bool,
    group: str | None,
    reason: str | None,
    rate: float | None,
    yes: bool,
    output: str | None,
) -> None:
    """Append messages to QUEUE again, and remove their letters.

    They are new messages in their old partitions.

    All groups that work on QUEUE get them. A retry that was interrupted and is run again appends nothing twice.

    Example: qdo dead retry mail --all --reason Timeout --rate 10
    """
    if bool(wanted) == everything:
        raise click.UsageError("say which: ids from the column LETTER of 'qdo dead ls', or --all.")
    check_can_ask(f"Append messages to {queue} again?", yes=yes)
    meant, missing = set[tuple[int, MessageId]](), set(wanted)
    for message, letter in _found(client, queue, dead_letters, group, reason):
        names = {message.id.hex, letter.story.message_id}
        if everything or names & set(wanted):
            meant.add((message.partition, message.id))
            missing -= names
    if missing or not meant:
        raise _nothing_found(client, queue, min(missing, default=""))
    confirm(f"Append {len(meant)} messages to {queue} again?", yes=yes)
    dead = DeadLetterNames(dead_letters).queue_for(queue)
    # They are read anew: ids have room in memory, and letters may not.
    again = (pair for pair in letters(client, dead) if (pair[0].partition, pair[0].id) in meant)
    appended, gone = 0, 0
    with ProgressBar("retry", len(meant)) as progress:
        for message, letter in _at(islice(again, len(meant)), rate):
            try:
                letter.retry(client, message, dead)
            except MessageNotFound as error:
                gone += 1
                say(f"letter {message.id.hex} stays, since it has no body: {error}")
            else:
                client.delete(dead, message)
                appended += 1
            progress.reach(appended + gone)
    if left := len(meant) - appended - gone:
        say(f"{many(left, 'letter')} went before it was their turn")
    if output is not None:
        write_one({"queue": queue, "appended": appended, "gone": gone}, output)
    say(f"{appended} appended again")
    if gone:
        raise NothingFound(f"{queue} has lost {many(gone, 'message')} that had no room in their letters")


def _nothing_found(client: Client, queue: str, letter: str = "") -> NothingFound:
    """What is missing: the queue, the letter, or any letter at all."""
    with suppress(Forbidden):  # whoever may not list queues hears of the letter
        if client.find_queue(queue) is None:
            return NothingFound(f"there is no queue {queue}: QUEUE is the one that the messages came from")
    which = f"dead letter {letter}" if letter else "dead letter"
    return NothingFound(f"there is no {which} of {queue}: 'qdo dead ls {queue}' lists those there are")


def details(letter: DeadLetter) -> dict[str, Any]:
    """The members of a letter that only a single letter shows."""
    story = letter.story
    more = {
        "first_delivered": story.first_delivered,
        "given_up": story.given_up,
        "content_type": letter.content_type,
        "key": letter.key,
        "headers": {name: header_to_json(value) for name, value in letter.headers.items()},
        "size": letter.size,
        "sha256": letter.sha256,
        "traceback": story.traceback,
    }
    return more | ({} if letter.body is None else body_members(letter.body))


def _found(
    client: Client, queue: str, dead_letters: str, group: str | None, reason: str | None
) -> Iterator[tuple[Message, DeadLetter]]:
    """Letters of this queue. Several queues may share a queue of letters."""
    for message, letter in letters(client, DeadLetterNames(dead_letters).queue_for(queue)):
        story = letter.story
        if story.queue == queue and group in (None, story.group) and (reason is None or reason in story.reason):
            yield message, letter


def _at(found: Iterator[tuple[Message, DeadLetter]], rate: float | None) -> Iterator[tuple[Message, DeadLetter]]:
    """The letters one by one, with pauses for the rate."""
    yield from islice(found, 1)
    for pair in found:
        if rate is not None:
            time.sleep(1 / rate)
        yield pair


def row(message: Message, letter: DeadLetter) -> dict[str, Any]:
    """A letter without its body."""
    story, task = letter.story, header_in_any_case(letter.headers, TASK_HEADER)
    return {
        "letter": message.id.hex,
        "time": rfc3339(message.id.ticks)[:23] + "Z",
        "partition": story.partition,
        "message_id": story.message_id,
        "group": story.group,
        "failures": story.failures,
        "deliveries": story.deliveries or None,
        "task": None if task is None else task.decode("utf-8", "replace"),
        "reason": story.reason,
    }
