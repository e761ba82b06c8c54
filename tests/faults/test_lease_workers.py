"""G21, G22, G24 and G28 with ``qdo work --lease``: workers and the server are killed, and a message kills its workers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from qdo.client import Client
from queuey.errors import QueueyError
from tests.support.figures import Figures
from tests.support.lease_workers import Job, LeaseWorkers, held_by_two
from tests.support.node import APPLICATION, Node, wait_for_more
from tests.support.servers import FIRST_KEY, eventually
from tests.support.services.ports import free_ports

QUEUE, RESULTS, GROUP = "jobs", "results", "workers"


def fill(client: Client, bodies: list[str]) -> list[str]:
    return [one.id.hex for one in client.append_batch(QUEUE, bodies)]


def is_done(client: Client) -> bool:
    """Each message is acknowledged, or among the dead letters."""
    try:
        found = client.lease_group(QUEUE, GROUP)
        return not any(part.held for part in found.partitions) and not client.receive(QUEUE, GROUP, visibility=0)
    except QueueyError:
        return False


def test_workers_and_the_server_are_killed_and_each_message_is_acknowledged_once(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    kills = len(rounds(2))
    with (
        Node(tmp_path, port=free_ports(1, ["127.0.0.1"])[0]) as node,
        Client(node.running.url, APPLICATION, FIRST_KEY) as client,
        LeaseWorkers(tmp_path, node.running.url, chance) as workers,
    ):
        client.create_queue(QUEUE, partitions=3)
        client.create_queue(RESULTS)
        client.set_lease_group(QUEUE, GROUP, visibility=1.5)
        ids = fill(client, [str(number) for number in range(500 * kills)])
        for _ in range(4):
            workers.start("--threads", "2")
        for _ in range(kills):
            wait_for_more(lambda: len(workers.jobs()), chance.randint(100, 200), seconds=180)
            workers.kill_one()
            wait_for_more(lambda: len(workers.jobs()), chance.randint(50, 100), seconds=180)
            node.kill()
            node.start()
        eventually(lambda: is_done(client), seconds=240)
        assert workers.leave() == [0] * 4
        stored = sorted(int(one.text) for one in client.iterate(RESULTS))
        jobs = workers.jobs()

    whole = {job.message for job in jobs if job.is_whole}
    by_two = held_by_two(jobs)
    for guarantee in ("G21", "G22", "G24"):
        figures(
            guarantee,
            worker_kills=kills,
            server_kills=kills,
            messages=len(ids),
            jobs=len(jobs),
            held_by_two=len(by_two),
            lost=len({*ids} - whole),
            results=len(stored),
        )
    assert len(jobs) > len(ids), "no job was begun again: the run proves nothing"
    assert (by_two, {*ids} - whole) == ([], set())
    assert stored == list(range(len(ids)))


def test_a_message_that_kills_its_workers_dies_alone(tmp_path: Path, chance: random.Random, figures: Figures) -> None:
    """It comes among ten that one receive hands out, each in a thread of its own."""
    with (
        Node(tmp_path) as node,
        Client(node.running.url, APPLICATION, FIRST_KEY) as client,
        LeaseWorkers(tmp_path, node.running.url, chance) as workers,
    ):
        client.create_queue(QUEUE)
        client.create_queue(RESULTS)
        client.set_lease_group(QUEUE, GROUP, visibility=1.5, max_failures=3)
        (poison, *_) = fill(client, ["poison", *(str(number) for number in range(25))])
        deaths = 0
        while (code := workers.start("--threads", "10", "--exit-at-end").wait(90)) == -9:
            deaths += 1
        jobs = workers.jobs()
        stored = sorted(int(one.text) for one in client.iterate(RESULTS))
        dead = [message.text for message in client.iterate(f"{QUEUE}-dead")]

    innocent = [job for job in jobs if job.message != poison and job.failures]
    figures("G28", messages=26, deaths=deaths, dead_letters=len(dead), innocent_failures=len(innocent))
    assert (code, dead, stored) == (7, ["poison"], list(range(25)))
    assert deaths == 4, "with others, and then three times alone"
    assert innocent == []


@pytest.mark.parametrize(
    ("second", "expected"),
    [(Job("m", 2, 1.5, 3.0, True, 0), ["m"]), (Job("m", 2, 2.5, 3.0, True, 0), [])],
)
def test_the_judge_finds_what_two_held(second: Job, expected: list[str]) -> None:
    assert held_by_two([Job("m", 1, 1.0, 2.0, True, 0), second, Job("n", 2, 1.0, 9.0, False, 0)]) == expected
