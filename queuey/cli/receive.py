"""``queuey receive`` and ``queuey pop``: messages for one receiver at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from queuey.cli.messages import COLUMNS, partitions_option, program_option, row_of, run_program
from queuey.model import header_to_json
from queuey.terminal.completion import complete_lease_groups, complete_queues
from queuey.terminal.options import with_client
from queuey.terminal.output import form_for, output_option, say, write_rows
from queuey.terminal.times import Duration

if TYPE_CHECKING:
    from qdo.client import Client, Delivery, Queues

DEFAULT_GROUP = "default"
_LEASE = ("receipt", "deliveries", "failures", "first_delivered", "visible_at")

Command = Callable[..., None]

_WEIGHTED = re.compile(r"(?P<name>[^=]+)=(?P<weight>[0-9]{1,4})")


def _queues(_ctx: click.Context, _param: click.Parameter, text: str) -> Queues:
    """One name, a list of names, or weights by name."""
    if "," not in text and "=" not in text:
        return text
    parts = text.split(",")
    weighted = [_WEIGHTED.fullmatch(part) for part in parts]
    for part, found in zip(parts, weighted, strict=True):
        if "=" in part and not found:
            raise click.BadParameter(f"{part!r} is not NAME=WEIGHT, such as jobs=3")
    names = [found["name"] if found else part for found, part in zip(weighted, parts, strict=True)]
    if not all(names) or len({*names}) < len(names):
        raise click.BadParameter(f"{text!r} names a queue twice, or has an empty name")
    if "=" not in text:
        return names
    return {name: int(found["weight"]) if found else 1 for name, found in zip(names, weighted, strict=True)}


queues_argument = click.argument("queue", metavar="QUEUE", callback=_queues, shell_complete=complete_queues)

group_option = click.option(
    "-g",
    "--group",
    shell_complete=complete_lease_groups,
    default=DEFAULT_GROUP,
    show_default=True,
    help="Lease group: its receivers share the messages.",
)


def _receive_options(command: Command) -> Command:
    """The options that ``receive`` and ``pop`` share."""
    options: list[Callable[[Command], Command]] = [
        group_option,
        click.option("--max", "most", type=click.IntRange(1), default=1, show_default=True, help="The most messages."),
        click.option("--wait", type=Duration(), default="0", help="Wait for a message up to this long: 20, 1m."),
        partitions_option,
        click.option("--json", "as_json", is_flag=True, help="Lines of JSON, also on a terminal: -o jsonl."),
        output_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command("receive")
@queues_argument
@click.option(
    "--visibility", type=Duration(), help="Hide the messages from others this long.  [default: the group's setting]"
)
@click.option("--pop", is_flag=True, help="Acknowledge them at once: they never come again.")
@program_option("Run this for each message, its body on stdin, and settle the message by its exit status.")
@_receive_options
@with_client
def receive_command(
    client: Client,
    queue: Queues,
    group: str,
    most: int,
    visibility: float | None,
    wait: float,
    pop: bool,
    program: list[str] | None,
    partitions: list[int] | None,
    as_json: bool,
    output: str | None,
) -> None:
    """Receive messages of QUEUE that no other receiver of the group has.

    Prints each message with its receipt; settle it with 'ack', 'release' or 'reject' before its lease runs out, or it is handed
    out again.

    With --exec each message is acknowledged if the program ends with 0, and else released as a failure; then the command ends
    with 1. The lease is extended while the program runs. It gets the variables of 'get --exec', and MESSAGE_GROUP,
    MESSAGE_RECEIPT, MESSAGE_DELIVERIES, MESSAGE_FAILURES and MESSAGE_HEADERS, which is JSON.

    QUEUE may be several: 'jobs,mail' takes the first that has a message, 'jobs=3,mail=1' draws one by its weight. Then each
    message names its queue, and 'ack jobs,mail' settles it.

    Example: queuey receive jobs --max 10 --wait 20 --exec ./do-it
    """
    from qdo.client import Receive, Settle

    if pop and visibility is not None:
        raise click.UsageError("--pop and --visibility exclude each other.")
    if program is None:
        wanted = Receive(most, visibility=visibility, wait=wait, pop=pop, partitions=partitions)
        settled = client.settle(queue, group, Settle(receive=wanted))
        _write(settled.messages, "jsonl" if as_json else output, names_queues=not isinstance(queue, str))
        if settled.is_full and not settled.messages:
            say(
                f"The lease group {group} holds as many messages as its max_leased or max_held allows: acknowledge some, or "
                "look with 'queuey lease info'."
            )
        return
    if pop or as_json or output:
        raise click.UsageError("--exec excludes --pop, --json and --output.")
    failed = 0
    for number in range(most):
        # One at a time: what waits for its turn here would be missing elsewhere.
        options: Any = {"visibility": visibility, "wait": 0 if number else wait, "partitions": partitions}
        try:
            with client.receive_one(queue, group, **options) as delivery:
                if delivery is None:
                    break
                _run(program, delivery)
        except _FailedError as error:
            say(str(error))
            failed += 1
    if failed:
        raise click.exceptions.Exit(1)


@click.command("pop")
@queues_argument
@_receive_options
@with_client
def pop_command(
    client: Client,
    queue: Queues,
    group: str,
    most: int,
    wait: float,
    partitions: list[int] | None,
    as_json: bool,
    output: str | None,
) -> None:
    """Take messages of QUEUE: receive and acknowledge them in one step.

    The group never gets them again. A lost answer loses nothing: the command asks for it again. QUEUE may be several, as for
    'receive'.

    Example: queuey pop jobs --wait 20
    """
    found = client.receive(queue, group, most, wait=wait, pop=True, partitions=partitions)
    _write(found, "jsonl" if as_json else output, names_queues=not isinstance(queue, str))


class _FailedError(Exception):
    """A program did not end with 0."""


def _run(program: Sequence[str], delivery: Delivery) -> None:
    try:
        status = run_program(
            program,
            delivery.queue,
            delivery,
            MESSAGE_GROUP=delivery.group,
            MESSAGE_RECEIPT=delivery.receipt or "",
            MESSAGE_DELIVERIES=str(delivery.deliveries),
            MESSAGE_FAILURES=str(delivery.failures),
            MESSAGE_HEADERS=json.dumps({name: header_to_json(value) for name, value in delivery.headers.items()}),
        )
    except (click.ClickException, click.exceptions.Exit):
        delivery.release(count=False)  # the message is not to blame
        raise
    if status:
        raise _FailedError(f"{program[0]} ended with {status} at message {delivery.id.hex}: it is released")


def _write(found: Iterable[Delivery], output: str | None, *, names_queues: bool) -> None:
    named = ("queue",) if names_queues else ()
    rows = (
        row_of(one) | {name: value for name in (*named, *_LEASE) if (value := getattr(one, name)) is not None}
        for one in found
    )
    table = (*named, "partition", "deliveries", "receipt", "body")
    form = form_for(output)
    write_rows(rows, table if form == "table" else (*named, *COLUMNS, *_LEASE), form)
