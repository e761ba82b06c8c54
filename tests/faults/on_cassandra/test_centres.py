"""G1: of two data centres one goes on with its messages, and with reading them (G3), while the other is away, and what needs both says so.

Two nodes and a server are in the east, a node and a server in the west; each server asks the nodes of its own centre.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from qdo.client import Appended, Client, NewMessage
from queuey.errors import QueueyError, StorageUnavailable
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.fleet import Fleet, wait_until_readable
from tests.support.servers import eventually
from tests.support.services.cassandra import Cassandra, CassandraNode
from tests.support.traffic import plainly

EAST, WEST = 0, 1
QUEUES = ("weak", "strong", "very_strong")
"""Each named by its consistency."""


@contextmanager
def away(nodes: Sequence[CassandraNode]) -> Iterator[None]:
    for node in nodes:
        node.pause()
    try:
        yield
    finally:
        for node in nodes:
            node.resume()


def outcome(client: Client, queue: str, kept: list[Appended]) -> type[QueueyError] | None:
    """What an append comes to; None if it was acknowledged, and then it is in ``kept``."""
    try:
        kept += plainly(client, queue, [NewMessage(b"body")])
    except QueueyError as error:
        return type(error)
    return None


@pytest.mark.long
def test_a_data_centre_goes_on_alone(tmp_path: Path, figures: Figures) -> None:
    cassandra = Cassandra(tmp_path / "cassandra", nodes=3, centres=("east", "east", "west"))
    with (
        cassandra,
        Fleet(tmp_path, cassandra, servers=2, replication="east:2,west:1", centres=("east", "west")) as fleet,
    ):
        *in_the_east, in_the_west = cassandra.nodes
        east, west = fleet.client(EAST), fleet.client(WEST)
        kept: dict[str, list[Appended]] = {queue: [] for queue in QUEUES}
        for queue in QUEUES:
            east.create_queue(queue, consistency=queue)
            assert [outcome(one, queue, kept[queue]) for one in (east, west)] == [None, None]

        with away([in_the_west]):
            eventually(lambda: outcome(east, "very_strong", []) is StorageUnavailable, seconds=90)
            without_west = [outcome(east, queue, kept[queue]) for queue in ("weak", "strong")]
            east.update_queue("strong", partitions=2)
            wait_until_readable(east, "strong", kept["strong"][-1].id)
            read_alone = len(everything(east, "strong"))
        cassandra.wait_until_whole()
        eventually(lambda: outcome(east, "very_strong", kept["very_strong"]) is None, seconds=90)

        with away(in_the_east):
            eventually(lambda: outcome(west, "strong", []) is StorageUnavailable, seconds=90)
        cassandra.wait_until_whole()
        eventually(lambda: outcome(west, "strong", kept["strong"]) is None, seconds=90)

        lost = 0
        for queue, placed in kept.items():
            last = east.append(queue, b"the last")
            wait_until_readable(east, queue, last.id)
            found = {message.id for message in everything(east, queue)}
            lost += sum(one.id not in found for one in placed)
        wait_until_readable(west, "very_strong", last.id)
        elsewhere = {message.id for message in everything(west, "very_strong")}
        skipped = sum(one.id not in elsewhere for one in kept["very_strong"])

    figures("G1", fault="data_centre_away", acked=sum(map(len, kept.values())), lost=lost)
    figures("G3", fault="data_centre_away", acked=len(kept["very_strong"]), skipped_by_the_other=skipped)
    assert without_west == [None, None]
    assert read_alone == len(kept["strong"]) - 1
    assert (lost, skipped) == (0, 0)
