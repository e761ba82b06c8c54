"""G9: of a deleted queue nothing is read again, and what is appended to the next one of its name is there.

Two producers go on through two servers, one clock ahead and one behind as far as they may, while the queue is deleted
and made anew and a node is away.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from qdo.client import Client, NewMessage
from qdo.measure import loss
from queuey.errors import OutcomeUnknown, QueueNotFound, StorageUnavailable
from queuey.ids import MessageId
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.fleet import Fleet, wait_until_readable
from tests.support.node import PAUSE_SECONDS, busy, wait_for_more
from tests.support.servers import eventually
from tests.support.services.cassandra import Cassandra
from tests.support.traffic import plainly

SKEW = 0.15
"""Seconds that one server is ahead and the other behind; with the doubt of a round trip it is near the bound."""
GRACE_SECONDS = 5


@dataclass(frozen=True)
class Sent:
    """An append that was acknowledged, and between which moments it was under way."""

    began: float
    ended: float
    message_id: MessageId


@dataclass
class Producer:
    """Appends to the queue, whichever incarnation that is."""

    name: str
    client: Client
    chance: random.Random
    sent: dict[str, Sent] = field(default_factory=dict)
    not_found: int = 0
    numbers: count[int] = field(default_factory=count)

    def step(self) -> None:
        body = f"{self.name} {next(self.numbers)}"
        append = partial(plainly, self.client, "q", [NewMessage(body)])
        began = time.monotonic()
        try:
            placed = append() if self.chance.random() < 0.7 else [self.client.append("q", body)]
        except QueueNotFound:
            self.not_found += 1
        except (StorageUnavailable, OutcomeUnknown):
            pass
        else:
            self.sent[body] = Sent(began, time.monotonic(), placed[0].id)
        time.sleep(PAUSE_SECONDS)


@dataclass
class Judge:
    """Compares what a reader finds in the queue with when it was sent."""

    producers: list[Producer]
    ghosts: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seen: int = 0

    def sent(self, after: float = 0.0, before: float = float("inf")) -> dict[str, Sent]:
        """What was sent after a moment, and acknowledged before another one."""
        every = [(body, sent) for producer in self.producers for body, sent in list(producer.sent.items())]
        return {body: sent for body, sent in every if sent.began > after and sent.ended < before}

    def look(self, client: Client, *, deleted: float, created: float) -> None:
        """:param deleted: when the deletion of the former queue was asked for; ``created``: when this one was told made."""
        due = self.sent(after=created)
        wait_until_readable(client, "q", max(sent.message_id for sent in due.values()))
        found = {message.text for message in everything(client, "q")}
        self.ghosts += found & self.sent(before=deleted).keys()
        self.lost += loss(due, found)
        self.seen += len(found)


@contextmanager
def skewed(fleet: Fleet) -> Iterator[None]:
    with fleet.stepped(0, SKEW), fleet.stepped(1, -SKEW):
        yield


def make_anew(client: Client) -> tuple[float, float]:
    """Delete the queue and make it again; when the one began and the other ended."""
    deleted = time.monotonic()
    certainly(lambda: client.delete_queue("q"))
    certainly(lambda: client.create_queue("q", partitions=2))
    return deleted, time.monotonic()


def certainly(change: Callable[[], object]) -> None:
    """Repeat a change until its outcome is known."""

    def done() -> bool:
        try:
            change()
        except (StorageUnavailable, OutcomeUnknown):
            return False
        except QueueNotFound:
            pass  # an earlier try, of which nobody could tell, has deleted it
        return True

    eventually(done, seconds=90)


def test_a_queue_made_anew_has_its_own_messages_and_no_others(
    tmp_path: Path,
    cassandra_cluster: Cassandra,
    rounds: Callable[[int], range],
    chance: random.Random,
    figures: Figures,
) -> None:
    with Fleet(tmp_path, cassandra_cluster, servers=2) as fleet, skewed(fleet):
        fleet.client(0).create_queue("q", partitions=2)
        producers = [Producer(f"producer-{index}", client, chance) for index, client in enumerate(fleet.clients())]
        judge, clients = Judge(producers), fleet.clients()
        with busy(*(producer.step for producer in producers)):
            for _ in rounds(2):
                wait_for_more(lambda: len(judge.sent()), 50, seconds=90)
                away = chance.choice(cassandra_cluster.nodes)
                away.pause()
                deleted, created = make_anew(chance.choice(clients))
                away.resume()
                wait_for_more(lambda: min(len(producer.sent) for producer in producers), 20, seconds=90)
                judge.look(chance.choice(clients), deleted=deleted, created=created)
                judge.look(chance.choice(clients), deleted=deleted, created=created)

    figures(
        "G9",
        cycles=len(rounds(2)),
        ghosts=len(judge.ghosts),
        lost_after_create=len(judge.lost),
        acked=len(judge.sent()),
        seen=judge.seen,
        not_found=sum(producer.not_found for producer in producers),
    )
    assert judge.ghosts == []
    assert judge.lost == []
    assert judge.seen
    assert all(producer.not_found for producer in producers)


@pytest.mark.long
def test_a_node_that_returns_after_the_tombstones_are_gone_brings_nothing_back(
    tmp_path: Path, cassandra_cluster: Cassandra, chance: random.Random, figures: Figures
) -> None:
    """Its data still have the messages of the deleted queue; the other nodes have forgotten that they were deleted."""
    gone, *others = chance.sample(cassandra_cluster.nodes, 3)
    with Fleet(tmp_path, cassandra_cluster, servers=2, gc_grace_seconds=GRACE_SECONDS) as fleet:
        client = fleet.client(0)
        client.create_queue("q", partitions=2)
        producer = Producer("before", client, chance)
        for _ in range(50):
            producer.step()
        assert len(producer.sent) == 50
        gone.kill()
        deleted, created = make_anew(client)
        after = Producer("after", fleet.client(1), chance)
        for _ in range(50):
            after.step()
        time.sleep(GRACE_SECONDS + 1)
        for node in others:
            node.tool("flush", fleet.keyspace)
            node.tool("compact", fleet.keyspace)
        cassandra_cluster.mend()
        judge = Judge([producer, after])
        for one in fleet.clients():
            judge.look(one, deleted=deleted, created=created)
        names = [queue.name for queue in client.queues()]

    figures("G9", fault="node_back_after_gc_grace", ghosts=len(judge.ghosts), lost_after_create=len(judge.lost))
    assert judge.ghosts == []
    assert judge.lost == []
    assert names == ["q"]
