"""A relay that is killed after it has appended, and before it deletes: ``python -m tests.support.dying_relay DATABASE``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from sqlalchemy import create_engine

from qdo.adapters.outbox import OutboxRelay
from qdo.adapters.outbox.sqlalchemy import SqlOutbox, SqlRows
from qdo.client import Client


class DyingRows(SqlRows):
    """The process that deletes a row ends at once."""

    def delete(self, ids: Sequence[int]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    rows = DyingRows(SqlOutbox().table, create_engine(sys.argv[1]))
    OutboxRelay(rows, Client()).send_waiting()
