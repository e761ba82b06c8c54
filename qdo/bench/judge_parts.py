"""The judge of runs with very many producers: a part of them at a time, so that its memory does not grow with their number.

What is judged of a message depends on the other messages of its producer alone. So the rows are first written apart by
producer, in the order of time, and each part is judged by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory

from qdo.bench.judge import Findings, judged
from qdo.bench.records import RECEIVED, SENT, ReceivedRow, SentRow, Writer, read_received, read_sent
from qdo.bench.unsettled import Quiet
from qdo.bench.workload import Workload

PART = 50_000
"""Streams that are judged together, each as often as there are views: some 2 KB each."""
MOST_PARTS = 256
"""Each is two open files."""


def parts_of(workload: Workload) -> int:
    """The number of parts in which a run is judged."""
    return min(MOST_PARTS, 1 + (workload.producers * workload.views - 1) // PART)


def judged_by_parts(
    workload: Workload,
    sent: Iterable[SentRow],
    received: Iterable[ReceivedRow],
    folder: Path,
    quiet: Quiet | None = None,
) -> Findings:
    """As :func:`~qdo.bench.judge.judged`; the examples may be others.

    :param folder: for the rows, as many again as were read.
    """
    parts = parts_of(workload)
    if parts == 1:
        return judged(workload, sent, received, quiet)
    found = Findings()
    with TemporaryDirectory(prefix="parts-", dir=folder) as made:
        sent_parts = _apart(sent, Path(made), "sent", SENT, parts)
        received_parts = _apart(received, Path(made), "received", RECEIVED, parts)
        for one, other in zip(sent_parts, received_parts, strict=True):
            found.add(judged(workload, read_sent(one), read_received(other), quiet))
    return found


def _apart(rows: Iterable[SentRow | ReceivedRow], folder: Path, name: str, form: Struct, parts: int) -> Sequence[Path]:
    """A file for each part."""
    paths = [folder / f"{name}-{at:03}" for at in range(parts)]
    with ExitStack() as files:
        writers = [files.enter_context(Writer(path, form)) for path in paths]
        for row in rows:
            writers[row.stream % parts].write(row)
    return paths
