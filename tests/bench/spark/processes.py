"""What Spark's processes take: the JVM, and the Python workers below it."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

from pyspark.sql import SparkSession

_TICK = os.sysconf("SC_CLK_TCK")


def jvm_of(spark: SparkSession) -> int:
    """Its process id."""
    return int(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]


def below(pid: int) -> list[int]:
    """All processes that this one has started, and those that they have."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children[parent].append(int(stat.parent.name))
    found, ahead = [], [pid]
    while ahead:
        ahead += (born := children[ahead.pop()])
        found += born
    return found


def cpu_seconds_of(pid: int) -> float:
    """Processor time of a process and of all below it, those that have ended included."""
    return sum(map(_cpu_seconds, [pid, *below(pid)]))


def _cpu_seconds(pid: int) -> float:
    """With that of its children which have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, fields[11:15])) / _TICK


def peak_mib(pid: int) -> float:
    """The most memory that any process below this one has had, of those that live."""
    return max((_peak_mib(each) for each in below(pid)), default=0)


def _peak_mib(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0
