"""The cell 'lost at power cut' of Queuey on Cassandra: the node has its data on the disk whose power is cut.

The harness itself starts no Cassandra. This starts a node and a server in one folder, so both lose what they had not synced.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from qdo.bench.promises import Trial, TrialResult
from qdo.bench.promises.power import lost_at_power_cut
from qdo.bench.promises.table import ROWS
from qdo.bench.systems import EndedAtStart, StartedSystem
from qdo.bench.systems.server import ServerOnCassandra
from tests.bench.plan import Plan
from tests.support.services.cassandra import Cassandra
from tests.support.services.guard import held
from tests.support.services.service import NotUp

__all__ = ["POWERED", "cut"]

POWERED = ("cassandra-exact", "cassandra-weak")
"""Rows of the table."""


class ServerAndNode(ServerOnCassandra):
    """A server and the node of Cassandra behind it, which die together."""

    keeps_queues = False
    data_elsewhere = False
    option_names: ClassVar[Mapping[str, str]] = {
        **ServerOnCassandra.option_names,
        "commitlog": "when the node's log is synced",
    }

    def __init__(self, folder: Path, given: Mapping[str, str]) -> None:
        """:param given: ``commitlog``, as of :class:`Cassandra`."""
        self._cluster = Cassandra(folder / "nodes", commitlog=given["commitlog"])  # type: ignore[arg-type]
        super().__init__(folder, {**given, "hosts": f"{self._cluster.contact_points[0]}:{self._cluster.port}"})

    def furnish(self) -> None:
        self._cluster.start()
        super().furnish()

    def start(self) -> None:
        try:
            self._cluster.start()
        except NotUp as error:
            raise EndedAtStart(f"the node ended, and said: {_refusal_in(error)}") from error
        super().start()

    def stop(self) -> None:
        super().stop()
        self._cluster.kill()

    def kill(self) -> None:
        super().kill()
        self._cluster.kill()


def _refusal_in(error: NotUp) -> str:
    """What the node's log gives as the reason of its end."""
    lines = str(error).splitlines()
    return next((line.partition("Exception: ")[2] for line in reversed(lines) if "Exception: " in line), lines[-1])


@dataclass(frozen=True)
class PoweredTrial(Trial):
    """One of the rows, with a node of its own."""

    @property
    def system_type(self) -> type[StartedSystem]:
        return ServerAndNode


def cut(plan: Plan, row: str) -> TrialResult:
    """What a row of :data:`POWERED` loses.

    :raises NotHere: this machine has no disk that loses data.
    """
    folder = plan.fresh("power")
    with held(folder), ExitStack() as left:  # not on the disk: what guards the folder outlives a cut
        left.callback(shutil.rmtree, folder, ignore_errors=True)
        return lost_at_power_cut(PoweredTrial(ROWS[row], {"commitlog": plan.commitlog}, folder))
