"""A group on one machine: its members share a file, and need no ZooKeeper.

Each member writes now and then that it is alive. A member that is silent for its session timeout is dead, and whoever
changes the file next buries it.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from qdo.groups.assign import Partition
from qdo.groups.coordination import (
    TRUSTED_SHARE,
    Claim,
    CommittedOffset,
    Coordinator,
    Member,
    Plan,
    plan_from_text,
    plan_to_text,
)
from qdo.groups.local_file import GroupFile
from queuey.clock import Clock, SystemClock
from queuey.errors import CoordinatorUnavailable, SessionLost

__all__ = ["LocalCoordinator", "default_folder"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
"""Between two looks whether the file has changed."""


def default_folder() -> Path:
    """The folder for the groups of this user.

    It is ``QDO_STATE``, or one below ``XDG_STATE_HOME``.
    """
    named = os.environ.get("QDO_STATE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "qdo"


class LocalCoordinator(Coordinator):
    """One member's connection to the shared file.

    It looks 20 times a second for changes, which costs no disk access.

    A process that is stopped (SIGSTOP) in the middle of a change holds up the changes of all others until it goes on or
    dies.
    """

    def __init__(
        self,
        group: str,
        folder: Path | None = None,
        *,
        session_seconds: float = 10.0,
        clock: Clock | None = None,
        by_hand: bool = False,
    ) -> None:
        """:param group: its name. Groups of one file know nothing of each other.
        :param session_seconds: a member that is silent for longer is dead.
        :param by_hand: start no thread. The caller moves the clock and calls :meth:`beat` and :meth:`look`.
        :raises ConfigurationError: the folder or the file cannot be used.
        """
        self._group = group
        self._session_seconds = session_seconds
        self._clock = clock or SystemClock()
        self._by_hand = by_hand
        self._heard = 0.0
        self._seen = -1
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._file = GroupFile(group, folder or default_folder(), self._clock)

    # Members

    def join(self, about: Mapping[str, Any]) -> str:
        with self._file.lock:
            name = f"{about.get('name', 'worker')}-{uuid.uuid4().hex[:8]}"
            now = self._clock.elapsed()
            with self._file.changing():
                self._file.ask(
                    "INSERT INTO members (grp, name, about, boot, heard, timeout) VALUES (?, ?, ?, ?, ?, ?)",
                    *(self._group, name, json.dumps(dict(about)), self._clock.boot(), now, self._session_seconds),
                )
            self._file.name, self._heard = name, now
            if self._thread is None and not self._by_hand:
                self._thread = threading.Thread(
                    target=_keep_alive,
                    args=(self, self._clock, self._session_seconds, self._over),
                    name="local-coordinator",
                    daemon=True,
                )
                self._thread.start()
        return name

    def tell(self, about: Mapping[str, Any]) -> None:
        with self._file.changing(told=False):
            self._file.must_live()
            self._file.ask("UPDATE members SET about = ? WHERE name = ?", json.dumps(dict(about)), self._file.name)

    def leave(self) -> None:
        with self._file.lock:
            name, self._file.name = self._file.name, None
            if name is None:
                return
            try:
                with self._file.changing():
                    self._file.bury([name])
            except CoordinatorUnavailable:
                return  # the others bury it when its session is over

    def trusted(self) -> bool:
        return (
            self._file.name is not None and self._clock.elapsed() - self._heard < self._session_seconds * TRUSTED_SHARE
        )

    def beat(self) -> None:
        """Tell the others that this member is alive.

        :raises SessionLost: the others hold it for dead.
        """
        with self._file.lock:
            if self._file.name is None:
                return
            now = self._clock.elapsed()
            with self._file.changing(told=False):
                self._file.must_live()
                self._file.ask("UPDATE members SET heard = ? WHERE name = ?", now, self._file.name)
            self._heard = now

    def members(self) -> Sequence[Member]:
        with self._file.reading():
            now, boot = self._clock.elapsed(), self._clock.boot()
            rows = self._file.ask(
                "SELECT name, about, boot, heard, timeout FROM members WHERE grp = ? ORDER BY number", self._group
            )
            return [
                Member(name, json.loads(about))
                for name, about, its_boot, heard, timeout in rows
                if its_boot == boot and heard + timeout > now
            ]

    # The plan

    def plan(self) -> Plan:
        with self._file.reading():
            rows = self._file.ask("SELECT generation, plan FROM groups WHERE name = ?", self._group)
        return plan_from_text(*rows[0]) if rows else Plan()

    def propose(self, plan: Plan) -> bool:
        with self._file.changing():
            self._file.must_live()
            changed = self._file.ask(
                "UPDATE groups SET generation = ?, plan = ? WHERE name = ? AND generation = ? RETURNING 1",
                *(plan.generation, plan_to_text(plan), self._group, plan.generation - 1),
            )
        return bool(changed)

    # Claims and offsets

    def claim(self, partitions: Collection[Partition]) -> Mapping[Claim, CommittedOffset | None]:
        found: dict[Claim, CommittedOffset | None] = {}
        with self._file.changing():
            self._file.must_live()
            for partition in partitions:
                rows = self._file.ask(
                    "INSERT INTO claims (grp, part, generation, member) VALUES (?1, ?2, 1, ?3)"
                    " ON CONFLICT DO UPDATE SET member = ?3, generation = generation + (member IS NULL)"
                    " WHERE member IS NULL OR member = ?3 RETURNING generation, offset",
                    *(self._group, str(partition), self._file.name),
                )
                for generation, offset in rows:
                    found[Claim(partition, generation)] = None if offset is None else CommittedOffset.parse(offset)
        return found

    def release(self, claims: Collection[Claim]) -> None:
        with self._file.changing():
            for partition, _ in claims:  # whatever the generation: a reset may have raised it
                self._file.ask(
                    "UPDATE claims SET member = NULL WHERE grp = ? AND part = ? AND member = ?",
                    *(self._group, str(partition), self._file.name),
                )

    def commit(self, offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
        refused = []
        with self._file.changing(told=False):
            for claim, offset in offsets.items():
                changed = self._file.ask(
                    "UPDATE claims SET offset = ? WHERE grp = ? AND part = ? AND generation = ? AND member = ? RETURNING 1",
                    *(str(offset), self._group, str(claim.partition), claim.generation, self._file.name),
                )
                if not changed:
                    refused.append(claim)
        return refused

    def resets(self) -> int:
        with self._file.reading():
            return sum(count for (count,) in self._file.ask("SELECT count FROM resets WHERE grp = ?", self._group))

    def owners(self) -> Mapping[Partition, tuple[str, int]]:
        alive = {member.name for member in self.members()}
        with self._file.reading():
            rows = self._file.ask(
                "SELECT part, member, generation FROM claims WHERE grp = ? AND member NOT NULL", self._group
            )
            return {Partition.parse(part): (member, generation) for part, member, generation in rows if member in alive}

    def offsets(self) -> Mapping[Partition, CommittedOffset]:
        with self._file.reading():
            rows = self._file.ask("SELECT part, offset FROM claims WHERE grp = ? AND offset NOT NULL", self._group)
            return {Partition.parse(part): CommittedOffset.parse(offset) for part, offset in rows}

    def known(self) -> Collection[Partition]:
        with self._file.reading():
            return [
                Partition.parse(part)
                for (part,) in self._file.ask("SELECT part FROM claims WHERE grp = ?", self._group)
            ]

    def begin(self, offsets: Mapping[Partition, CommittedOffset]) -> Collection[Partition]:
        with self._file.changing():
            return [
                partition
                for partition, offset in offsets.items()
                if self._file.ask(
                    "INSERT INTO claims (grp, part, generation, offset) VALUES (?, ?, 1, ?) ON CONFLICT DO UPDATE"
                    " SET offset = excluded.offset WHERE offset IS NULL AND member IS NULL RETURNING 1",
                    *(self._group, str(partition), str(offset)),
                )
            ]

    def reset(self, offsets: Mapping[Partition, CommittedOffset | None]) -> None:
        with self._file.changing():
            self._file.ask(
                "INSERT INTO resets (grp, count) VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1", self._group
            )
            for partition, offset in offsets.items():
                self._file.ask(
                    "INSERT INTO claims (grp, part, generation, offset) VALUES (?, ?, 1, ?)"
                    " ON CONFLICT DO UPDATE SET generation = generation + 1, offset = excluded.offset",
                    *(self._group, str(partition), None if offset is None else str(offset)),
                )

    def close(self) -> None:
        self.leave()
        self._over.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._file.lock:
            self._file.close()

    def look(self) -> None:
        """Call ``changed`` if something has changed since the last look.

        A member that fell silent is a change, too.
        """
        with self._file.reading():
            if self._file.dead():
                try:
                    with self._file.changing():
                        pass
                except CoordinatorUnavailable:
                    return
            changes = sum(
                count for (count,) in self._file.ask("SELECT changes FROM groups WHERE name = ?", self._group)
            )
        if changes != self._seen:
            self._seen = changes
            self.changed()


def _keep_alive(coordinator: LocalCoordinator, clock: Clock, session_seconds: float, over: threading.Event) -> None:
    """Run the thread of a coordinator: beat, and look for changes."""
    elapsed, beat_seconds = clock.elapsed, session_seconds / 6
    next_beat = elapsed() + beat_seconds
    while not over.wait(LOOK_SECONDS):
        try:
            if elapsed() >= next_beat:
                next_beat = elapsed() + beat_seconds
                coordinator.beat()
            coordinator.look()
        except SessionLost:
            coordinator.changed()
        except CoordinatorUnavailable:
            continue  # trust runs out by itself
        except Exception:
            # If this thread ended, the others would hold this member for dead, and it would not know.
            log.exception("the groups' file cannot be looked at, and is looked at again")
