"""``queuey get``: messages out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from queuey.cli.kept_places import CursorFile, GroupOffsets, ReadQueue
from queuey.cli.line_forms import ESCAPES, FIELD, HEADER
from queuey.cli.messages import COLUMNS, partitions_option, program_option, row_of, run_program
from queuey.cli.reading import QueueMessage, QueueReader, QueueSelection, queues_to_read
from queuey.ids import MessageId, parse_timestamp
from queuey.moments import rfc3339
from queuey.terminal.completion import complete_groups, complete_queues
from queuey.terminal.options import with_client
from queuey.terminal.output import ProgressBar, form_for, output_option, write_rows
from queuey.terminal.times import Moment

if TYPE_CHECKING:
    from qdo.client import Client, Message

TABLE = ("time", "partition", "message_id", "body")
WIDTHS = (28, 9, 32, 0)

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

Pages = Iterator[Sequence[QueueMessage]]


def _template(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    for field, _ in FIELD.findall(text or ""):
        if field and field not in _FIELDS and not field.startswith(HEADER):
            raise click.BadParameter(f"{{{field}}} is not one of {', '.join(_FIELDS)}, header:NAME")
    return text


@click.command("get")
@click.argument("queue", nargs=-1, required=True, metavar="QUEUE...", shell_complete=complete_queues)
@click.option(
    "--since", type=Moment(ago=True), help="From here on: an id, 10m (ago), RFC 3339, seconds since 1970, now."
)
@click.option("--until", type=Moment(ago=True), help="Up to here, in the same forms.")
@click.option("--first", type=click.IntRange(1), metavar="N", help="Only the oldest N of these.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the newest N of these.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until stopped.")
@click.option("--exit-at-end", is_flag=True, help="Stop at the end as it was at the start; so it is without --follow.")
@click.option(
    "--cursor",
    "cursor_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Go on where the last run with this file ended. The first run makes it.",
)
@click.option(
    "-g",
    "--group",
    shell_complete=complete_groups,
    help="Go on where the last run of this group ended, on any machine: its offsets are kept in Queuey, as 'queuey group' "
    "shows them. The run before, if it still goes on, ends.",
)
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
    queue: Sequence[str],
    since: str | None,
    until: str | None,
    first: int | None,
    last: int | None,
    follow: bool,
    exit_at_end: bool,
    cursor_file: Path | None,
    group: str | None,
    partitions: list[int] | None,
    order: str,
    template: str | None,
    program: list[str] | None,
    raw: bool,
    output: str | None,
) -> None:
    r"""Read the messages of QUEUE, in order of time.

    QUEUE may be a pattern such as 'mail-*', and there may be several. Then each message names its queue, and a pattern means the
    queues that there are at the start.

    With --cursor or --group a later run goes on behind the last line that this one wrote, and --since counts for the first run
    only. A run that is killed may repeat its last lines; it leaves out none.

    --format takes {id}, {partition}, {timestamp} (seconds since 1970), {time} (RFC 3339), {queue},
    {content_type}, {key}, {header:NAME} and {body}, and \n, \t, \0. 'queuey put --lines --format' reads such lines.

    --exec gives the program MESSAGE_ID, MESSAGE_PARTITION, MESSAGE_TIMESTAMP, MESSAGE_QUEUE,
    MESSAGE_CONTENT_TYPE and MESSAGE_KEY in its environment.

    Example: queuey get orders --cursor orders.place -o jsonl >> orders.jsonl
    """
    newest_first = order == "descending"
    if follow and (until or exit_at_end or newest_first or first):
        raise click.UsageError(
            "--follow has no end: it excludes --until, --exit-at-end, --first and --order descending."
        )
    if sum([template is not None, program is not None, raw]) > 1:
        raise click.UsageError("--format, --exec and --raw exclude each other.")
    if since and until and _ticks(until) < _ticks(since):
        raise click.UsageError("--until lies before --since: no message is between them.")
    if sum([first is not None, last is not None]) > 1:
        raise click.UsageError("--first and --last exclude each other.")
    _check_kept(cursor_file, group, leaves_out=last is not None or newest_first)
    wanted = QueueSelection(queue, partitions, since, until)
    if follow and wanted.has_several and partitions:
        raise click.UsageError("--follow of several queues reads all of their partitions: leave out --partitions.")
    queues = queues_to_read(client, wanted)
    kept = CursorFile(cursor_file) if cursor_file else GroupOffsets(client, group) if group else None
    reader = QueueReader(client, queues, kept, follows_all=partitions is None)
    pages = reader.following(last) if follow else reader.past(first=first, last=last, newest_first=newest_first)
    with (
        suppress(*([KeyboardInterrupt] if follow else [])),
        _progress(queues, shown=not (follow or last or newest_first)) as reach,
    ):
        pages = _then(pages, reader.taken, reach)
        if program is not None:
            _run_each(program, pages, reader.taken)
        elif template is not None or raw:
            _write_bytes(pages, _formatter(template) if template is not None else lambda found: found.message.body)
        else:
            _write(pages, output, names_queues=wanted.has_several, follows=follow)


def _check_kept(cursor_file: Path | None, group: str | None, *, leaves_out: bool) -> None:
    if cursor_file is not None and group is not None:
        raise click.UsageError("--cursor and --group exclude each other.")
    if leaves_out and (cursor_file is not None or group is not None):
        option = "--group" if group is not None else "--cursor"
        raise click.UsageError(f"{option} goes on without a gap: it excludes --last and --order descending.")


def _then(pages: Pages, *done: Callable[[Sequence[QueueMessage]], None]) -> Pages:
    """The same pages. What is to be done with each comes after its messages were written."""
    for page in pages:
        yield page
        for each in done:
            each(page)


@contextmanager
def _progress(queues: Sequence[ReadQueue], *, shown: bool) -> Iterator[Callable[[Sequence[QueueMessage]], None]]:
    """A bar on a terminal whose measure is time: of the span from the first message to the end, how much was written."""
    if not shown or sys.stdout.isatty():
        yield lambda page: None
        return
    begin: list[int] = []
    end = max(_ticks(queue.end) for queue in queues)
    with ProgressBar("getting", 0) as bar:

        def reach(page: Sequence[QueueMessage]) -> None:
            begin.append(page[0].message.id.ticks)
            bar.reach(page[-1].message.id.ticks - begin[0], end - begin[0])

        yield reach
        if begin:  # no message has the time of the end
            bar.reach(end - begin[0])


def _ticks(moment: str) -> int:
    return parse_timestamp(moment) if "." in moment else MessageId.parse(moment).ticks


def _write(pages: Pages, output: str | None, *, names_queues: bool, follows: bool) -> None:
    """:param follows: Ctrl-C is the end of the rows, so a list of JSON is whole."""
    out = sys.stdout
    form = form_for(output, out)
    named = ("queue",) if names_queues else ()

    def rows() -> Iterator[dict[str, Any]]:
        with suppress(*([KeyboardInterrupt] if follows else [])):
            for page in pages:
                for found in page:
                    yield dict.fromkeys(named, found.queue) | _row(found.message, for_table=form == "table")
                # A follower's reader sees each page when it came.
                out.flush()

    columns = (*named, *(TABLE if form == "table" else COLUMNS))
    widths = (*(max(len(queue), 20) for queue in named), *WIDTHS)
    write_rows(rows(), columns, form, widths=widths)


def _row(message: Message, *, for_table: bool) -> dict[str, Any]:
    return row_of(message) | ({"time": rfc3339(message.id.ticks)} if for_table else {})


def _write_bytes(pages: Pages, form: Callable[[QueueMessage], bytes]) -> None:
    out = sys.stdout.buffer
    for page in pages:
        for found in page:
            out.write(form(found))
        out.flush()


def _formatter(template: str) -> Callable[[QueueMessage], bytes]:
    """A line for a message; the body goes in as it is."""
    parts: list[bytes | Callable[[str, Message], bytes | str]] = []
    end = 0
    for found in FIELD.finditer(template):
        parts.append(os.fsencode(template[end : found.start()]))
        parts.append(_field(found[1]) if found[1] else ESCAPES[found[2]])
        end = found.end()
    parts.append(os.fsencode(template[end:]) + b"\n")

    def line(found: QueueMessage) -> bytes:
        made = (part if isinstance(part, bytes) else part(*found) for part in parts)
        return b"".join(text if isinstance(text, bytes) else text.encode() for text in made)

    return line


def _field(name: str) -> Callable[[str, Message], bytes | str]:
    if name.startswith(HEADER):
        header = name.removeprefix(HEADER)
        return lambda _, message: message.headers.get(header, b"")
    return _FIELDS[name]


def _run_each(program: Sequence[str], pages: Pages, taken: Callable[[Sequence[QueueMessage]], None]) -> None:
    for page in pages:
        for found in page:
            status = run_program(program, found.queue, found.message)
            if status:
                raise click.ClickException(f"{program[0]} ended with {status} at message {found.message.id.hex}")
            taken([found])
