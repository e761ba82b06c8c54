"""An embedded store with lease groups, opened again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from queuey.clock import ManualClock
from queuey.future import LoopInbox
from queuey.ids import IdGenerator
from queuey.storage.contract.common import QueueLog
from queuey.storage.contract.lease_receiver import Receiver
from queuey.storage.sqlite import SqliteStores
from tests.support.sqlite_beside import beside
from tests.support.turning_loop import carry_in_turn


class Opened:
    """A store that is opened again and again. Its commits are carried by an event loop and by the thread in turn."""

    def __init__(self, path: Path, clock: ManualClock, inbox: LoopInbox) -> None:
        self.path, self.clock, self._inbox = path, clock, inbox
        self.stores = self._open()
        self.log = QueueLog(self.stores.messages, clock)

    def _open(self) -> SqliteStores:
        stores = SqliteStores(self.path, self.clock, IdGenerator(self.clock))
        carry_in_turn(stores, self._inbox)
        return stores

    def again(self) -> None:
        self.stores.close()
        self.stores = self._open()
        queue = self.log.queue
        self.log = QueueLog(self.stores.messages, self.clock)
        self.log.queue = queue

    def jobs(self, **settings: Any) -> Receiver:
        return Receiver(self.stores.leases, self.log, **settings)

    def rows(self, table: str) -> int:
        with beside(self.path) as connection:
            rows = connection.execute(f"select 1 from {table}")  # noqa: S608 - a table of ours
            return len(rows.fetchall())
