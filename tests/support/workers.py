"""Worker processes on one queue, at a test's mercy; a feeder, a watcher, and what became of it all (G14, G15, G16)."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from qdo.client import Client
from qdo.groups.assign import Partition
from qdo.groups.coordination import CommittedOffset, Coordinator
from qdo.groups.hash_slots import SLOTS
from queuey.clock import SystemClock
from queuey.errors import CoordinatorUnavailable
from queuey.ids import MessageId
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.loaded import Program
from tests.support.member_log import MemberLog, Stop
from tests.support.node import busy
from tests.support.servers import FIRST_KEY, RunningServer, eventually
from tests.support.worker_process import WorkerSettings

elapsed = SystemClock().elapsed
FEED_SECONDS = 0.02
"""Between two appends, each of a few messages: less than what the workers can do."""
FED_AT_ONCE = 8
SMALL_QUEUES = 60
IDLE_SECONDS = 0.5
MOVE_SECONDS = 60.0
"""A deadline: after a join or a leave each partition has an owner within 10 s, after a death within the session more (G15),
unless something else keeps the machine busy. What it took is among the figures."""

START_SECONDS = 120.0
"""A busy machine may take as long to begin a process."""


@dataclass
class Watcher:
    """Looks at the offsets from outside, again and again: none may fall."""

    coordinator: Coordinator
    last: dict[Partition, CommittedOffset] = field(default_factory=dict)
    looks: int = 0
    regressions: list[str] = field(default_factory=list)

    def step(self) -> None:
        with suppress(CoordinatorUnavailable):
            self.look(self.coordinator.offsets())
        time.sleep(FEED_SECONDS)

    def look(self, offsets: Mapping[Partition, CommittedOffset]) -> None:
        self.looks += 1
        for part, before in self.last.items():
            if part not in offsets or offsets[part] < before:
                self.regressions.append(f"{part}: {before}, then {offsets.get(part)}")
        self.last.update(offsets)


class Verdict(NamedTuple):
    """The figures of the three guarantees."""

    g14: Mapping[str, int]
    g15: Mapping[str, float]
    g16: Mapping[str, int]

    def say(self, figures: Figures, what: str) -> None:
        figures("G14", workers=what, **self.g14)
        figures("G15", workers=what, **self.g15)
        figures("G16", workers=what, **self.g16)

    def check(self) -> None:
        assert (self.g14["accepted"], self.g14["regressions"]) == (0, 0)
        assert (self.g15["overlaps"], self.g15["stuck"]) == (0, 0)
        assert (self.g16["lost"], self.g16["out_of_order"]) == (0, 0)
        assert self.g15["moved"] == self.g15["least_possible"]
        assert self.g14["takeovers"]
        assert self.g14["stale_commits_tried"]
        assert self.g16["jobs"]


class Workers:
    """A context manager that leaves no process behind."""

    queues = "q"
    """The pattern that hands work on."""

    def __init__(
        self, running: RunningServer, folder: Path, chance: random.Random, *, partitions: int = 8, **given: Any
    ) -> None:
        """:param partitions: what the workers divide.
        :param given: further settings of the workers.
        """
        self.settings = WorkerSettings(running.url, FIRST_KEY, self.queues, str(folder), **given)
        self.chance = chance
        self.processes: list[subprocess.Popen[bytes]] = []
        self.stops: list[Stop] = []
        self.kills = 0
        self.stuck = 0
        self.forgiven: tuple[type[Exception], ...] = ()
        """What may happen to the feeding process: what it did then may be stored, or not."""
        self._running = ExitStack()
        self._client = self._running.enter_context(Client(running.url, "demo", FIRST_KEY))
        self._feeding = self._running.enter_context(Client(running.url, "demo", FIRST_KEY))
        self.partitions = partitions
        self._make_queues()
        self.outside = self.settings.coordinator()
        self.watcher = Watcher(self.outside)

    def __enter__(self) -> Self:
        self._running.callback(self.outside.close)
        self._running.callback(self._kill_all)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @contextmanager
    def at_work(self, figures: Figures, what: str) -> Iterator[None]:
        """Three of them under load while the block runs; then all is finished, told as ``what``, and judged."""
        self.start(3)
        with self.under_load():
            self.wait_until_owned()
            yield
        verdict = self.finish()
        verdict.say(figures, what)
        verdict.check()

    # What may be done to them

    def start(self, count: int = 1) -> None:
        with (Path(self.settings.folder) / "said.txt").open("ab") as said:
            for _ in range(count):
                command = [sys.executable, "-m", "tests.support.worker_process", self.settings.argument()]
                self.processes.append(Program(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL))

    def kill(self) -> None:
        """kill -9."""
        process = self._one()
        began = elapsed()
        process.kill()
        process.wait()
        self.processes.remove(process)
        self.stops.append(Stop(process.pid, began))
        self.kills += 1

    def leave(self, count: int) -> None:
        """SIGTERM to the oldest workers; they end in order, and say so by their exit codes."""
        leaving, self.processes = self.processes[:count], self.processes[count:]
        for process in leaving:
            process.terminate()
        assert [process.wait(60) for process in leaving] == [0] * count

    def lose_one(self) -> None:
        """One dies and another one comes; then one is gone for a while."""
        self.kill()
        self.start()
        self.wait_until_owned()
        with self.one_stopped():
            self.wait_until_owned(without=1)
        self.wait_until_owned()

    def relieve(self) -> None:
        """One more joins; and the one that is here longest leaves, once a former owner was refused."""
        self.start()
        self.wait_until_owned()
        self.wait_until_refused()
        self.leave(1)
        self.wait_until_owned()

    def storm(self) -> None:
        """As many join as are here, and those leave, none of them waiting for the others."""
        count = len(self.processes)
        for _ in range(count):
            self.start()
            self.leave(1)

    @contextmanager
    def one_stopped(self) -> Iterator[None]:
        """SIGSTOP: neither dead nor alive while the block runs. Not in the middle of a write to the file of a local group."""
        process, began = self._one(), elapsed()
        process.send_signal(signal.SIGSTOP)
        while _is_writing(process.pid):
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)
            self.stops.append(Stop(process.pid, began, elapsed()))

    def grow(self) -> None:
        """The queue gets more partitions."""
        self.partitions += 2
        self._client.create_queue("q", partitions=self.partitions)

    def expire(self) -> None:
        """ZooKeeper ends a session that is in use: until its owner hears of it, it trusts what is no longer so."""
        process, began = self._one(), elapsed()
        process.send_signal(signal.SIGUSR1)
        self.stops.append(Stop(process.pid, began, began + 2 * self.settings.session_seconds))

    def step_clock(self, seconds: float) -> None:
        """The wall clock of one of them is set; may be negative."""
        self.settings.wall(self._one().pid).step(seconds)

    def wait_until_idle(self) -> None:
        """Until nobody begins anything any more."""
        eventually(lambda: elapsed() - max(job.began for job in self.log().jobs) > IDLE_SECONDS, seconds=90)

    def wait_until_refused(self) -> None:
        """Until a former owner has tried what it may not: a run without that proves nothing."""
        eventually(lambda: self.log().refused, seconds=90)

    def _one(self) -> subprocess.Popen[bytes]:
        return self.chance.choice(self.processes)

    def _kill_all(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    # What they do

    @contextmanager
    def under_load(self) -> Iterator[None]:
        with busy(self._feed, self.watcher.step):
            yield

    def _make_queues(self) -> None:
        self._client.create_queue("q", partitions=self.partitions)

    def _feed(self) -> None:
        with suppress(*self.forgiven):
            self._feeding.append_batch(self._fed(), [b"x"] * FED_AT_ONCE)
        time.sleep(FEED_SECONDS)

    def _fed(self) -> str:
        return "q"

    def log(self) -> MemberLog:
        return MemberLog.read(self.settings.log)

    def wait_until_owned(self, without: int = 0) -> None:
        """Until each partition has an owner among the living, each of them has some, and all work.

        :param without: this number of them are not seen.
        """
        seconds, count = MOVE_SECONDS + self.settings.session_seconds, len(self.processes) - without
        try:
            eventually(lambda: self._are_here(count), seconds=seconds if without else START_SECONDS)
            eventually(lambda: self._all_owned(count), seconds=seconds)
            before = dict(self.watcher.last)
            eventually(lambda: self._all_went_on(before), seconds=seconds)
        except AssertionError:
            self.stuck += 1

    def _are_here(self, count: int) -> bool:
        with suppress(CoordinatorUnavailable):
            return len(self.outside.members()) == count
        return False

    def _all_owned(self, count: int) -> bool:
        try:
            owners, members = self.outside.owners(), {member.name for member in self.outside.members()}
        except CoordinatorUnavailable:
            return False
        return (
            len(members) == count
            and len(owners) == self.partitions
            and {name for name, _ in owners.values()} == members
        )

    def _all_went_on(self, before: Mapping[Partition, CommittedOffset]) -> bool:
        last = self.watcher.last
        return len(last) == self.partitions and all(last[part] != before.get(part) for part in last)

    def finish(self) -> Verdict:
        """Have them do the rest, and end; then judge."""
        stored: dict[str, list[MessageId]] = {}
        for queue in [found.name for found in self._client.queues()]:
            for message in everything(self._client, queue):
                stored.setdefault(f"{queue}:{message.partition}", []).append(message.id)
        lasts = {part: ids[-1] for part, ids in stored.items()}
        eventually(lambda: self._reached() == lasts, seconds=180)
        self.watcher.look(self.outside.offsets())
        self.leave(len(self.processes))
        return self._judge({part: sorted(ids) for part, ids in stored.items()})

    def _reached(self) -> dict[str, MessageId]:
        try:
            return {str(part): offset.message_id for part, offset in self.outside.offsets().items()}
        except CoordinatorUnavailable:
            return {}

    def _judge(self, stored: Mapping[str, Sequence[MessageId]]) -> Verdict:
        log = self.log()
        moved, least = log.moves()
        repeated = log.repeated()
        killed = [stop.pid for stop in self.stops if stop.ended == float("inf")]
        return Verdict(
            {
                "takeovers": log.takeovers(),
                "stale_commits_tried": len(log.refused),
                "accepted": len(log.accepted_stale()),
                "regressions": len(self.watcher.regressions) + len(log.fallen()),
            },
            {
                "overlaps": len(log.overlaps(self.stops, self.settings.session_seconds / 3)),
                "unowned_max_s": log.unowned_seconds(self.stops),
                "moved": moved,
                "least_possible": least,
                "stuck": self.stuck,
            },
            {
                "jobs": len(log.jobs),
                "lost": len(log.lost(stored)),
                "repeated": repeated.total(),
                "repeated_max_per_kill": max((repeated[pid] for pid in killed), default=0),
                "out_of_order": len(log.out_of_order(stored)),
            },
        )


class SlotWorkers(Workers):
    """On many small queues, which they divide by slots."""

    queues = "small-*"

    def __init__(self, running: RunningServer, folder: Path, chance: random.Random, **given: Any) -> None:
        super().__init__(running, folder, chance, partitions=SLOTS, slots=True, **given)

    def _make_queues(self) -> None:
        self._names = [f"small-{number}" for number in range(SMALL_QUEUES)]
        for number, name in enumerate(self._names):
            self._client.create_queue(name, partitions=number % 2 + 1)

    def _fed(self) -> str:
        return self.chance.choice(self._names)

    def grow(self) -> None:
        """Some get more partitions, and new ones come."""
        for name in self.chance.sample(self._names, 5):
            self._client.create_queue(name, partitions=3)
        new = f"small-new-{len(self._names)}"
        self._client.create_queue(new)
        self._names.append(new)

    def _reached(self) -> dict[str, MessageId]:
        return {
            f"{name}:{each.partition}": each.id
            for name in self._names
            for each in self._client.offsets(name, "default")
            if each.id is not None
        }


def _is_writing(pid: int) -> bool:
    """Whether it holds a lock for writing once it has stopped: then no member of the same machine can write until it goes on."""
    eventually(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    return any(line.split()[3:5] == ["WRITE", str(pid)] for line in Path("/proc/locks").read_text().splitlines())
