"""G23, G24: receivers of three servers, each of which is stopped and goes on again and again, the home of their group too."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.fleet import LOOKS, READ_DELAY, Fleet
from tests.support.lease_receiver import AWAY, QUEUE, Receiver, fill
from tests.support.node import busy, wait_for_more
from tests.support.services.fixtures import Reached

RESULTS = "results"
MESSAGES, RECEIVERS, STOPS = 2000, 12, 8
STILL_SECONDS = (0.2, 1.0, 3.2, 5.0)
"""A link gives a silent server up after three seconds."""


class Popper:
    """Pops and appends a result, under an attempt that it repeats at any server until it is answered."""

    def __init__(self, fleet: Fleet, name: str, chance: random.Random) -> None:
        self._receivers = [Receiver(node, name) for node in fleet.nodes]
        self._name, self._chance = name, chance
        self.popped: list[str] = []
        self.results: list[str] = []
        self.repeats = 0

    def step(self) -> bool:
        """Whether something was popped."""
        name = f"{self._name} {len(self.results)}"
        body = {
            "attempt": name,
            "append": [{"queue": RESULTS, "messages": [{"body": name}]}],
            "receive": {"max": self._chance.randint(1, 4), "pop": True},
        }
        while True:
            try:
                found = self._chance.choice(self._receivers).step(**body)
            except AWAY:
                self.repeats += 1
                time.sleep(0.05)
            else:
                break
        self.popped += [one["message_id"] for one in found["messages"]]
        self.results.append(name)
        return bool(found["messages"])


@pytest.mark.drawn
def test_a_home_that_stands_still_again_and_again(
    tmp_path: Path,
    cassandra_node: Reached,
    rounds: Callable[[int], range],
    chance: random.Random,
    figures: Figures,
) -> None:
    with Fleet(tmp_path, cassandra_node, replication=1) as fleet:
        for queue, partitions in ((QUEUE, 3), (RESULTS, 1)):
            fleet.client(0).create_queue(queue, partitions=partitions)
        ids = fill(fleet.nodes[0], MESSAGES)
        time.sleep(READ_DELAY)
        poppers = [Popper(fleet, f"p{number}", random.Random(chance.random())) for number in range(RECEIVERS)]

        def answered() -> int:
            return sum(len(popper.results) for popper in poppers)

        with busy(*(popper.step for popper in poppers)):
            wait_for_more(answered, 60, seconds=120)
            for _ in rounds(STOPS):
                with chance.choice(fleet.nodes).stopped():
                    time.sleep(chance.choice(STILL_SECONDS))
                time.sleep(chance.random())
            wait_for_more(answered, 60, seconds=120)
        handed_over = fleet.counted("queuey_lease_steps_handed_over_total")
        last = Popper(fleet, "last", chance)
        while last.step():
            continue
        time.sleep(2 * READ_DELAY)
        client = fleet.client(0, retries=LOOKS)
        stored = Counter(message.body.decode() for message in everything(client, RESULTS))

    poppers.append(last)
    popped = Counter(id_ for popper in poppers for id_ in popper.popped)
    wanted = {name for popper in poppers for name in popper.results}
    figures(
        "G23",
        servers=3,
        popped=popped.total(),
        distinct=len(popped),
        lost=len({*ids} - {*popped}),
        duplicates=popped.total() - len(popped),
        results=stored.total(),
        results_lost=len(wanted - {*stored}),
        results_twice=stored.total() - len(stored),
        repeats=sum(popper.repeats for popper in poppers),
        handed_over=handed_over,
    )
    assert handed_over, "servers that meet have a home"
    assert popped == Counter(ids)
    assert stored == Counter(wanted)
