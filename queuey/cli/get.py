"""``queuey get``: messages out."""

from __future__ import annotations

import heapq
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from queuey.cli.messages import COLUMNS, partitions_option, program_option, row_of, run_program
from queuey.errors import Forbidden, QueueNotFound
from queuey.ids import format_timestamp, parse_timestamp
from queuey.terminal.options import with_client
from queuey.terminal.output import form_for, output_option, write_rows
from queuey.terminal.times import Moment, rfc3339

if TYPE_CHECKING:
    from qdo.client import Client, Message

PAGE = 1000
"""Messages asked for at once, over all partitions."""
TABLE = ("time", "partition", "message_id", "body")
WIDTHS = (28, 9, 32, 0)

_FIELD = re.compile(r"\{(\w+)\}|\\([nt0\\])")
_ESCAPES = {"n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\"}
_FIELDS: dict[str, Callable[[str, Message], bytes | str]] = {
    "id": lambda _, message: message.id.hex,
    "message_id": lambda _, message: message.id.hex,
    "partition": lambda _, message: str(message.partition),
    "timestamp": lambda _, message: message.timestamp,
    "time": lambda _, message: rfc3339(message.id.ticks),
    "queue": lambda queue, _: queue,
    "content_type": lambda _, message: message.content_type or "",
    "key": lambda _, message: message.key or "",
    "body": lambda _, message: message.body,
}

Pages = Iterator[Sequence["Message"]]


def _template(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    for field, _ in _FIELD.findall(text or ""):
        if field and field not in _FIELDS:
            raise click.BadParameter(f"{{{field}}} is not one of {', '.join(_FIELDS)}")
    return text


@click.command("get")
@click.argument("queue")
@click.option(
    "--since", type=Moment(ago=True), help="From here on: an id, 10m (ago), RFC 3339, seconds since 1970, now."
)
@click.option("--until", type=Moment(ago=True), help="Up to here, in the same forms.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the newest N of these.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until stopped.")
@click.option("--exit-at-end", is_flag=True, help="Stop at the end as it was at the start; so it is without --follow.")
@partitions_option
@click.option("--order", type=click.Choice(["ascending", "descending"]), default="ascending", help="Of time.")
@click.option(
    "--format", "template", callback=_template, help=r"A line for each: '{id}\t{body}'; also {partition}, {time} ..."
)
@program_option("Run this for each message, its body on stdin; stop if it fails.")
@click.option("--raw", is_flag=True, help="Bodies only, byte for byte, nothing in between.")
@output_option
@with_client
def get_command(
    client: Client,
    queue: str,
    since: str | None,
    until: str | None,
    last: int | None,
    follow: bool,
    exit_at_end: bool,
    partitions: list[int] | None,
    order: str,
    template: str | None,
    program: list[str] | None,
    raw: bool,
    output: str | None,
) -> None:
    r"""Read the messages of QUEUE, in order of time.

    --format takes {id}, {partition}, {timestamp} (seconds since 1970), {time} (RFC 3339), {queue},
    {content_type}, {key} and {body}, and \n, \t, \0.

    --exec gives the program MESSAGE_ID, MESSAGE_PARTITION, MESSAGE_TIMESTAMP, MESSAGE_QUEUE,
    MESSAGE_CONTENT_TYPE and MESSAGE_KEY in its environment.
    """
    newest_first = order == "descending"
    if follow and (until or exit_at_end or newest_first):
        raise click.UsageError("--follow has no end: it excludes --until, --exit-at-end and --order descending.")
    if sum([template is not None, program is not None, raw]) > 1:
        raise click.UsageError("--format, --exec and --raw exclude each other.")
    reader = _Reader(client, queue, partitions, since, until)
    pages = reader.following(last) if follow else reader.past(last, newest_first=newest_first)
    with suppress(*([KeyboardInterrupt] if follow else [])):
        if program is not None:
            _run_each(program, queue, pages)
        elif template is not None or raw:
            _write_bytes(pages, _formatter(queue, template) if template is not None else lambda message: message.body)
        else:
            _write(pages, output)


@dataclass(frozen=True)
class _Reader:
    """A request, and the ways to get its answer in pages.

    Each page is in order of time.
    """

    client: Client
    queue: str
    partitions: list[int] | None
    since: str | None
    until: str | None

    def past(self, last: int | None, *, newest_first: bool) -> Pages:
        """Up to ``until``, or the end as it is now."""
        end = self.until or self._watermark()
        if last is None:
            yield from _in_pages(self._merged(end, newest_first=newest_first))
            return
        newest = list(islice(self._merged(end, newest_first=True), last))
        yield newest if newest_first else newest[::-1]

    def following(self, last: int | None) -> Pages:
        """What is there, or the last of it, and what comes."""
        end = self._watermark()
        if last is None:
            yield from _in_pages(self._merged(end, newest_first=False))
        else:
            yield list(islice(self._merged(end, newest_first=True), last))[::-1]
        since = format_timestamp(parse_timestamp(end) + 1)
        for page in self.client.follow(self.queue, since=since, partitions=self.partitions or "all"):
            yield sorted(page.messages, key=_id_of)

    def _watermark(self) -> str:
        return self.client.read(self.queue, partitions=self.partitions or [1], limit=1, with_bodies=False).watermark

    def _merged(self, end: str, *, newest_first: bool) -> Iterator[Message]:
        """One reader a partition, so that all together are in order of time."""
        numbers = self.partitions or self._all_partitions()
        if numbers is None:
            numbers_of_readers: list[Any] = ["all"]
        else:
            numbers_of_readers = [[number] for number in numbers]
        limit = max(PAGE // len(numbers_of_readers), 10)
        start, stop = (end, self.since) if newest_first else (self.since, end)
        readers = []
        for wanted in numbers_of_readers:
            pages = self.client.pages(
                self.queue, since=start, until=stop, partitions=wanted, limit=limit, newest_first=newest_first
            )
            readers.append(_sorted(pages, newest_first=newest_first))
        return heapq.merge(*readers, key=_id_of, reverse=newest_first)

    def _all_partitions(self) -> list[int] | None:
        """The numbers of all partitions; None for a caller that may not list them.

        Such a caller may read the queue; then only each page is in order.
        """
        try:
            found = next(self.client.queues(start=self.queue, page_size=1), None)
        except Forbidden:
            return None
        if found is None or found.name != self.queue:
            raise QueueNotFound(f"there is no queue named {self.queue}")
        return list(range(1, found.partitions + 1))


def _id_of(message: Message) -> Any:
    return message.id


def _sorted(pages: Iterable[Any], *, newest_first: bool) -> Iterator[Message]:
    for page in pages:
        yield from sorted(page.messages, key=_id_of, reverse=newest_first)


def _in_pages(messages: Iterator[Message]) -> Pages:
    while page := list(islice(messages, PAGE)):
        yield page


def _write(pages: Pages, output: str | None) -> None:
    out = sys.stdout
    form = form_for(output, out)

    def rows() -> Iterator[dict[str, Any]]:
        for page in pages:
            for message in page:
                yield _row(message, for_table=form == "table")
            # A follower's reader sees each page when it came.
            out.flush()

    write_rows(rows(), TABLE if form == "table" else COLUMNS, form, widths=WIDTHS)


def _row(message: Message, *, for_table: bool) -> dict[str, Any]:
    return row_of(message) | ({"time": rfc3339(message.id.ticks)} if for_table else {})


def _write_bytes(pages: Pages, form: Callable[[Message], bytes]) -> None:
    out = sys.stdout.buffer
    for page in pages:
        for message in page:
            out.write(form(message))
        out.flush()


def _formatter(queue: str, template: str) -> Callable[[Message], bytes]:
    """A line for a message; the body goes in as it is."""
    parts: list[bytes | Callable[[str, Message], bytes | str]] = []
    end = 0
    for found in _FIELD.finditer(template):
        parts.append(os.fsencode(template[end : found.start()]))
        parts.append(_FIELDS[found[1]] if found[1] else _ESCAPES[found[2]])
        end = found.end()
    parts.append(os.fsencode(template[end:]) + b"\n")

    def line(message: Message) -> bytes:
        made = (part if isinstance(part, bytes) else part(queue, message) for part in parts)
        return b"".join(text if isinstance(text, bytes) else text.encode() for text in made)

    return line


def _run_each(program: Sequence[str], queue: str, pages: Pages) -> None:
    for page in pages:
        for message in page:
            status = run_program(program, queue, message)
            if status:
                raise click.ClickException(f"{program[0]} ended with {status} at message {message.id.hex}")
