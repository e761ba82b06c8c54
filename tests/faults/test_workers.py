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
from tests.support.workers import SlotWorkers, Workers

STEPS = (3600.0, -7200.0, 1e8, -2e8)
"""Of a wall clock, one after the other, seconds."""


def test_workers_of_one_machine_lose_nothing(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    with Node(tmp_path) as node, Workers(node.running, tmp_path, chance) as workers:
        with workers.at_work(figures, "local"):
            for _ in rounds(1):
                workers.lose_one()
                workers.wait_until_refused()
                workers.grow()
                workers.storm()
                workers.wait_until_owned()


@pytest.mark.parametrize("kind", [Workers, pytest.param(SlotWorkers, marks=pytest.mark.long)])
def test_queuey_is_killed_and_workers_go_on_when_it_is_back(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures, kind: type[Workers]
) -> None:
    """No job begins twice, and no member ends. The member that divides slots has to look for new messages, because the server has forgotten them."""
    with Node(tmp_path, port=free_ports(1, ["127.0.0.1"])[0]) as node, kind(node.running, tmp_path, chance) as workers:
        workers.forgiven = (OutcomeUnknown, StorageUnavailable, ServerUnreachable)
        with workers.at_work(figures, f"server-killed-{kind.__name__}"):
            for _ in rounds(1):
                for _ in range(2):
                    node.kill()
                    workers.wait_until_idle()
                    node.start()
                    workers.wait_until_owned()
                assert [process.poll() for process in workers.processes] == [None] * 3
                workers.relieve()


def test_wall_clocks_are_set_and_nobody_dies_of_it(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    """Forth and back, some by an hour and some by years: which members live, what they own and how far they are depends on elapsed time alone."""
    # Sessions that outlast a disk's stall: it would bury them all, and they would come back under other names.
    with Node(tmp_path) as node, Workers(node.running, tmp_path, chance, session_seconds=10.0) as workers:
        with workers.at_work(figures, "clock-steps"):
            before = workers.outside.owners()
            for _ in rounds(1):
                for seconds in STEPS:
                    workers.step_clock(seconds)
                    workers.wait_until_owned()
                assert workers.outside.owners() == before
                workers.relieve()
                before = workers.outside.owners()


def test_who_counts_the_dead_by_the_wall_clock_is_found(tmp_path: Path, chance: random.Random) -> None:
    """It takes partitions away from members that live."""
    with Node(tmp_path) as node, Workers(node.running, tmp_path, chance, fault="by-the-wall") as workers:
        workers.start(3)
        with workers.under_load():
            workers.wait_until_owned()
            before = workers.outside.owners()
            workers.step_clock(STEPS[0])
            eventually(lambda: workers.outside.owners() != before, seconds=90)


def test_at_most_once_nothing_is_begun_again(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    """What was under way in a killed member is given up, and nothing else."""
    with Node(tmp_path) as node, Workers(node.running, tmp_path, chance, at_most_once=True) as workers:
        workers.start(2)
        with workers.under_load():
            workers.wait_until_owned()
            for _ in rounds(2):
                workers.kill()
                workers.start()
                workers.wait_until_owned()
        verdict = workers.finish()

    verdict.say(figures, "at-most-once")
    assert (verdict.g16["repeated"], verdict.g14["regressions"], verdict.g16["out_of_order"]) == (0, 0, 0)
    assert verdict.g16["jobs"]
    assert verdict.g16["lost"] <= workers.kills * workers.settings.threads
