"""``qdo work --lease`` as processes, at a test's mercy, and what their jobs did."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from queuey.clock import SystemClock
from tests.support.commands import command
from tests.support.loaded import Program
from tests.support.node import APPLICATION
from tests.support.servers import FIRST_KEY

JOBS = """
import json, os, time

LOG = os.open("jobs.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

def tell(what, message, context):
    said = {"what": what, "pid": os.getpid(), "at": time.clock_gettime(time.CLOCK_BOOTTIME), "message": message.id.hex,
            "delivery": message.deliveries, "failures": message.failures}
    os.write(LOG, ("\\n" + json.dumps(said) + "\\n").encode())

def work(message, context):
    tell("begin", message, context)
    time.sleep(0.01)
    if message.text == "poison":
        os.kill(os.getpid(), 9)
    tell("end", message, context)
    context.append("results", message.text)
"""
elapsed = SystemClock().elapsed


class Job(NamedTuple):
    """One call. Times are those since boot."""

    message: str
    pid: int
    began: float
    ended: float
    """When it ended, or its process was killed."""
    is_whole: bool
    failures: int


class LeaseWorkers:
    """Workers on the queue ``jobs``. A context manager that leaves no process behind."""

    def __init__(self, folder: Path, url: str, chance: random.Random) -> None:
        self._folder, self._chance = folder, chance
        self._environment = {"QUEUEY_URL": url, "QUEUEY_APPLICATION": APPLICATION, "QUEUEY_KEY": FIRST_KEY}
        (folder / "jobs.py").write_text(JOBS)
        self._killed: dict[int, float] = {}
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        arguments = ("work", "jobs:work", "--lease", "--queue", "jobs", "--group", "workers", *options)
        with (self._folder / "said.txt").open("ab") as said:
            process = Program(
                command(*arguments, module="qdo.cli"),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=os.environ | self._environment,
                cwd=self._folder,
            )
        self.processes.append(process)
        return process

    def kill_one(self) -> None:
        """kill -9 one of them, and let another one come."""
        process = self._chance.choice(self.processes)
        process.kill()
        process.wait()
        self._killed[process.pid] = elapsed()
        self.processes.remove(process)
        self.start()

    def leave(self) -> list[int]:
        """SIGTERM to all of them: their exit codes."""
        leaving, self.processes = self.processes, []
        for process in leaving:
            process.terminate()
        return [process.wait(90) for process in leaving]

    def jobs(self) -> list[Job]:
        """All calls so far."""
        log = self._folder / "jobs.jsonl"
        told = list(_lines(log.read_text().splitlines())) if log.exists() else []
        ends = {(one["pid"], one["message"], one["delivery"]): one["at"] for one in told if one["what"] == "end"}
        found = []
        for one in told:
            if one["what"] == "begin":
                end = ends.get((one["pid"], one["message"], one["delivery"]))
                ended = self._killed.get(one["pid"], float("inf")) if end is None else end
                found.append(Job(one["message"], one["pid"], one["at"], ended, end is not None, one["failures"]))
        return found


def _lines(lines: Iterable[str]) -> Iterable[Mapping[str, Any]]:
    """A line that was cut by kill -9 is left out."""
    for line in lines:
        if line.startswith("{") and line.endswith("}"):
            yield json.loads(line)


def held_by_two(jobs: Sequence[Job]) -> list[str]:
    """Messages of which a job began before another one of the same message had ended."""
    by_message: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_message[job.message].append(job)
    return [
        message
        for message, found in by_message.items()
        if any(second.began < first.ended for first, second in pairwise(sorted(found, key=lambda job: job.began)))
    ]
