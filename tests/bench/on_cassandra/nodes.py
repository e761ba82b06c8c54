"""A cluster of its own for each topic, keyspaces on it, and the servers before it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.schema import make_tables
from queuey.storage.cassandra.session import CassandraSession
from tests.bench.measure import BenchFailed
from tests.bench.plan import Plan
from tests.bench.servers import ROOT, Server, cpu_seconds, queuey
from tests.support.services.cassandra import Cassandra

HEAP_MB = 1024
WARM_SECONDS = 5.0
MOST_WARMING = 60.0
"""The most, in times of a measurement: a node has not compiled everything that is often done by then, but nearly."""
COMPILING = 0.15
"""Of a processor: a node that spends less on compiling is as fast as one that has run for days."""
RESTING = 0.1
"""Of a processor: a node that spends less has written its tables and merged them."""
MOST_REST_SECONDS = 30.0


@dataclass
class Nodes:
    """A running cluster, made for this topic and gone after it."""

    service: Cassandra

    @property
    def hosts(self) -> str:
        return ",".join(self.service.contact_points)

    def options(self, keyspace: str, **changes: Any) -> Options:
        return Options(self.service.contact_points, self.service.port, keyspace, timeout_seconds=30.0, **changes)

    def keyspace(self, root: Path = ROOT) -> str:
        """A fresh one with Queuey's tables, a copy on each node.

        :param root: the tree whose tables it has.
        :raises BenchFailed: that tree could not make them.
        """
        name, copies = f"bench_{secrets.token_hex(4)}", str(len(self.service.nodes))
        if root == ROOT:
            make_tables(self.options(name), copies)
            return name
        command = [sys.executable, "-m", "queuey.cli", "init", "--replication", copies]
        made = subprocess.run(
            command, cwd=root, env=os.environ | self._where(name), capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise BenchFailed(f"queuey init ended with {made.returncode}: {made.stderr[-500:]}")
        return name

    def _where(self, keyspace: str) -> dict[str, str]:
        """What leads a server to a keyspace."""
        return {
            "QUEUEY_STORAGE_BACKEND": "cassandra",
            "QUEUEY_CASSANDRA_HOSTS": self.hosts,
            "QUEUEY_CASSANDRA_PORT": str(self.service.port),
            "QUEUEY_CASSANDRA_KEYSPACE": keyspace,
        }

    def cpu_seconds(self) -> float:
        """Processor time of all nodes."""
        return sum(cpu_seconds(node.pid) for node in self.service.nodes if node.pid is not None)

    def warm(self, seconds: float, *loads: Callable[[float], object]) -> None:
        """Carry out loads in turn until Java has compiled what they need.

        Compiling takes up to half of a processor in the first minute, and what is not compiled yet is several times
        slower. The simple side of a comparison is through it long before the other one.

        :param seconds: of a measurement.
        """
        until = time.monotonic() + MOST_WARMING * seconds
        while True:
            compiled = self._compiled()
            for load in loads:
                load(WARM_SECONDS)
            is_warm = self._compiled() - compiled < COMPILING * WARM_SECONDS * len(loads)
            if is_warm or time.monotonic() > until:
                return

    def rest(self) -> None:
        """Wait until the nodes have written and merged what they took, or for half a minute.

        What a run prepares must not be paid for by what it measures.
        """
        until = time.monotonic() + MOST_REST_SECONDS
        while time.monotonic() < until:
            began, used = time.monotonic(), self.cpu_seconds()
            time.sleep(1.0)
            if self.cpu_seconds() - used < RESTING * (time.monotonic() - began):
                return

    def _compiled(self) -> float:
        """Processor seconds that Java has compiled for."""
        pids = [node.pid for node in self.service.nodes if node.pid is not None]
        return sum(_compiler_seconds(pid, thread) for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir())

    @contextmanager
    def session(self, keyspace: str) -> Iterator[CassandraSession]:
        """The store's own connection, for what is to be there before a run."""
        session = CassandraSession(self.options(keyspace))
        try:
            yield session
        finally:
            session.close()

    @contextmanager
    def server(self, plan: Plan, keyspace: str, root: Path = ROOT) -> Iterator[Server]:
        """``queuey serve`` on this cluster, with nothing but its defaults.

        :param root: the tree that it is run from.
        """
        with queuey(plan.fresh("server"), self._where(keyspace), root=root) as server:
            yield server


def _compiler_seconds(pid: int, thread: Path) -> float:
    """Processor time of one thread, if it compiles; of a thread that has ended meanwhile, none."""
    try:
        name = (thread / "comm").read_text()
        return cpu_seconds(pid, int(thread.name)) if name.startswith(("C1 Compiler", "C2 Compiler")) else 0.0
    except OSError:
        return 0.0


@contextmanager
def cluster(plan: Plan, nodes: int = 1) -> Iterator[Nodes]:
    """Nodes with Java as production runs it, on the disk that is measured."""
    heap = HEAP_MB if nodes == 1 else HEAP_MB // 2
    plan.tell(f"starting {nodes} node{'s' if nodes > 1 else ''} of Cassandra")
    with Cassandra(plan.fresh("cassandra"), nodes, commitlog=plan.commitlog, heap_mb=heap, tuned=True) as service:
        yield Nodes(service)
