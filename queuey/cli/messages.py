"""What commands that give messages have in common: rows, and programs that are run for each."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from queuey.model import MAX_PARTITIONS, header_to_json
from queuey.terminal.output import body_members, message_row
from queuey.unread import nobody_reads

if TYPE_CHECKING:
    from qdo.client import Message

COLUMNS = ("partition", "message_id", "timestamp", "content_type", "key", "body", "encoding", "headers")

UNREAD = 128 + signal.SIGPIPE
"""The exit code of a program that could not print, as shells tell it."""

Command = Callable[..., None]


def partitions_option(command: Command) -> Command:
    """``--partitions``: passed on as a list of numbers, None for all."""
    return click.option("--partitions", default="all", callback=_partitions, help="A comma list.  [default: all]")(
        command
    )


def program_option(text: str) -> Callable[[Command], Command]:
    """``--exec``: passed on as ``program``, in words as a shell has them."""
    return click.option("--exec", "program", metavar="CMD", callback=_program, help=text)


def row_of(message: Message) -> dict[str, Any]:
    """A message in the words of the API."""
    row = message_row(message.partition, message.id)
    if message.content_type is not None:
        row["content_type"] = message.content_type
    if message.key is not None:
        row["key"] = message.key
    row |= body_members(message.body)
    if message.headers:
        row["headers"] = {name: header_to_json(value) for name, value in message.headers.items()}
    return row


def run_program(program: Sequence[str], queue: str, message: Message, **more: str) -> int:
    """Run a program with the body on stdin and the rest in its environment; its exit status.

    :param more: further variables.
    :raises click.ClickException: it cannot be run.
    :raises click.exceptions.Exit: it could not print, since nobody reads that any more: the message is not to blame.
    """
    given: Mapping[str, str] = {
        "MESSAGE_ID": message.id.hex,
        "MESSAGE_PARTITION": str(message.partition),
        "MESSAGE_TIMESTAMP": message.timestamp,
        "MESSAGE_QUEUE": queue,
        "MESSAGE_CONTENT_TYPE": message.content_type or "",
        "MESSAGE_KEY": message.key or "",
    }
    try:
        status = subprocess.run(program, input=message.body, env=os.environ | given | more, check=False).returncode
    except OSError as error:
        raise click.ClickException(f"cannot run {program[0]}: {error.strerror}") from None
    if status in (-signal.SIGPIPE, UNREAD) and nobody_reads():
        raise click.exceptions.Exit(UNREAD)
    return status


def _partitions(_ctx: click.Context, _param: click.Parameter, text: str) -> list[int] | None:
    """A comma list of numbers; None for all."""
    if text == "all":
        return None
    numbers = [int(part) for part in text.split(",") if part.isdecimal() and part.isascii()]
    if len(numbers) != text.count(",") + 1 or not all(1 <= number <= MAX_PARTITIONS for number in numbers):
        raise click.BadParameter(f"{text!r} is not 'all' or a comma list of numbers from 1 to {MAX_PARTITIONS}")
    return list(dict.fromkeys(numbers))


def _program(_ctx: click.Context, _param: click.Parameter, text: str | None) -> list[str] | None:
    """Words, as a shell has them."""
    if text is None:
        return None
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {str(error).lower()}") from None
    if not words:
        raise click.BadParameter("names no program")
    return words
