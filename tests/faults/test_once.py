"""G7: an append that is repeated until it is answered is stored once, whatever was lost on the way, kill -9 included."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from qdo.client import Appended, Client, Message, NewMessage
from qdo.measure import duplicates, loss
from tests.conftest import Figures
from tests.support.effects import everything, place_of
from tests.support.node import APPLICATION, PAUSE_SECONDS, Node, busy, wait_for_more
from tests.support.servers import FIRST_KEY
from tests.support.services.proxy import Proxy, Way

LOSES = 0.1
RETRIES = 1000
"""Until it is answered."""


@dataclass
class Sender:
    """Appends its numbers, alone or as a batch, under a key for the request or for each message."""

    name: str
    client: Client
    chance: random.Random
    answered: dict[str, Appended] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=count)

    def step(self) -> None:
        bodies = [f"{self.name} {next(self.numbers)}" for _ in range(self.chance.choice((1, 1, 1, 5, 50)))]
        if self.chance.random() < 0.5:
            placed = self.client.append_batch("q", bodies)
        elif len(bodies) == 1:
            placed = [self.client.append("q", bodies[0])]
        else:
            keyed = [NewMessage(body, idempotency_key=body.replace(" ", "-")) for body in bodies]
            placed = self.client.append_batch("q", keyed)
        self.answered |= zip(bodies, placed, strict=True)


def judge(senders: Sequence[Sender], stored: Sequence[Message], proxy: Proxy, figures: Figures, **said: object) -> None:
    """Everything that was answered is there, once, where the answer said; and much was lost on the way.

    :param said: further figures.
    """
    sent = [body for sender in senders for body in sender.answered]
    found = [message.text for message in stored]
    answers = {body: place_of(where) for sender in senders for body, where in sender.answered.items()}
    misplaced = [message.text for message in stored if answers[message.text] != place_of(message)]
    figures(
        "G7",
        sent=len(sent),
        requests_lost=proxy.lost(Way.THERE),
        answers_lost=proxy.lost(Way.BACK),
        **said,
        duplicates=len(duplicates(found)),
        lost=len(loss(sent, found)),
    )
    assert proxy.lost(Way.BACK)
    assert proxy.lost(Way.THERE)
    assert duplicates(found) == []
    assert loss(sent, found) == []
    assert misplaced == []


@contextmanager
def lossy(node: Node, chance: random.Random) -> Iterator[Proxy]:
    """Some requests and answers break their connection on the way."""
    with Proxy(lambda: ("127.0.0.1", node.door.port), chance=chance) as proxy:
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
                client._transport.send("POST", "v1", APPLICATION, "q", data=str(number).encode())
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
