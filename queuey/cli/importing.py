"""``queuey import``: messages as ``queuey get -o jsonl`` writes them."""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from queuey.cli.sending import InputLine, QueueSender, lines_of, opened, portions, said_if_broken_off
from queuey.errors import InvalidParameter
from queuey.terminal.completion import complete_queues
from queuey.terminal.options import with_client
from queuey.terminal.output import NothingFound, output_option, write_rows
from queuey.terminal.times import Duration

if TYPE_CHECKING:
    from qdo.client import Client, NewMessage

COLUMNS = ("queue", "imported", "repeated")
_KINDS: Mapping[str, tuple[type, ...]] = {
    "queue": (str,),
    "message_id": (str,),
    "partition": (int,),
    "body": (str,),
    "encoding": (str,),
    "content_type": (str,),
    "key": (str,),
    "headers": (dict,),
    "ttl": (int,),
    "delay": (int, float),
    "deliver_at": (str, int, float),
    "idempotency_key": (str,),
}
"""Members that count, and what they are."""
_SKIPPED = frozenset(
    [
        "timestamp",
        "time",
        "expires",
        "repeated",
        "cursor",
        "receipt",
        "deliveries",
        "failures",
        "first_delivered",
        "visible_at",
    ]
)
"""Members of what 'get' and 'receive' print that a new message gets anew, or has no more."""


@click.command("import")
@click.argument("queue", required=False, shell_complete=complete_queues)
@click.option(
    "--file",
    "files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Read this file, in place of the input. May be repeated.",
)
@click.option("--ttl", type=Duration(whole=True), help="How long to keep messages that have no ttl.  [default: 3d]")
@click.option("--spread", is_flag=True, help="Choose partitions anew, in place of those of the lines.")
@click.option("--again", is_flag=True, help="Store messages once more that were imported within a day.")
@click.option("--create/--no-create", default=True, help="Make a queue that is missing.  [default: create]")
@output_option
@with_client
def import_command(
    client: Client,
    queue: str | None,
    files: Sequence[Path],
    ttl: int | None,
    spread: bool,
    again: bool,
    create: bool,
    output: str | None,
) -> None:
    """Store the messages that 'queuey get -o jsonl' wrote, as new messages in the order of the lines.

    Without QUEUE each line names its own, as those of several queues do. Body, key, headers and content type are as they
    were, and the partition of a message without a key; ids and times are new. Lines of your own have a member 'body', and
    maybe key, headers, content_type, encoding (base64), ttl, delay, deliver_at and idempotency_key, as in a batch of REST.

    An import that broke off may be repeated: within a day, a message with a message_id is stored once.

    Example: queuey get 'mail-*' -o jsonl > mail.jsonl; queuey import --file mail.jsonl --context other
    """
    sender = QueueSender(client, create=create)
    done: Counter[str] = Counter()
    repeated: Counter[str] = Counter()
    with opened(files) as streams, said_if_broken_off(sender):
        for lines in lines_of(streams, "importing"):
            read = [_Read(line, queue) for line in lines]
            for name, messages in _by_queue(read, ttl, spread=spread, again=again):
                partitions = max((one.partition or 1 for one in messages), default=1)
                for batch in portions(messages):
                    placed = _send(sender, name, batch, partitions)
                    done[name] += len(placed)
                    repeated[name] += sum(place.repeated for place in placed)
    if not done:
        raise NothingFound("nothing was imported: there is no line that is not blank")
    write_rows(
        ({"queue": name, "imported": count, "repeated": repeated[name]} for name, count in done.items()),
        COLUMNS,
        output,
    )


def _send(sender: QueueSender, queue: str, batch: Sequence[NewMessage], partitions: int) -> Any:
    try:
        return sender.send(queue, batch, partitions=partitions)
    except InvalidParameter as error:
        if any(name.endswith("partition") for name in error.problems):
            raise InvalidParameter(
                f"queue {queue} lacks a partition that lines name: 'queuey queue edit {queue} --partitions {partitions}' adds "
                "it, and --spread chooses others"
            ) from error
        raise


class _Read:
    """The JSON of a line."""

    def __init__(self, line: InputLine, queue: str | None) -> None:
        """:raises click.UsageError: it is none, or has what cannot be imported."""
        self._line = line
        self._entry = self._object()
        self.queue: str = queue or self._entry.get("queue", "")
        if not self.queue:
            raise line.refuse("it has no member 'queue': name the QUEUE to import into")

    def _object(self) -> dict[str, Any]:
        try:
            entry = json.loads(self._line.text)
        except (ValueError, RecursionError) as error:
            raise self._line.refuse(f"it is no JSON: {error}") from error
        if not isinstance(entry, dict):
            raise self._line.refuse("it is no JSON object")
        entry = {name: value for name, value in entry.items() if value is not None and name not in _SKIPPED}
        for name, value in entry.items():
            if name not in _KINDS:
                raise self._line.refuse(f"a message has no member {name!r}: {', '.join(_KINDS)}")
            if not isinstance(value, _KINDS[name]) or isinstance(value, bool):
                raise self._line.refuse(f"its {name} is {json.dumps(value)[:60]}, which cannot be one")
        if "body" not in entry:
            raise self._line.refuse("it has no member 'body'")
        return entry

    def message(self, ttl: int | None, *, spread: bool, again: bool) -> NewMessage:
        """:raises click.UsageError: a member cannot be one of a message."""
        from qdo.client import NewMessage
        from qdo.client.wire import once_of

        get = self._entry.get
        once = get("idempotency_key")
        if once is None and "message_id" in self._entry and not again:
            once = once_of("import", self.queue, get("partition"), self._entry["message_id"])
        at = get("deliver_at")
        try:
            return NewMessage(
                self._body(),
                get("ttl", ttl),
                None if spread or "key" in self._entry else get("partition"),
                get("key"),
                get("delay"),
                None if at is None else str(at),
                get("content_type"),
                once,
                {name: _header(name, value) for name, value in get("headers", {}).items()},
            )
        except (ValueError, TypeError, LookupError, InvalidParameter) as error:
            raise self._line.refuse(str(error)) from error

    def _body(self) -> bytes | str:
        encoding = self._entry.get("encoding")
        if encoding is None:
            return str(self._entry["body"])
        if encoding != "base64":
            raise ValueError(f"its encoding is {encoding!r}, and not base64")
        try:
            return base64.b64decode(self._entry["body"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"its body is not base64: {error}") from error


def _header(name: str, value: Any) -> bytes | str:
    """:raises ValueError: it is neither a text nor bytes in base64."""
    if isinstance(value, str):
        return value
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (LookupError, TypeError, ValueError) as error:
        said = json.dumps(value)[:60]
        raise ValueError(f'its header {name} is {said}, and neither a text nor {{"base64": TEXT}}') from error


def _by_queue(
    read: Iterable[_Read], ttl: int | None, *, spread: bool, again: bool
) -> Iterator[tuple[str, list[NewMessage]]]:
    """Messages by queue, in the order of the lines."""
    found: dict[str, list[NewMessage]] = {}
    for one in read:
        found.setdefault(one.queue, []).append(one.message(ttl, spread=spread, again=again))
    yield from found.items()
