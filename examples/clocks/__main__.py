"""``python -m examples.clocks publish``, ``stream FOLDER`` and ``totals FOLDER``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click

from examples.clocks.changes import events
from examples.clocks.seen import SEEN
from examples.crashes.processor import client
from qdo import NewMessage

QUEUE = "clocks"
PARTITIONS = 4
PAGE = 500


@click.group()
def main() -> None:
    """Every change of clocks in the world: publish them, and stream them through Spark."""


@main.command()
def publish() -> None:
    """Append an event for each change."""
    asked = client()
    for name in (QUEUE, SEEN):
        asked.create_queue(name, partitions=PARTITIONS)
    found = list(events())
    with click.progressbar(length=len(found), label="published") as bar:
        for some in in_pages(iter(found)):
            asked.append_batch(QUEUE, some)
            bar.update(len(some))
    click.echo(f"published {len(found)} changes")


@main.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def stream(folder: Path) -> None:
    """Count changes by hour and archive them in FOLDER, until all published changes are there."""
    from examples.clocks.hours import run

    for hour, zones in run(folder, events=sum(1 for _ in events())):
        click.echo(f"{hour} UTC: the clocks of {zones} zones were changed")


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def totals(folder: Path) -> None:
    """How many events are in the queue, in the archive, in the hours, and with the workers."""
    import pyarrow.parquet as pq

    asked = client()
    seen = Counter(json.loads(message.body)["zone"] for message in asked.iterate(SEEN))
    counts = {
        "published": sum(1 for _ in asked.iterate(QUEUE)),
        "archived": pq.read_table(folder / "archive", columns=["message_id"]).num_rows,
        "in_hours": sum(pq.read_table(folder / "hours", columns=["count"])["count"].to_pylist()),
        "seen_by_workers": seen.total(),
        "zones": len(seen),
    }
    click.echo(json.dumps(counts))


def in_pages(messages: Iterator[NewMessage]) -> Iterator[list[NewMessage]]:
    """Lists of :data:`PAGE` messages."""
    while some := list(islice(messages, PAGE)):
        yield some


if __name__ == "__main__":
    main()
