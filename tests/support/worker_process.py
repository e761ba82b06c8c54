"""A worker process for the fault tests: ``python -m tests.support.worker_process SETTINGS`` writes down all that it does.

What it does is one line of JSON each, appended to a file that many of them share: a line is one write, so it is there
whole or, where a kill -9 met the end of a page, cut; and it survives kill -9. Times are those since boot, the same in all processes.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from qdo import Client, Worker
from qdo.client.values import Message
from qdo.groups.coordination import Claim, CommittedOffset, Coordinator, Plan
from qdo.groups.hash_slots import is_slot, slot_of
from qdo.groups.local import LocalCoordinator
from qdo.groups.zookeeper import ZooKeeperCoordinator
from qdo.worker.buffers import PartitionBuffer
from qdo.worker.job import Context
from qdo.worker.owners import SlotOwner
from queuey.clock import SystemClock
from queuey.errors import CoordinatorUnavailable
from tests.support.member_work import member_of
from tests.support.members import end_session
from tests.support.planted_faults import FAULTS
from tests.support.wall_clock import Offset as WallOffset
from tests.support.wall_clock import skew

elapsed = SystemClock().elapsed
LATE_SECONDS = 0.2
"""Between two commits of a former owner."""


@dataclass(frozen=True)
class WorkerSettings:
    """What a test tells its workers; on the command line as JSON."""

    url: str
    key: str
    queues: str
    """A pattern."""
    folder: str
    """Of the log, and of what a local coordinator keeps."""
    zookeeper: str = ""
    """Where it is; empty for the local coordinator."""
    session_seconds: float = 2.0
    job_seconds: float = 0.005
    threads: int = 2
    at_most_once: bool = False
    slots: bool = False
    fault: str = "none"
    """One of :data:`tests.support.planted_faults.FAULTS`."""

    def wall(self, pid: int) -> WallOffset:
        """The wall clock of one worker."""
        return WallOffset(Path(self.folder) / f"wall-{pid}")

    @property
    def log(self) -> Path:
        return Path(self.folder) / "workers.jsonl"

    def coordinator(self) -> Coordinator:
        if self.zookeeper:
            return ZooKeeperCoordinator(self.zookeeper, "demo", "workers", session_seconds=self.session_seconds)
        return LocalCoordinator("workers", Path(self.folder), session_seconds=self.session_seconds)

    def argument(self) -> str:
        return json.dumps(asdict(self))


class WorkerProcess:
    """One worker, its job and its coordinator, all of which tell what they do."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self._log = os.open(settings.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._mine = threading.local()
        coordinator = settings.coordinator()
        tellers: dict[str, Callable[..., Any]] = {
            "trusted": self._trusted,
            "claim": self._claim,
            "release": self._release,
            "commit": self._commit,
            "propose": self._propose,
        }
        for name, telling in tellers.items():
            setattr(coordinator, name, partial(telling, getattr(coordinator, name)))
        self.worker = Worker(
            self._job,
            [settings.queues],
            coordinator,
            lambda: Client(settings.url, "demo", settings.key),
            threads=settings.threads,
            at_most_once=settings.at_most_once,
            slots=settings.slots,
        )
        member = member_of(self.worker)
        self._slots = member._owner if isinstance(member._owner, SlotOwner) else None
        if self._slots is not None:
            self._tell_of_queues(self._slots)
        self._tried: dict[Claim, CommittedOffset] = {}
        """What was last to be committed."""
        self._over: dict[Claim, CommittedOffset] = {}
        """The same, of claims that are somebody else's, or nobody's, by now."""
        self._coordinator = coordinator
        lost = member.lost
        member.lost = partial(self._lost, lost)  # type: ignore[method-assign]
        self.expiring = threading.Event()
        threading.Thread(target=self._misbehave, daemon=True).start()

    def _tell_of_queues(self, slots: SlotOwner) -> None:
        """A queue is claimed when it becomes active; again and again under the same claim, if its slot stays where it is."""
        make_buffer, told = slots.sweeper._make_buffer, set[Claim]()

        def making(claim: Claim, offset: CommittedOffset | None, *, from_end: bool = False) -> PartitionBuffer:
            if claim not in told and offset is not None:
                told.add(claim)
                self.tell("claim", began=elapsed(), at=elapsed(), **_named(claim), id=offset.message_id)
            return make_buffer(claim, offset, from_end=from_end)

        slots.sweeper._make_buffer = making
        setattr(slots, "record", partial(self._commit, slots.record))  # noqa: B010 - a method is replaced

    def tell(self, what: str, **said: Any) -> None:
        # A line begins with an end as well: one that was cut short does not take the next along.
        os.write(self._log, ("\n" + json.dumps({"what": what, "pid": os.getpid(), **said}) + "\n").encode())

    def _job(self, message: Message, context: Context) -> None:
        """It begins when the worker looked whether it may: a stop right after that look is a stop inside of the job."""
        job = {"part": f"{context.queue}:{context.partition}", "generation": context.generation, "id": message.id}
        self.tell("begin", at=self._mine.looked, **job)
        time.sleep(self.settings.job_seconds)
        self.tell("end", at=elapsed(), **job)

    def _trusted(self, trusted: Callable[[], bool]) -> bool:
        self._mine.looked = elapsed()
        return trusted()

    def _claim(
        self, claim: Callable[..., Mapping[Claim, CommittedOffset | None]], partitions: Collection[Any]
    ) -> Mapping[Claim, CommittedOffset | None]:
        began = elapsed()
        claims = claim(partitions)
        for one, offset in claims.items():
            self.tell("claim", began=began, at=elapsed(), **_named(one), id=offset and offset.message_id)
        return claims

    def _release(self, release: Callable[..., None], claims: Collection[Claim]) -> None:
        for one in claims:
            self.tell("release", at=elapsed(), **_named(one))
        release(claims)
        self._give_up(claims)

    def _lost(self, lost: Callable[..., None], claims: Collection[Claim]) -> None:
        lost(claims)
        self._give_up(claims)

    def _give_up(self, claims: Collection[Claim]) -> None:
        gone = {one.partition.number for one in claims if is_slot(one.partition)}
        self._over |= {
            one: offset
            for one, offset in list(self._tried.items())
            if one in claims or (not is_slot(one.partition) and slot_of(one.partition.queue) in gone)
        }

    def _commit(
        self, commit: Callable[..., Collection[Claim]], offsets: Mapping[Claim, CommittedOffset]
    ) -> Collection[Claim]:
        began = elapsed()
        self._tried |= offsets
        refused = commit(offsets)
        for one, offset in offsets.items():
            what = "refused" if one in refused else "commit"
            self.tell(what, began=began, at=elapsed(), **_named(one), id=offset.message_id)
        return refused

    def _propose(self, propose: Callable[[Plan], bool], plan: Plan) -> bool:
        """Tell also of a plan without an answer: it may be recorded, and a later plan of its generation takes its place."""
        done = True
        try:
            done = propose(plan)
        finally:
            if done:
                before = member_of(self.worker).group.plan
                named = {"before": _owned(before), "assignment": _owned(plan)}
                self.tell("plan", at=elapsed(), generation=plan.generation, **named)
        return done

    def _misbehave(self) -> None:
        """Commit again and again what it has no right to; and lose the session when told."""
        while True:
            with suppress(CoordinatorUnavailable):
                self._commit_late(dict(self._over))
            if self.expiring.wait(LATE_SECONDS):
                self.expiring.clear()
                assert isinstance(self._coordinator, ZooKeeperCoordinator)
                end_session(self.settings.zookeeper, self._coordinator)

    def _commit_late(self, offsets: Mapping[Claim, CommittedOffset]) -> None:
        queues = {one: at for one, at in offsets.items() if self._slots and not is_slot(one.partition)}
        rest = {one: at for one, at in offsets.items() if one not in queues}
        if rest:
            self._coordinator.commit(rest)
        if queues and self._slots:
            self._slots.record(queues)


def _owned(plan: Plan) -> dict[str, list[str]]:
    return {name: [str(part) for part in owned] for name, owned in plan.assignment.items()}


def _named(claim: Claim) -> dict[str, Any]:
    return {"part": str(claim.partition), "generation": claim.generation}


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    told = {signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, told)  # until it can heed them: connecting may take long
    settings = WorkerSettings(**json.loads(sys.argv[1]))
    skew(settings.wall(os.getpid()))
    FAULTS[settings.fault]()
    process = WorkerProcess(settings)
    signal.signal(signal.SIGUSR1, lambda *_: process.expiring.set())
    signal.signal(signal.SIGTERM, lambda *_: process.worker.stop())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, told)
    process.worker.run()


if __name__ == "__main__":
    main()
