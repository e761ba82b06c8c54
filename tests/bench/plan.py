"""How long and how large a run is, and on what machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from time import perf_counter

from queuey.interpreter import how_built
from tests.support.services.cassandra import Commitlog

CONNECTIONS = 32
PAGE = 100
BATCH = 100
BODY_BYTES = 256
BODY = ("All work and no play makes Jack a dull boy. " * 6)[:BODY_BYTES]
PARTITIONS = 4
TTL_SECONDS = 86_400


@dataclass(frozen=True)
class Plan:
    """What every topic gets."""

    folder: Path
    """On the disk that is to be measured: not a tmpfs."""
    seconds: float
    """Of each measurement."""
    rounds: int
    """How often baseline and subject are measured, in turn."""
    queues: int
    stored: int
    """Messages of the large store."""
    rows: int
    """Messages of the queue that readers read."""
    appended: int
    """Messages appended before memory is looked at again."""
    consumed: int
    """Messages read and deleted before the head is read."""
    tell: Callable[[str], None]
    deliveries: int = 10_000_000
    """Messages whose delivery is reported on, or that were received before."""
    written: int = 100_000
    """Messages whose bytes of state are counted."""
    commitlog: Commitlog = "periodic"
    """How the nodes of Cassandra write theirs."""

    def fresh(self, name: str) -> Path:
        """A folder of its own."""
        return Path(mkdtemp(prefix=f"{name}-", dir=self.folder))


FULL = {
    "queues": 1_000_000,
    "stored": 5_000_000,
    "rows": 200_000,
    "appended": 1_000_000,
    "consumed": 1_000_000,
    "deliveries": 10_000_000,
    "written": 100_000,
}
QUICK = {
    "queues": 50_000,
    "stored": 500_000,
    "rows": 50_000,
    "appended": 100_000,
    "consumed": 50_000,
    "deliveries": 500_000,
    "written": 20_000,
}


def machine(folder: Path) -> str:
    """What the figures depend on beside the program."""
    import apsw

    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()} {how_built()}, "
        f"SQLite {apsw.sqlite_lib_version()}, a flush to disk takes {_flush_ms(folder):.2f} ms, "
        f"load {os.getloadavg()[0]:.1f} at the start"
    )


def _flush_ms(folder: Path) -> float:
    """Median time of an fdatasync after 4 KiB."""
    path = folder / "flush"
    took = []
    with path.open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            began = perf_counter()
            os.fdatasync(file.fileno())
            took.append(perf_counter() - began)
    path.unlink()
    return median(took) * 1000
