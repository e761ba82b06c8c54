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

Plant = Literal["lose", "dup", "swap", "overlap", "early"]
PLANTS: tuple[str, ...] = get_args(Plant)
EVERY = 50

FIGURE_OF: dict[str, str] = {
    "lose": "lost",
    "dup": "duplicates",
    "swap": "out_of_order",
    "overlap": "overlaps",
    "early": "early",
}
"""What the judge calls it."""


def demand_plantable(workload: Workload, kind: Plant) -> None:
    """:raises ConfigurationError: what this workload does by itself would hide what is planted."""
    own = workload.queuey
    if kind == "overlap" and not workload.leases:
        raise ConfigurationError("--plant overlap needs a workload with leases: receiving.mode: receive")
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
        self.planted = 0

    def write(self, row: ReceivedRow) -> None:
        """Write what was received, or what is planted in its place."""
        if self._kept is not None:
            self._swap(row)
            return
        self._count += 1
        if self._count % self._every:
            self._write(row)
        elif self._kind in ("dup", "overlap") and 0 < row.held_until <= row.arrived:
            # Its lease may be over, which excuses another receipt: the next one is taken.
            self._count -= 1
            self._write(row)
        elif self._kind == "swap":
            self._kept = row
        else:
            self.planted += 1
            for one in self._in_place_of(row):
                self._write(one)

    def end(self) -> None:
        """Write what was kept back."""
        if self._kept is not None:
            self._write(self._kept)
            self._kept = None

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

    def _in_place_of(self, row: ReceivedRow) -> list[ReceivedRow]:
        if self._kind == "lose":
            return []
        if self._kind == "dup":
            return [row, row]
        if self._kind == "overlap":
            other = row._replace(asked=row.arrived, held_until=row.held_until + 1)
            return [row._replace(settled=0), other._replace(settled=0)]
        return [row._replace(not_before=row.arrived + SECOND)]
