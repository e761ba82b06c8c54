"""G24 with schedules: while workers and the server are killed, and its clock is stepped, an occurrence is stored once."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from qdo.client import Client
from qdo.tasks.schedules import ScheduleBook
from queuey.errors import QueueyError
from tests.support.commands import command
from tests.support.figures import Figures
from tests.support.loaded import Program
from tests.support.node import APPLICATION, Node, wait_for_more
from tests.support.schedules import EVERY_MINUTE, MINUTE, occurrences, overdue
from tests.support.servers import FIRST_KEY, eventually
from tests.support.services.ports import free_ports
from tests.support.skewed import program
from tests.support.wall_clock import Offset

HOUR = 3600
TASKS = """
from qdo import task

@task(queue="others")
def nothing() -> None: ...
"""


class TaskWorkers:
    """``qdo work --tasks`` as processes that come and go."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._environment = {"QUEUEY_URL": url, "QUEUEY_APPLICATION": APPLICATION, "QUEUEY_KEY": FIRST_KEY}
        (folder / "tasks_of_test.py").write_text(TASKS)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        with (self._folder / "said.txt").open("ab") as said:
            arguments = command("work", "--tasks", "tasks_of_test", "--threads", "1", module="qdo.cli")
            environment = os.environ | self._environment
            process = Program(arguments, stdout=said, stderr=said, env=environment, cwd=self._folder)
        self.processes.append(process)

    def kill_one(self, chance: random.Random) -> None:
        process = self.processes.pop(chance.randrange(len(self.processes)))
        process.kill()
        process.wait()
        self.start()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@contextmanager
def workers_in(folder: Path, url: str) -> Iterator[TaskWorkers]:
    workers = TaskWorkers(folder, url)
    try:
        yield workers
    finally:
        workers.close()


def is_done(client: Client) -> bool:
    """Every occurrence up to now is stored."""
    try:
        now, found = ScheduleBook(client).now(), occurrences(client)
    except QueueyError:
        return False
    return bool(found) and max(found) > now - MINUTE


@pytest.mark.drawn
def test_kills_and_steps_of_the_clock_double_and_lose_no_occurrence(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    offset, kills = Offset(tmp_path / "offset"), len(rounds(2))
    port = free_ports(1, ["127.0.0.1"])[0]
    with (
        Node(tmp_path, program=program(offset), port=port) as node,
        Client(node.running.url, APPLICATION, FIRST_KEY) as client,
        workers_in(tmp_path, node.running.url) as workers,
    ):
        client.create_queue(EVERY_MINUTE.queue)
        first = overdue(client, replace(EVERY_MINUTE, missed="all"), 1500 * kills)
        for _ in range(3):
            workers.start()
        for number in range(kills):
            wait_for_more(lambda: len(occurrences(client)), chance.randint(200, 500), seconds=180)
            workers.kill_one(chance)
            wait_for_more(lambda: len(occurrences(client)), chance.randint(200, 500), seconds=180)
            offset.step(3 * HOUR if number % 2 == 0 else -2 * HOUR)
            node.kill()
            node.start()
        eventually(lambda: is_done(client), seconds=240)
        found = occurrences(client)

    expected = set(range(first, max(found) + 1, MINUTE))
    twice, missed = len(found) - len({*found}), len(expected - {*found})
    figures("G24", occurrences=len(found), kills=2 * kills, clock_steps=kills, twice=twice, missed=missed)
    assert (twice, missed, {*found} - expected) == (0, 0, set())
