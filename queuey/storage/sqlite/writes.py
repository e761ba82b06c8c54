"""What waits for the committer: jobs, and the futures of their callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from queuey.errors import QueueyError
from queuey.future import Future
from queuey.storage.sqlite.transaction import Transaction

__all__ = ["Aside", "Group", "Job", "Later", "PutOff", "Write"]

Job = Callable[[Transaction], Any]


class Write(NamedTuple):
    """A job, and the future of its caller."""

    job: Job
    grows: bool
    future: Future[Any]
    size: int
    """Bytes to store, approximately."""
    only_reads: bool = False
    """It writes nothing to the file."""


class PutOff(NamedTuple):
    """What a job returns that has done nothing, since it lacks something."""

    begin: Callable[[Write], None]
    """Gets the job. It hands the job to :meth:`Committer.resubmit` when that is there."""


class Later:
    """What a job returns whose value is known only once all jobs of its group have run."""

    __slots__ = ("error", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.error: QueueyError | None = None


class Aside(NamedTuple):
    """Work outside of any transaction, and the future of its caller."""

    work: Callable[[], None]
    future: Future[None]


Group = list[Write]
