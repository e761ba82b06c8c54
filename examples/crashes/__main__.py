"""``python -m examples.crashes send 20000`` and ``python -m examples.crashes watch``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import click

from examples.crashes.processor import PROCESSED, client
from examples.crashes.reports import reports
from qdo import Client, NewMessage
from queuey.errors import QueueNotFound

QUEUE = "crashes"
PARTITIONS = 12
PAGE = 500


@click.group()
def main() -> None:
    """Crash reports: send some, and watch them being processed."""


@main.command()
@click.argument("count", type=click.IntRange(1))
@click.option("--broken", type=click.IntRange(0), default=0, help="How many of them cannot be read.")
def send(count: int, broken: int) -> None:
    """Append COUNT reports."""
    asked = client()
    asked.create_queue(QUEUE, partitions=PARTITIONS)
    asked.create_queue(PROCESSED, partitions=PARTITIONS)
    with click.progressbar(length=count, label="sent") as bar:
        for some in in_pages(reports(count, broken=broken)):
            asked.append_batch(QUEUE, some)
            bar.update(len(some))


@main.command()
def watch() -> None:
    """Count signatures as they come, until all reports are processed or dead."""
    asked = client()
    total = asked.queue_info(QUEUE).depth
    top: Counter[str] = Counter()
    with click.progressbar(length=total, label="processed") as bar:
        for page in asked.follow(PROCESSED):
            top.update(json.loads(message.body)["signature"] for message in page.messages)
            bar.update(len(page.messages))
            if top.total() + _dead(asked) >= total:
                break
    for name, times in top.most_common(5):
        click.echo(f"{times:8,}  {name}")


def _dead(asked: Client) -> int:
    try:
        return asked.queue_info(f"{QUEUE}-dead").depth
    except QueueNotFound:
        return 0


def in_pages(messages: Iterable[NewMessage]) -> Iterator[list[NewMessage]]:
    """Lists of :data:`PAGE` messages."""
    rest = iter(messages)
    while some := list(islice(rest, PAGE)):
        yield some


if __name__ == "__main__":
    main()
