"""G10: with too few nodes, what is refused changes nothing, and where something may have changed the answer says so."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from qdo.client import Appended, Client, NewMessage
from queuey.clock import SystemClock
from queuey.errors import OutcomeUnknown, QueueyError
from queuey.ids import IdGenerator, MessageId
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.fleet import LOOKS, Fleet, wait_until_readable
from tests.support.node import busy, wait_for_more
from tests.support.services.cassandra import Cassandra
from tests.support.traffic import plainly

FINISHED = MessageId.parse("1f9f6640e56711f189bf02fc00000001")
MOST = 160
"""Requests of a kind: there must be queues to be changed or deleted, and messages to be deleted."""
REST_SECONDS = 0.4
SHORT_STOPS, SHORT_SECONDS = 2, 2.0
NOTICED_SECONDS = 15
"""By then the nodes that are left have noticed that the others are silent."""


@dataclass
class Kind(ABC):
    """Requests of one kind, each about something of its own, sent one after the other; and what came of each."""

    client: Client
    ok: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """And why."""
    unknown: list[str] = field(default_factory=list)
    name: ClassVar[str]

    @property
    def sent(self) -> int:
        return len(self.ok) + len(self.refused) + len(self.unknown)

    def step(self) -> None:
        time.sleep(REST_SECONDS)
        if self.sent == MOST:
            return
        thing = f"{self.name.replace(' ', '-')}-{self.sent}"
        try:
            self.send(thing)
        except OutcomeUnknown:
            self.unknown.append(thing)
        except QueueyError as error:
            self.refused[thing] = error.code
        else:
            self.ok.append(thing)

    def prepare(self) -> None:
        """Make what the requests are about, if that must be there."""
        return

    @abstractmethod
    def send(self, thing: str) -> None:
        """One request."""

    @abstractmethod
    def changed(self) -> set[str]:
        """All things that requests have changed, by what is stored."""


class Create(Kind):
    name = "create"

    def send(self, thing: str) -> None:
        self.client.create_queue(thing, only_new=True)

    def changed(self) -> set[str]:
        return {queue.name for queue in self.client.queues()}


class Update(Kind):
    name = "update"

    def prepare(self) -> None:
        for number in range(MOST):
            self.client.create_queue(f"{self.name}-{number}")

    def send(self, thing: str) -> None:
        self.client.update_queue(thing, partitions=3)

    def changed(self) -> set[str]:
        return {queue.name for queue in self.client.queues() if queue.partitions == 3}


class DeleteQueue(Kind):
    name = "delete queue"

    def prepare(self) -> None:
        for number in range(MOST):
            self.client.create_queue(f"delete-queue-{number}")

    def send(self, thing: str) -> None:
        self.client.delete_queue(thing)

    def changed(self) -> set[str]:
        there = {queue.name for queue in self.client.queues()}
        return {f"delete-queue-{number}" for number in range(MOST)} - there


class Append(Kind):
    name = "append"

    def send(self, thing: str) -> None:
        self.client_append([thing])

    def client_append(self, bodies: Sequence[str]) -> Sequence[Appended]:
        return plainly(self.client, "q", [NewMessage(body) for body in bodies])

    def changed(self) -> set[str]:
        return {message.text.partition("/")[0] for message in everything(self.client, "q")}


class AppendOnce(Append):
    name = "append once"

    def client_append(self, bodies: Sequence[str]) -> Sequence[Appended]:
        return self.client.append_batch("q", bodies)


class Batch(Append):
    name = "batch"

    def send(self, thing: str) -> None:
        self.client_append([f"{thing}/{number}" for number in range(20)])


@dataclass
class Put(Kind):
    name = "put"
    ids: IdGenerator = field(default_factory=lambda: IdGenerator(SystemClock()))
    places: dict[str, str] = field(default_factory=dict)

    def send(self, thing: str) -> None:
        self.places[thing] = f"1:{self.ids.next_id().hex}"
        self.client.put("q", self.places[thing], thing)

    def changed(self) -> set[str]:
        return {message.text for message in self.client.get("q", list(self.places.values()))}


@dataclass
class DeleteMessages(Kind):
    name = "delete messages"
    placed: dict[str, Appended] = field(default_factory=dict)

    def prepare(self) -> None:
        things = [f"delete-messages-{number}" for number in range(MOST)]
        self.placed = dict(zip(things, self.client.append_batch("q", things), strict=True))

    def send(self, thing: str) -> None:
        self.client.delete("q", self.placed[thing])

    def changed(self) -> set[str]:
        there = {message.text for message in self.client.get("q", list(self.placed.values()))}
        return self.placed.keys() - there


class Commit(Kind):
    name = "commit"

    def send(self, thing: str) -> None:
        self.client.commit_offsets("q", thing, {1: FINISHED, 2: FINISHED}, 1)

    def changed(self) -> set[str]:
        return {group for group in self.client.offset_groups("q", start="commit-") if group.startswith("commit-")}


class Forget(Kind):
    name = "forget"

    def prepare(self) -> None:
        for number in range(MOST):
            self.client.commit_offsets("q", f"forget-{number}", {1: FINISHED}, 1)

    def send(self, thing: str) -> None:
        self.client.delete_offsets("q", thing)

    def changed(self) -> set[str]:
        return {f"forget-{number}" for number in range(MOST)} - set(self.client.offset_groups("q"))


KINDS = (Create, Update, DeleteQueue, Append, AppendOnce, Batch, Put, DeleteMessages, Commit, Forget)


def two_nodes_stopped(cassandra: Cassandra, chance: random.Random) -> None:
    """At first they are waited for in vain, time and again; at last they count as down."""
    nodes = chance.sample(cassandra.nodes, 2)
    for _ in range(SHORT_STOPS):
        for node in nodes:
            node.pause()
        time.sleep(SHORT_SECONDS)
        for node in nodes:
            node.resume()
        time.sleep(SHORT_SECONDS)
    for node in nodes:
        node.pause()
    time.sleep(NOTICED_SECONDS)


def network_cut(cassandra: Cassandra, chance: random.Random) -> None:
    for proxy in cassandra.proxies:
        proxy.cut()
    time.sleep(5)


def network_silent(cassandra: Cassandra, chance: random.Random) -> None:
    for proxy in cassandra.proxies:
        proxy.drop()
    time.sleep(5)


def network_lossy(cassandra: Cassandra, chance: random.Random) -> None:
    for proxy in cassandra.proxies:
        proxy.lose(0.05)
    time.sleep(10)


def two_nodes_killed(cassandra: Cassandra, chance: random.Random) -> None:
    for node in chance.sample(cassandra.nodes, 2):
        node.kill()
    time.sleep(NOTICED_SECONDS)


@pytest.mark.parametrize(
    "faults",
    [
        (two_nodes_stopped,),
        pytest.param((network_cut, network_silent, network_lossy), marks=pytest.mark.long),
        pytest.param((two_nodes_killed,), marks=pytest.mark.long),
    ],
    ids=lambda faults: "-".join(fault.__name__ for fault in faults),
)
def test_refusals_tell_the_truth(
    tmp_path: Path,
    cassandra_cluster: Cassandra,
    chance: random.Random,
    figures: Figures,
    faults: Sequence[Callable[[Cassandra, random.Random], None]],
) -> None:
    with Fleet(tmp_path, cassandra_cluster, servers=1, settings={"request_seconds": 3}) as fleet:
        fleet.client(0).create_queue("q", partitions=4)
        kinds = [kind(fleet.client(0)) for kind in KINDS]
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(lambda kind: kind.prepare(), kinds))
        with busy(*(kind.step for kind in kinds)):
            for fault in faults:
                wait_for_more(lambda: min(len(kind.ok) for kind in kinds), 2, seconds=60)
                fault(cassandra_cluster, chance)
                cassandra_cluster.mend()
            wait_for_more(lambda: min(len(kind.ok) for kind in kinds), 2, seconds=60)
        client = fleet.client(0, retries=LOOKS)
        wait_until_readable(client, "q", client.append("q", "the last").id)
        for kind in kinds:
            kind.client = client
        changed = {kind.name: kind.changed() for kind in kinds}

    refused = [(thing, why) for kind in kinds for thing, why in kind.refused.items()]
    told_wrong = [(thing, why) for kind in kinds for thing, why in kind.refused.items() if thing in changed[kind.name]]
    unchanged_though_ok = [thing for kind in kinds for thing in kind.ok if thing not in changed[kind.name]]
    figures(
        "G10",
        fault="+".join(fault.__name__ for fault in faults),
        ok=sum(len(kind.ok) for kind in kinds),
        refused=len(refused),
        of_which_stored=len(told_wrong),
        unknown=sum(len(kind.unknown) for kind in kinds),
        unknown_stored=sum(thing in changed[kind.name] for kind in kinds for thing in kind.unknown),
    )
    assert told_wrong == []
    assert unchanged_though_ok == []
    assert refused
    assert sum(len(kind.unknown) for kind in kinds)
