"""G16: three workers of one machine do every message, in order, while they are killed, stopped beyond their session, join and leave, and while the queue grows."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from queuey.errors import OutcomeUnknown, ServerUnreachable, StorageUnavailable
from tests.support.figures import Figures
from tests.support.node import Node
from tests.support.servers import eventually
from tests.support.services.ports import free_ports
from tests.support.workers import Crew, SlotCrew

STEPS = (3600.0, -7200.0, 1e8, -2e8)
"""Of a wall clock, one after the other, seconds."""


def test_workers_of_one_machine_lose_nothing(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    with Node(tmp_path) as node, Crew(node.running, tmp_path, chance) as crew:
        with crew.at_work(figures, "local"):
            for _ in rounds(1):
                crew.lose_one()
                crew.wait_until_refused()
                crew.grow()
                crew.storm()
                crew.wait_until_owned()


@pytest.mark.parametrize("kind", [Crew, pytest.param(SlotCrew, marks=pytest.mark.long)])
def test_queuey_is_killed_and_workers_go_on_when_it_is_back(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures, kind: type[Crew]
) -> None:
    """Nothing is begun twice for it, and nobody ends; who divides slots has to look by itself for what came: the server has forgotten it."""
    with Node(tmp_path, port=free_ports(1, ["127.0.0.1"])[0]) as node, kind(node.running, tmp_path, chance) as crew:
        crew.forgiven = (OutcomeUnknown, StorageUnavailable, ServerUnreachable)
        with crew.at_work(figures, f"server-killed-{kind.__name__}"):
            for _ in rounds(1):
                for _ in range(2):
                    node.kill()
                    crew.wait_until_idle()
                    node.start()
                    crew.wait_until_owned()
                assert [hand.poll() for hand in crew.hands] == [None] * 3
                crew.relieve()


def test_wall_clocks_are_set_and_nobody_dies_of_it(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    """Forth and back, some by an hour and some by years: who lives, who owns and how far all are depends on elapsed time alone."""
    # Sessions that outlast a disk's stall: it would bury them all, and they would come back under other names.
    with Node(tmp_path) as node, Crew(node.running, tmp_path, chance, session_seconds=10.0) as crew:
        with crew.at_work(figures, "clock-steps"):
            before = crew.outside.owners()
            for _ in rounds(1):
                for seconds in STEPS:
                    crew.step_clock(seconds)
                    crew.wait_until_owned()
                assert crew.outside.owners() == before
                crew.relieve()
                before = crew.outside.owners()


def test_who_counts_the_dead_by_the_wall_clock_is_found(tmp_path: Path, chance: random.Random) -> None:
    """It takes partitions away from those who live."""
    with Node(tmp_path) as node, Crew(node.running, tmp_path, chance, fault="by-the-wall") as crew:
        crew.start(3)
        with crew.under_load():
            crew.wait_until_owned()
            before = crew.outside.owners()
            crew.step_clock(STEPS[0])
            eventually(lambda: crew.outside.owners() != before, seconds=90)


def test_at_most_once_nothing_is_begun_again(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    """What was under way in who was killed is given up, and nothing else."""
    with Node(tmp_path) as node, Crew(node.running, tmp_path, chance, at_most_once=True) as crew:
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
