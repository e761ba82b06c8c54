"""``queuey ack``, ``release`` and ``reject``: leases are settled by their receipts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from queuey.cli.receive import group_option, queues_argument
from queuey.errors import QueueyError
from queuey.terminal.options import with_client
from queuey.terminal.output import many, output_option, say, write_one
from queuey.terminal.times import Duration

if TYPE_CHECKING:
    from qdo.client import Client, Queues, Settle

RECEIPTS_AT_ONCE = 1000
"""A server takes no more in one request."""
_RECEIPT = re.compile(r"-[A-Za-z0-9_-]{59}")

receipts_argument = click.argument("receipts", nargs=-1, required=True, metavar="RECEIPT...")


class ReceiptCommand(click.Command):
    """A command that takes a receipt for one even if it begins with a hyphen."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        hyphened = [text for text in args if _RECEIPT.fullmatch(text)]
        if hyphened and "--" not in args:
            args = [*(text for text in args if text not in hyphened), "--", *hyphened]
        return super().parse_args(ctx, args)


@click.command("ack", cls=ReceiptCommand)
@queues_argument
@receipts_argument
@group_option
@output_option
@with_client
def ack_command(client: Client, queue: Queues, receipts: Sequence[str], group: str, output: str | None) -> None:
    """Acknowledge messages of QUEUE: they are done, and the group never gets them again.

    RECEIPT is what 'receive' printed. With - they come from stdin, one a line, alone or in the lines that 'receive' prints. A
    lease that had ended is named, the others are settled, and the command ends with 1.

    Example: queuey receive jobs --max 10 | queuey ack jobs -
    """
    from qdo.client import Settle

    _settle(client, queue, group, receipts, output, lambda some: Settle(acknowledge=some))


@click.command("release", cls=ReceiptCommand)
@queues_argument
@receipts_argument
@group_option
@click.option(
    "--delay", type=Duration(), help="Hand it out again only after this long.  [default: the group's back-off]"
)
@click.option("--no-count", is_flag=True, help="It is no failure; without --delay it is handed out again at once.")
@output_option
@with_client
def release_command(
    client: Client,
    queue: Queues,
    receipts: Sequence[str],
    group: str,
    delay: float | None,
    no_count: bool,
    output: str | None,
) -> None:
    """Give messages of QUEUE back, to be handed out again.

    RECEIPT is as for 'ack'. It counts as a failure; after the group's 'max_failures' of them a message goes to the dead
    letters.

    Example: queuey release jobs "$receipt" --delay 5m
    """
    from qdo.client import Release, Settle

    def wanted(some: Sequence[str]) -> Settle:
        return Settle(release=[Release(receipt, delay, count=not no_count) for receipt in some])

    _settle(client, queue, group, receipts, output, wanted)


@click.command("reject", cls=ReceiptCommand)
@queues_argument
@receipts_argument
@group_option
@click.option("--reason", default="", help="Is kept with the dead letter.")
@output_option
@with_client
def reject_command(
    client: Client, queue: Queues, receipts: Sequence[str], group: str, reason: str, output: str | None
) -> None:
    """Move messages of QUEUE to the dead letters of the group.

    RECEIPT is as for 'ack'.

    Example: queuey reject jobs "$receipt" --reason 'not JSON'
    """
    from qdo.client import Reject, Settle

    def wanted(some: Sequence[str]) -> Settle:
        return Settle(reject=[Reject(receipt, reason) for receipt in some])

    _settle(client, queue, group, receipts, output, wanted)


def _settle(
    client: Client,
    queue: Queues,
    group: str,
    receipts: Sequence[str],
    output: str | None,
    wanted: Callable[[Sequence[str]], Settle],
) -> None:
    done, stale = 0, list[str]()
    left = list(dict.fromkeys(_receipts(receipts)))
    for start in range(0, len(left), RECEIPTS_AT_ONCE):
        try:
            settled = client.settle(queue, group, wanted(left[start : start + RECEIPTS_AT_ONCE]))
        except (QueueyError, KeyboardInterrupt):
            if start:
                say(f"settled {many(done, 'message')} before this:")
            raise
        done += settled.acknowledged + settled.released + settled.rejected
        stale += settled.stale
        for receipt in settled.stale:
            say(f"StaleReceipt: {receipt}: this lease had ended; nothing changed")
    if output is not None:
        write_one({"settled": done, "stale": stale}, output)
    say(f"settled {many(done, 'message')}")
    if stale:
        raise click.exceptions.Exit(1)


def _receipts(given: Sequence[str]) -> Iterator[str]:
    for text in given:
        if text != "-":
            yield text
            continue
        for line in sys.stdin:
            if found := _receipt_in(line.strip()):
                yield found


def _receipt_in(line: str) -> str:
    """The receipt of a line: all of it, or a member of JSON."""
    if not line.startswith("{"):
        return line
    try:
        receipt = json.loads(line)["receipt"]
    except (ValueError, KeyError, RecursionError):
        raise click.UsageError(f"A line has no receipt: {line[:60]}") from None
    return str(receipt)
