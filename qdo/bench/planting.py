"""Faults that are planted in what is written down: a judge that does not find them is not believed.

Each kind is planted once in a fixed number of messages, so that their number is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from qdo.bench.clock import SECOND
from qdo.bench.records import ReceivedRow
from qdo.bench.workload import Workload
from queuey.errors import ConfigurationError

Plant = Literal["lose", "dup", "swap", "overlap", "early", "overtake", "forget"]
PLANTS: tuple[str, ...] = get_args(Plant)
EVERY = 50

FIGURE_OF: dict[str, str] = {
    "lose": "lost",
    "dup": "duplicates",
    "swap": "out_of_order",
    "overlap": "overlaps",
    "early": "early",
    "overtake": "overtaken",
    "forget": "stranded",
}
"""What the judge calls it."""


def demand_plantable(workload: Workload, kind: Plant) -> None:
    """:raises ConfigurationError: what this workload does by itself would hide what is planted."""
    own = workload.queuey
    if kind == "overlap" and not workload.leases:
        raise ConfigurationError("--plant overlap needs a workload with leases: receiving.mode: receive")
    if kind == "overtake" and not (workload.leases and workload.keys):
        raise ConfigurationError("--plant overtake needs leases and keys: receiving.mode: receive, and keys")
    if kind == "forget" and not workload.leases:
        raise ConfigurationError("--plant forget needs a workload with leases: receiving.mode: receive")
    again = own.receiving.crash or own.receiving.holders or own.receiving.poison
    if kind != "early" and (again or own.faults.server or own.faults.network):
        raise ConfigurationError(
            f"--plant {kind} needs messages that come once: no receiving.crash, holders or poison, and no faults. "
            "--plant early goes with all"
        )


class Planting:
    """Between a receiver and its file."""

    def __init__(self, kind: Plant, write: Callable[[ReceivedRow], None], every: int = EVERY) -> None:
        """:param every: one in this number of receipts is falsified."""
        self._kind = kind
        self._write = write
        self._every = every
        self._count = 0
        self._kept: ReceivedRow | None = None
        self._behind: list[ReceivedRow] = []
        """What came after the row that is kept."""
        self.planted = 0

    def write(self, row: ReceivedRow) -> None:
        """Write what was received, or what is planted in its place."""
        if self._kept is not None:
            if self._kind == "overtake":
                self._overtake(self._kept, row)
            else:
                self._swap(row)
            return
        self._count += 1
        if self._count % self._every:
            self._write(row)
        elif self._kind in ("dup", "overlap") and 0 < row.held_until <= row.arrived:
            # Its lease may be over, which excuses another receipt: the next one is taken.
            self._count -= 1
            self._write(row)
        elif self._kind in ("swap", "overtake"):
            self._kept = row
        else:
            self.planted += 1
            for one in self._in_place_of(row):
                self._write(one)

    def end(self) -> None:
        """Write what was kept back."""
        for row in (self._kept, *self._behind):
            if row is not None:
                self._write(row)
        self._kept, self._behind = None, []

    def _swap(self, row: ReceivedRow) -> None:
        kept, self._kept = self._kept, None
        if kept is None or (kept.stream, kept.number + 1) != (row.stream, row.number):
            if kept is not None:
                self._write(kept)
            self._write(row)
            return
        self.planted += 1
        # Earlier than it was, the second one could come before its time, which is another fault.
        self._write(row)
        self._write(kept._replace(arrived=row.arrived))

    def _overtake(self, kept: ReceivedRow, row: ReceivedRow) -> None:
        """Keep it until a later message of its key comes within its lease: then it was not settled before."""
        self._count += 1
        self._behind.append(row)
        is_of_key = (kept.subscription, kept.stream, kept.key) == (row.subscription, row.stream, row.key)
        if row.arrived >= kept.held_until:
            self.end()
        elif is_of_key and row.number > kept.number and row.asked >= kept.arrived:
            self.planted += 1
            self._kept = kept._replace(settled=0, settling=0)
            self.end()

    def _in_place_of(self, row: ReceivedRow) -> list[ReceivedRow]:
        if self._kind == "lose":
            return []
        if self._kind == "dup":
            return [row, row]
        if self._kind == "forget":
            return [row._replace(settled=0, settling=0)]
        if self._kind == "overlap":
            other = row._replace(asked=row.arrived, held_until=row.held_until + 1)
            return [row._replace(settled=0, settling=0), other._replace(settled=0, settling=0)]
        return [row._replace(not_before=row.arrived + SECOND)]
