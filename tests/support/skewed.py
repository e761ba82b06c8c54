"""``queuey`` under a wall clock that a test steps, and with faults that a test plants.

``python -m tests.support.skewed OFFSET_FILE FAULT serve ...``: the clock is the machine's plus the ticks
that stand in the file. All else is the program as shipped, unless a fault is named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import queuey.service
from queuey.cli import main
from queuey.clock import SystemClock
from queuey.ids import IdGenerator
from queuey.model.lease_state import LeaseState
from queuey.service import tasks
from queuey.storage.sqlite.moments import Moments
from tests.support.planting import plant
from tests.support.wall_clock import Offset

UNLIMITED_SECONDS = 600.0


class SkewedClock(SystemClock):
    def __init__(self, offset: Offset) -> None:
        self._offset = offset

    def now_ticks(self) -> int:
        return super().now_ticks() + self._offset.ticks


class NaiveIds(IdGenerator):
    """Knows nothing of commits under way: its watermark is the last stamp, on disk or not."""

    def open_group(self) -> None:
        pass

    def close_group(self) -> None:
        pass


def _naive() -> None:
    queuey.service.IdGenerator = NaiveIds  # type: ignore[attr-defined]


def _forgetful() -> None:
    """A store that does not look how far time had got before its restart."""
    plant(Moments, "raise_floor", lambda _self: None)


def _unmeasured() -> None:
    """Appends to Cassandra may take as long as they like: nothing measures them, and the driver gives none of them up.

    ``write_budget_ms = 0`` alone leaves the driver's own time limit, which ends most of those that take too long.
    """
    from cassandra.cluster import Session

    from queuey.storage.cassandra.appending import CassandraAppender

    send = Session.execute_async

    def patient(session: Session, *what: Any, **how: Any) -> Any:
        if "timeout" in how:  # as the store gives it; what the driver asks for itself keeps its own
            how["timeout"] = UNLIMITED_SECONDS
        return send(session, *what, **how)

    plant(Session, "execute_async", patient)
    plant(CassandraAppender, "_is_late", lambda _self, _stamped: False)


def _hasty() -> None:
    """Whatever a lease group was handed counts as settled."""
    plant(LeaseState, "done_up_to", property(lambda state: state.frontier))


def _quick() -> None:
    """No fault: a task whose server has died goes on after a second in place of half a minute."""
    tasks._KEPT_SECONDS, tasks._RENEW_SECONDS, tasks._LOOK_SECONDS = 1.0, 0.3, 0.2


FAULTS: Mapping[str, Callable[[], None]] = {
    "none": lambda: None,
    "naive": _naive,
    "forgetful": _forgetful,
    "unmeasured": _unmeasured,
    "hasty": _hasty,
    "quick": _quick,
}


def program(offset: Offset, fault: str = "none") -> tuple[str, ...]:
    """What runs the command line in this way."""
    return sys.executable, "-m", "tests.support.skewed", str(offset.path), fault


if __name__ == "__main__":
    _, path, fault, *rest = sys.argv
    offset = Offset(Path(path))
    queuey.service.SystemClock = lambda: SkewedClock(offset)  # type: ignore[assignment, attr-defined]
    FAULTS[fault]()
    main(rest)
