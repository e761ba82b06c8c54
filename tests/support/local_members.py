"""A group of one machine, whose members share a file and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw

from qdo.groups.coordination import Coordinator
from qdo.groups.local import LocalCoordinator
from queuey.clock import ManualClock
from queuey.errors import SessionLost
from tests.support.members import SESSION_SECONDS, Member, MemberGroup


class LocalGroup(MemberGroup):
    """Time is moved by hand, and only by :meth:`end_session` and :meth:`pass_unheard`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.clock = ManualClock()
        self._made_local: list[LocalCoordinator] = []

    def make(self) -> LocalCoordinator:
        made = LocalCoordinator(self.name, self.folder, session_seconds=SESSION_SECONDS, clock=self.clock, by_hand=True)
        self._made_local.append(made)
        return made

    def everything(self) -> object:
        path = self.folder / "groups.db"
        if not path.exists():
            return []
        with closing(apsw.Connection(str(path))) as connection:
            asked = (
                "SELECT name FROM groups WHERE name = ?",
                "SELECT grp FROM members WHERE grp = ?",
                "SELECT grp FROM claims WHERE grp = ?",
                "SELECT grp FROM resets WHERE grp = ?",
            )
            return [row for sql in asked for row in connection.execute(sql, (self.name,))]

    def end_session(self, member: Member) -> None:
        self.fall_silent(member.coordinator)

    def fall_silent(self, coordinator: Coordinator) -> None:
        """All others say that they are alive."""
        for _ in range(4):
            self.clock.advance(SESSION_SECONDS / 3)
            self._beat(but=coordinator)

    def pass_unheard(self, coordinator: Coordinator, seconds: float) -> None:
        self.clock.advance(seconds)

    def until(self, look: Callable[[], object]) -> None:
        self._beat()
        for made in self._made_local:
            made.look()
        assert look()

    def _beat(self, but: Coordinator | None = None) -> None:
        for made in self._made_local:
            if made is not but:
                try:
                    made.beat()
                except SessionLost:
                    continue  # it has left, or is dead: its own look will tell it
