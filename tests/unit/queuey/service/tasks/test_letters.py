"""A redrive and a move task of one dead-letter queue: each letter is moved once, whenever the second begins."""

from __future__ import annotations

from collections import Counter

import pytest

from queuey.future import run
from queuey.service.tasks import MOVE, redrive_name
from tests.support.dying_stores import Died
from tests.support.letters import ALL, GROUP, LETTERS, World, new_world


def _begin(world: World, name: str) -> None:
    if name == MOVE:
        world.begin()
    else:
        run(world.service.tasks.redrive(world.queue("jobs"), GROUP, {"from": "dead", "match": {}}))


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("names", [(MOVE, "redrive"), ("redrive", MOVE)], ids=["move first", "redrive first"])
def test_each_letter_is_moved_once_by_one_of_two_tasks(names: tuple[str, str], *, dies: bool) -> None:
    """The second begins, at another server, before any call of the first, which may then go on or die."""
    meetings = 0
    for at in range(1, 20):
        world = new_world()
        other = World(world.stores, world.clock)
        world.bury(*["jobs"] * LETTERS)
        _begin(world, names[0])

        def meet(other: World = other) -> None:
            nonlocal meetings
            meetings += 1
            _begin(other, names[1])
            for _ in range(6):
                for task in other.stores.tasks.open_tasks().wait():
                    if task.kind == names[1]:  # the first stays with its server
                        run(other.service.tasks._advance(task))
                other.clock.advance(1)
            if dies:
                raise Died

        world.stores.calls, world.stores.at_call[at] = 0, meet
        try:
            both_to_their_end(world)
        except Died:
            both_to_their_end(other)

        assert world.bodies("jobs") == ALL, at
        assert world.bodies("dead") == Counter()
        other.service.close()
        world.service.close()
    assert meetings > 5


def both_to_their_end(world: World) -> None:
    for _ in range(300):
        world.clock.advance(min(run(world.service.tasks.turn()), 60))
        if not world.stores.tasks.open_tasks().wait():
            return
    found = run(world.service.tasks.find(world.queue("jobs"), redrive_name(GROUP)))
    raise AssertionError(f"still open: {found}")
