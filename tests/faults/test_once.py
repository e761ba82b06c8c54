"""G7: an append that is repeated until it is answered is stored once, whatever was lost on the way, kill -9 included."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from qdo.client import Client
from qdo.measure import duplicates, loss
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.node import APPLICATION, PAUSE_SECONDS, Node, busy, wait_for_more
from tests.support.senders import LOSES, RETRIES, Sender, judge
from tests.support.servers import FIRST_KEY
from tests.support.services.proxy import Proxy


@contextmanager
def lossy(node: Node, chance: random.Random) -> Iterator[Proxy]:
    """Some requests and answers break their connection on the way."""
    with Proxy(lambda: ("127.0.0.1", node.running.port), chance=chance) as proxy:
        proxy.lose(LOSES)
        yield proxy


def test_appends_repeated_until_answered_are_stored_once(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    pauses = count()

    def pause(_: float) -> None:
        next(pauses)
        time.sleep(PAUSE_SECONDS)

    with Node(tmp_path) as node, lossy(node, chance) as proxy:
        node.client().create_queue("q", partitions=3)
        senders = [
            Sender(name, Client(proxy.url, APPLICATION, FIRST_KEY, retries=RETRIES, sleep=pause), chance)
            for name in ("one", "two", "three")
        ]
        with busy(*(sender.step for sender in senders)):
            for _ in rounds(3):
                wait_for_more(lambda: sum(len(sender.answered) for sender in senders), 1500, seconds=60)
                node.kill()
                node.start()
        stored = everything(node.client(), "q")
        for sender in senders:
            sender.client.close()

    judge(senders, stored, proxy, figures, retries=next(pauses), kills=len(rounds(3)))


def test_without_keys_the_same_losses_store_duplicates(tmp_path: Path, chance: random.Random, figures: Figures) -> None:
    """The planted fault: a client that repeats without a key."""
    with Node(tmp_path) as node, lossy(node, chance) as proxy:
        node.client().create_queue("q")
        with Client(proxy.url, APPLICATION, FIRST_KEY, retries=RETRIES, sleep=lambda _: None) as client:
            for number in range(300):
                client._do(client._endpoint.ask("POST", "v1", APPLICATION, "q", data=str(number).encode()))
        found = [message.text for message in everything(node.client(), "q")]

    figures(
        "G7",
        control="no_keys",
        sent=300,
        duplicates=len(duplicates(found)),
        lost=len(loss(map(str, range(300)), found)),
    )
    assert duplicates(found)
    assert loss(map(str, range(300)), found) == []
