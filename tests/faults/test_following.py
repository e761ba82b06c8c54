"""G5: readers that follow a queue miss nothing and get nothing twice, whatever becomes of the server and of the network."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path

from qdo.client import Client, NewMessage
from qdo.client.values import Page
from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.ids import MessageId
from tests.support.figures import Figures
from tests.support.node import APPLICATION, PAUSE_SECONDS, Node, wait_for_more
from tests.support.servers import FIRST_KEY, eventually
from tests.support.services.proxy import Proxy

PARTITIONS = 6
LAST = b"last"
CAUGHT_UP_SECONDS = 180


@dataclass
class Writer:
    """Appends one by one, and remembers what was acknowledged."""

    acked: list[tuple[int, MessageId]] = field(default_factory=list)
    unknown: int = 0
    _numbers: Iterator[int] = field(default_factory=count)

    def step(self, client: Client) -> None:
        try:
            where = client.append("q", b"%d" % next(self._numbers))
        except StorageUnavailable:
            time.sleep(PAUSE_SECONDS)
        except OutcomeUnknown:
            self.unknown += 1
            time.sleep(PAUSE_SECONDS)
        else:
            self.acked.append((where.partition, where.id))


class Follower:
    """Follows in a thread of its own until the last message of each partition has come."""

    def __init__(self, url: str) -> None:
        self.got: list[tuple[int, MessageId]] = []
        self.pages = 0
        self._left = set(range(1, PARTITIONS + 1))
        self._url = url
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with Client(self._url, APPLICATION, FIRST_KEY, sleep=lambda seconds: time.sleep(min(seconds, 0.2))) as client:
            for page in client.follow("q"):
                self._take(page)
                if not self._left:
                    return

    def _take(self, page: Page) -> None:
        self.pages += 1
        for message in page.messages:
            self.got.append((message.partition, message.id))
            if message.body == LAST:
                self._left.discard(message.partition)

    def has_all(self) -> bool:
        return not self._left

    @property
    def repeated(self) -> int:
        return sum(times - 1 for times in Counter(self.got).values())

    @property
    def disordered(self) -> int:
        """How often a message of a partition came after a later one."""
        by_partition = [[id_ for at, id_ in self.got if at == number] for number in range(1, PARTITIONS + 1)]
        return sum(b < a for ids in by_partition for a, b in pairwise(ids))


def new_last(partition: int) -> NewMessage:
    return NewMessage(LAST, partition=partition)


def to(node: Node, chance: random.Random | None = None) -> Proxy:
    """A network whose far end is the server that runs now."""
    return Proxy(lambda: ("127.0.0.1", node.running.port), chance=chance)


def test_followers_outlive_kills_stops_and_broken_networks(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    writers = [Writer(), Writer()]
    with Node(tmp_path) as node, to(node) as sound, to(node, chance) as network:
        node.client().create_queue("q", partitions=PARTITIONS)
        followers = [Follower(sound.url), Follower(network.url), Follower(network.url)]
        network.lose(0.02)
        for turn in rounds(6):
            with node.busy(*(writer.step for writer in writers)):
                wait_for_more(lambda: sum(len(writer.acked) for writer in writers), chance.randint(5, 150))
                network.cut()
                network.heal()
                network.lose(0.02)
                network.throttle(200_000)
                if turn % 3 == 2:
                    node.terminate()
                    node.ended()
                else:
                    node.kill()
            node.start()
        network.heal()
        client = node.client()
        last = [client.append_batch("q", [new_last(number)])[0] for number in range(1, PARTITIONS + 1)]
        acked = [place for writer in writers for place in writer.acked] + [(one.partition, one.id) for one in last]
        eventually(lambda: all(one.has_all() for one in followers), seconds=CAUGHT_UP_SECONDS)

    missing = [sum(1 for place in acked if place not in set(one.got)) for one in followers]
    figures(
        "G5",
        kills=node.starts - 1,
        acked=len(acked),
        unknown=sum(writer.unknown for writer in writers),
        followers=len(followers),
        missed=sum(missing),
        repeated=sum(one.repeated for one in followers),
        disordered=sum(one.disordered for one in followers),
    )
    assert all(writer.acked for writer in writers)
    assert missing == [0, 0, 0]
    assert [(one.repeated, one.disordered) for one in followers] == [(0, 0)] * 3
