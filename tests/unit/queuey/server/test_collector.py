"""When the garbage collector looks: seldom, briefly, and at everything in the end."""

from __future__ import annotations

import itertools

from queuey.server.collector import ALL_SECONDS, YOUNG_SECONDS, CollectorTurns


class Timed:
    """A collector whose looks take as long as a test says."""

    def __init__(self, young: float, whole: float) -> None:
        self.now = 0.0
        self.looks: list[tuple[float, int]] = []
        self._takes = {0: young, 2: whole}

    def collect(self, generation: int) -> None:
        self.looks.append((self.now, generation))
        self.now += self._takes[generation]

    def run(self, seconds: float) -> None:
        turns = CollectorTurns(lambda: self.now, self.collect)
        while self.now < seconds:
            self.now += turns.turn()

    def share(self, generation: int) -> float:
        return self._takes[generation] * sum(1 for _, one in self.looks if one == generation) / self.now


def test_new_objects_are_looked_at_often_and_all_once_a_minute() -> None:
    timed = Timed(young=0.0001, whole=0.01)

    timed.run(10 * ALL_SECONDS)

    wholes = [at for at, generation in timed.looks if generation == 2]
    assert len(wholes) == 9
    assert min(later - at for at, later in itertools.pairwise(wholes)) >= ALL_SECONDS
    assert len(timed.looks) > 0.9 * timed.now / YOUNG_SECONDS


def test_looks_that_take_long_come_less_often() -> None:
    timed = Timed(young=0.25, whole=0.5)

    timed.run(5000)

    assert timed.share(0) <= 0.05
    assert timed.share(2) <= 0.001
    assert [generation for _, generation in timed.looks].count(2) > 5
