"""G7: repeated until it is answered, through any of several servers, an append is stored once.

Requests and answers get lost, servers are killed between any two steps, or stopped for so long that others take
their appends for dead.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from qdo.client import Client
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.fleet import LOOKS, Fleet, wait_until_readable
from tests.support.node import APPLICATION, PAUSE_SECONDS, busy, wait_for_more
from tests.support.senders import LOSES, RETRIES, Sender, judge
from tests.support.servers import FIRST_KEY
from tests.support.services.cassandra import Cassandra
from tests.support.services.proxy import Proxy

REQUEST_SECONDS = 1
DEAD_AFTER_SECONDS = 7.0
"""Longer than an append of this fleet can take, and the grace of five seconds."""
SENDERS = ("one", "two", "three", "four")


@contextmanager
def lossy(fleet: Fleet, chance: random.Random) -> Iterator[Proxy]:
    """Leads to one of the servers, another one with each connection, and breaks some on the way."""
    with Proxy(lambda: ("127.0.0.1", chance.choice(fleet.nodes).port), chance=chance) as proxy:
        proxy.lose(LOSES)
        yield proxy


def test_appends_repeated_until_answered_are_stored_once(
    tmp_path: Path,
    cassandra_cluster: Cassandra,
    rounds: Callable[[int], range],
    chance: random.Random,
    figures: Figures,
) -> None:
    pauses = count()

    def pause(_: float) -> None:
        next(pauses)
        time.sleep(10 * PAUSE_SECONDS)

    settings = {"request_seconds": REQUEST_SECONDS}
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path, cassandra_cluster, settings=settings))
        proxy = stack.enter_context(lossy(fleet, chance))
        fleet.client(0).create_queue("q", partitions=3)
        clients = [Client(proxy.url, APPLICATION, FIRST_KEY, retries=RETRIES, sleep=pause) for _ in SENDERS]
        for client in clients:
            stack.callback(client.close)
        senders = [Sender(name, client, chance) for name, client in zip(SENDERS, clients, strict=True)]

        def answered() -> int:
            return sum(len(sender.answered) for sender in senders)

        with busy(*(sender.step for sender in senders)):
            for _ in rounds(1):
                wait_for_more(answered, 100, seconds=60)
                killed = chance.choice(fleet.nodes)
                killed.kill()
                node = chance.choice(cassandra_cluster.nodes)
                node.pause()
                wait_for_more(answered, 20, seconds=60)
                node.resume()
                killed.start()
                with chance.choice(fleet.nodes).stopped():
                    time.sleep(DEAD_AFTER_SECONDS + chance.random())
                wait_for_more(answered, 100, seconds=60)
        client = fleet.client(0, retries=LOOKS)
        wait_until_readable(client, "q", max(where.id for sender in senders for where in sender.answered.values()))
        stored = everything(client, "q")

    judge(senders, stored, proxy, figures, retries=next(pauses), kills=len(rounds(1)), stops=len(rounds(1)))
