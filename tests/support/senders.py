"""Senders that repeat an append until it is answered, and the judge of what they stored (G7)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from qdo.client import Appended, Client, Message, NewMessage
from qdo.measure import duplicates, loss
from tests.support.effects import place_of
from tests.support.figures import Figures
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
