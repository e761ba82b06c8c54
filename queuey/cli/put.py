"""``queuey put``: messages in."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from queuey.clock import SystemClock
from queuey.errors import QueueNotFound, QueueyError
from queuey.model import MAX_PARTITIONS
from queuey.terminal.options import with_client
from queuey.terminal.output import ProgressBar, message_row, output_option, say, write_rows
from queuey.terminal.times import Duration, Moment, rfc3339

if TYPE_CHECKING:
    from qdo.client import Appended, Client, NewMessage

BATCH_MESSAGES = 500
BATCH_BYTES = 1 << 20
"""Of bodies: even if every byte needs six in JSON, that is below what a server takes."""
MAX_BODY_BYTES = 64 << 20
"""No server can be set to take more, so no more is read."""
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
@click.argument("queue")
@click.argument("text", required=False)
@click.option("--lines", is_flag=True, help="Each line of stdin is a message; blank lines are none.")
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
    lines: bool,
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
    """Store messages in QUEUE.

    TEXT is the message; without it, or where it is -, stdin is, whole or by lines. Prints where each one went, when it is on disk.
    """
    text = None if text == "-" else text
    _refuse_pairs({"--lines": lines, "TEXT": text is not None}, {"--lines": lines, "--count": count})
    _refuse_pairs({"--delay": delay, "--at": at}, {"--partition": partition, "--key": key})
    from qdo.client import NewMessage

    content_type, own = _headers(headers)
    like = NewMessage(b"", ttl, partition, key, delay, at, content_type, headers=own)
    sender = _Sender(client, queue, like, once, create=create)
    placed = (place for bodies in _batches(text, lines=lines, count=count) for place in sender.send(bodies))
    rows = (
        message_row(place.partition, place.id, **({"repeated": True} if place.repeated else {})) for place in placed
    )
    try:
        write_rows(
            (row for row in rows if not quiet), () if quiet else COLUMNS, "jsonl" if quiet else output, widths=WIDTHS
        )
    except BrokenPipeError:
        say(f"{sender.sent} messages were stored until nobody took the output any more")
        raise
    except (QueueyError, OSError, KeyboardInterrupt):
        if sender.sent:
            say(f"{sender.sent} messages were stored before this:")
        raise


class _Sender:
    """Sends batches, and makes the queue if the first one finds none."""

    def __init__(
        self,
        client: Client,
        queue: str,
        like: NewMessage,
        once: str | None,
        *,
        create: bool,
    ) -> None:
        self._client = client
        self._queue = queue
        self._like = like
        self._once = once
        self._create = create
        self.sent = 0

    def send(self, bodies: Sequence[bytes]) -> list[Appended]:
        messages = [self._message(body, self.sent + index) for index, body in enumerate(bodies, 1)]
        try:
            placed = self._append(messages)
        except QueueNotFound:
            if not self._create:
                raise
            made = self._client.create_queue(self._queue)
            say(f"made queue {made.name}, 1 partition" if made.partitions == 1 else f"made queue {made.name}")
            placed = self._append(messages)
        self.sent += len(messages)
        return placed

    def _message(self, body: bytes, number: int) -> NewMessage:
        # Numbered by message and not by request: how stdin falls into requests differs from run to run.
        once = self._once and (self._once if number == 1 else f"{self._once}-{number}")
        return replace(self._like, body=body, idempotency_key=once)

    def _append(self, messages: Sequence[NewMessage]) -> list[Appended]:
        if len(messages) == 1:
            return [self._client.append(self._queue, messages[0])]
        return self._client.append_batch(self._queue, messages)


def _batches(text: str | None, *, lines: bool, count: int | None) -> Iterator[list[bytes]]:
    """Bodies, in portions for one request each."""
    stdin = sys.stdin.buffer
    if lines:
        yield from _by_lines(stdin)
        return
    if text is None and stdin.isatty():
        say("reading the message from the terminal; Ctrl-D ends it")
    body = stdin.read(MAX_BODY_BYTES + 1) if text is None else os.fsencode(text)
    if not body:
        raise click.UsageError("A message cannot be empty.")
    if len(body) > MAX_BODY_BYTES:
        raise click.UsageError(f"No server takes a message of more than {MAX_BODY_BYTES} bytes.")
    if count is None:
        yield [body]
        return
    with ProgressBar("putting", count) as progress:
        done = 0
        for batch in portions(_numbered(body, count)):
            yield batch
            done += len(batch)
            progress.reach(done)


def _by_lines(stdin: Any) -> Iterator[list[bytes]]:
    """What has come so far is sent before more is waited for.

    :param stdin: a buffered binary stream, which has ``read1``.
    """
    with ProgressBar("putting", _size_of(stdin)) as progress:
        done, rest = 0, b""
        while chunk := stdin.read1(BATCH_BYTES):
            done += len(chunk)
            *whole, rest = (rest + chunk).split(b"\n")
            yield from portions(line for line in map(_chomp, whole) if line)
            if len(rest) > MAX_BODY_BYTES:
                raise click.UsageError(f"No server takes a line of more than {MAX_BODY_BYTES} bytes.")
            progress.reach(done)
        if _chomp(rest):
            yield [_chomp(rest)]


def portions(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """As many together as one request should have."""
    batch: list[bytes] = []
    size = 0
    for body in bodies:
        if batch and (len(batch) == BATCH_MESSAGES or size + len(body) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += len(body)
    if batch:
        yield batch


def _numbered(body: bytes, count: int) -> Iterator[bytes]:
    clock = SystemClock()
    for number in range(1, count + 1):
        yield body.replace(b"{n}", b"%d" % number).replace(b"{time}", rfc3339(clock.now_ticks()).encode())


def _chomp(line: bytes) -> bytes:
    return line.removesuffix(b"\r")


def _size_of(stream: BinaryIO) -> int:
    """Bytes to come, 0 if that cannot be known."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


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
        if name in headers:
            raise click.BadParameter(
                f"{name} stands twice: a message has one value of each name", param_hint="--header"
            )
        if name.lower() == "content-type":
            content_type = value
        else:
            headers[name] = value
    return content_type, headers


def _refuse_pairs(*pairs: Mapping[str, Any]) -> None:
    for pair in pairs:
        if all(value is not None and value is not False for value in pair.values()):
            raise click.UsageError(f"{' and '.join(pair)} exclude each other.")
