"""``queuey put``: messages in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from queuey.cli.line_forms import InputForm, line_form
from queuey.cli.sending import MAX_BODY_BYTES, QueueSender, Streams, lines_of, opened, portions, said_if_broken_off
from queuey.clock import SystemClock
from queuey.model import MAX_PARTITIONS
from queuey.moments import rfc3339
from queuey.terminal.completion import queue_argument
from queuey.terminal.options import with_client
from queuey.terminal.output import NothingFound, ProgressBar, message_row, output_option, say, write_rows
from queuey.terminal.times import Duration, Moment

if TYPE_CHECKING:
    from qdo.client import Appended, Client, NewMessage

COLUMNS = ("partition", "message_id", "timestamp")
WIDTHS = (9, 32, 0)

_OPTION_OF_HEADER = {
    "x-ttl": "--ttl",
    "x-partition": "--partition",
    "x-key": "--key",
    "x-delay": "--delay",
    "x-deliver-at": "--at",
    "idempotency-key": "--id",
    "authorization": "--app-key",
}


@click.command("put")
@queue_argument
@click.argument("text", required=False)
@click.option(
    "--file",
    "files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="The message, or with --lines the messages, are in this file. May be repeated.",
)
@click.option("--lines", is_flag=True, help="Each line is a message; blank lines are none.")
@click.option(
    "--format",
    "form",
    callback=line_form,
    metavar="FORM",
    help=r"With --lines: what a line has, such as '{key}\t{body}' or '{header:kind} {body}'.",
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    help="A header of the message, which readers get with it; content-type:VALUE names the body's type. May be repeated.",
)
@click.option("--ttl", type=Duration(whole=True), help="How long to keep it: 90, 10m, 3d.  [default: 3d]")
@click.option("--delay", type=Duration(), help="Readable only after this long.")
@click.option("--at", type=Moment(ids=False), help="Readable only from this time on: RFC 3339 or seconds since 1970.")
@click.option("--partition", type=click.IntRange(1, MAX_PARTITIONS), help="Where to put it.  [default: a random one]")
@click.option("--key", help="Messages of one key share a partition.")
@click.option("--count", type=click.IntRange(1), help="That many messages; {n} and {time} in the text are replaced.")
@click.option("--id", "once", help="Repeat a put under the same id, and nothing is stored twice for a day.")
@click.option("--create/--no-create", default=True, help="Make the queue if there is none.  [default: create]")
@click.option("-q", "--quiet", is_flag=True, help="Do not print where the messages went.")
@output_option
@with_client
def put_command(
    client: Client,
    queue: str,
    text: str | None,
    files: Sequence[Path],
    lines: bool,
    form: InputForm | None,
    headers: Sequence[str],
    ttl: int | None,
    delay: float | None,
    at: str | None,
    partition: int | None,
    key: str | None,
    count: int | None,
    once: str | None,
    create: bool,
    quiet: bool,
    output: str | None,
) -> None:
    r"""Store messages in QUEUE.

    TEXT is the message; without it, or where it is -, --file or the input is, whole or by lines. Prints where each one went,
    when it is on disk.

    --format takes {body}, {key}, {content_type} and {header:NAME}, and \n, \t, \0. {id}, {partition}, {time}, {timestamp} and
    {queue} are skipped: so lines of 'queuey get --format' can be put again. 'queuey import' takes messages as JSON.

    Examples: queuey put orders 'two chairs' --key customer-7; queuey put orders --lines --format '{key} {body}' --file orders.txt
    """
    text = None if text == "-" else text
    named = {"--lines": lines, "TEXT": text is not None, "--file": bool(files), "--count": count}
    _refuse_pairs(named, ("--lines", "TEXT"), ("--lines", "--count"), ("--file", "TEXT"))
    fixed = {"--delay": delay, "--at": at, "--partition": partition, "--key": key}
    _refuse_pairs(fixed, ("--delay", "--at"), ("--partition", "--key"))
    _refuse_pairs(fixed | {"{key} in --format": form and "key" in form.fields}, ("--partition", "{key} in --format"))
    if form is not None and not lines:
        raise click.UsageError("--format says what a line has: it goes with --lines.")
    from qdo.client import NewMessage

    content_type, own = _headers(headers)
    like = NewMessage(b"", ttl, partition, key, delay, at, content_type, headers=own)
    sender = QueueSender(client, create=create)
    with opened(files) as streams, said_if_broken_off(sender):
        batches = _by_lines(streams, like, form) if lines else _whole(streams, text, like, count)
        rows = (_row(place) for batch in _named(batches, once) for place in sender.send(queue, batch))
        write_rows(
            (row for row in rows if not quiet), () if quiet else COLUMNS, "jsonl" if quiet else output, widths=WIDTHS
        )
        if not sender.sent:
            raise NothingFound("nothing was stored: there is no line that is not blank")


def _row(place: Appended) -> dict[str, Any]:
    return message_row(place.partition, place.id, **({"repeated": True} if place.repeated else {}))


def _named(batches: Iterable[Sequence[NewMessage]], once: str | None) -> Iterator[list[NewMessage]]:
    """The batches, with idempotency keys.

    Numbered by message and not by request: how stdin falls into requests differs from run to run.
    """
    done = 0
    for batch in batches:
        yield [
            replace(message, idempotency_key=once if not once or number == 1 else f"{once}-{number}")
            for number, message in enumerate(batch, done + 1)
        ]
        done += len(batch)


def _by_lines(streams: Streams, like: NewMessage, form: InputForm | None) -> Iterator[list[NewMessage]]:
    for found in lines_of(streams, "putting"):
        yield from portions(
            replace(like, body=line.text) if form is None else form.message(line, like) for line in found
        )


def _whole(streams: Streams, text: str | None, like: NewMessage, count: int | None) -> Iterator[list[NewMessage]]:
    """Portions for one request each."""
    bodies = [os.fsencode(text)] if text is not None else [_body(name, stream) for name, stream in streams]
    if not all(bodies):
        raise click.UsageError("A message cannot be empty.")
    if count is None:
        yield from portions(replace(like, body=body) for body in bodies)
        return
    with ProgressBar("putting", count * len(bodies)) as progress:
        done = 0
        numbered = chain.from_iterable(_numbered(body, count) for body in bodies)
        for batch in portions(replace(like, body=body) for body in numbered):
            yield batch
            done += len(batch)
            progress.reach(done)


def _body(name: str, stream: BinaryIO) -> bytes:
    if stream.isatty():
        say("reading the message from the terminal; Ctrl-D ends it")
    body = stream.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise click.UsageError(f"No server takes a message of more than {MAX_BODY_BYTES} bytes: {name} has more.")
    return body


def _numbered(body: bytes, count: int) -> Iterator[bytes]:
    clock = SystemClock()
    for number in range(1, count + 1):
        yield body.replace(b"{n}", b"%d" % number).replace(b"{time}", rfc3339(clock.now_ticks()).encode())


def _headers(given: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """The content type, and the headers of the message."""
    content_type: str | None = None
    headers: dict[str, str] = {}
    for text in given:
        name, colon, value = text.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not name:
            raise click.BadParameter(f"{text!r} is not of the form NAME:VALUE", param_hint="--header")
        if name.lower() in _OPTION_OF_HEADER:
            raise click.BadParameter(f"use {_OPTION_OF_HEADER[name.lower()]} instead of {name}", param_hint="--header")
        is_type = name.lower() == "content-type"
        if name in headers or (is_type and content_type is not None):
            raise click.BadParameter(
                f"{name} stands twice: a message has one value of each name", param_hint="--header"
            )
        if is_type:
            content_type = value
        else:
            headers[name] = value
    return content_type, headers


def _refuse_pairs(given: Mapping[str, Any], *pairs: tuple[str, str]) -> None:
    """Refuse options of which both of a pair are given."""
    for pair in pairs:
        if all(given[name] is not None and given[name] is not False for name in pair):
            raise click.UsageError(f"{' and '.join(pair)} exclude each other.")
