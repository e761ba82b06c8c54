"""G16: three workers of one machine do every message, in order, while they are killed, stopped beyond their session, join and leave, and while the queue grows."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Figures
from tests.faults.crew import Crew
from tests.faults.node import Node


def test_workers_of_one_machine_lose_nothing(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    with Node(tmp_path) as node, Crew(node.door, tmp_path, chance) as crew:
        with crew.at_work(figures, "local"):
            for _ in rounds(1):
                crew.lose_one()
                crew.wait_until_refused()
                crew.grow()
                crew.storm()
                crew.wait_until_owned()


def test_at_most_once_nothing_is_begun_again(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    """What was under way in who was killed is given up, and nothing else."""
    with Node(tmp_path) as node, Crew(node.door, tmp_path, chance, at_most_once=True) as crew:
        crew.start(2)
        with crew.under_load():
            crew.wait_until_owned()
            for _ in rounds(2):
                crew.kill()
                crew.start()
                crew.wait_until_owned()
        verdict = crew.finish()

    verdict.say(figures, "at-most-once")
    assert (verdict.g16["repeated"], verdict.g14["regressions"], verdict.g16["out_of_order"]) == (0, 0, 0)
    assert verdict.g16["jobs"]
    assert verdict.g16["lost"] <= crew.kills * crew.settings.threads
