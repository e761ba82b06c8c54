"""Writers of the fault tests: they append, overwrite and delete, and note every outcome."""

from __future__ import annotations

import random
from functools import partial
from itertools import count

from qdo.client import Client
from queuey.errors import OutcomeUnknown, StorageUnavailable
from tests.support.effects import Effects, place_of


class Singles:
    """Appends messages one by one, overwrites and deletes some of them, and makes queues."""

    def __init__(self, chance: random.Random, name: str = "single") -> None:
        self.name = name
        self.effects = Effects()
        self.made: list[str] = []
        self._chance = chance
        self._numbers = count()

    def step(self, client: Client) -> None:
        body = f"{self.name} {next(self._numbers)}".encode()
        for where in self.effects.append([body], lambda: [client.append("q", body)]):
            fate = self._chance.random()
            if fate < 0.2:
                self.effects.change(place_of(where), None, partial(client.delete, "q", where))
            elif fate < 0.4:
                self.effects.change(place_of(where), b"new " + body, partial(client.put, "q", where, b"new " + body))
            elif fate < 0.5:
                self._make_queue(client, f"made-{self.name}-{next(self._numbers)}")

    def _make_queue(self, client: Client, name: str) -> None:
        try:
            client.create_queue(name)
        except (OutcomeUnknown, StorageUnavailable):
            return
        self.made.append(name)


class Batches:
    """Appends up to two hundred messages at once, to any partition, and of some batches overwrites or deletes one."""

    def __init__(self, chance: random.Random) -> None:
        self.effects = Effects()
        self._chance = chance
        self._numbers = count()

    def step(self, client: Client) -> None:
        bodies = [b"batch %d" % next(self._numbers) for _ in range(self._chance.randint(1, 200))]
        placed = self.effects.append(bodies, lambda: client.append_batch("q", bodies))
        if placed and self._chance.random() < 0.3:
            where = self._chance.choice(placed)
            if self._chance.random() < 0.5:
                self.effects.change(place_of(where), None, partial(client.delete, "q", where))
            else:
                self.effects.change(place_of(where), b"new batch", partial(client.put, "q", where, b"new batch"))
