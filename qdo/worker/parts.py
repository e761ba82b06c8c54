"""What a worker is made of, and what its owner and its threads share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from qdo.client import Client
from qdo.groups.coordination import Claim, CommittedOffset, Coordinator
from qdo.worker.buffers import PartitionBuffer, Prefetched
from qdo.worker.fetching import Fetcher
from queuey.clock import Clock

__all__ = ["MakeBuffer", "WorkerParts"]


class MakeBuffer(Protocol):
    """Makes the buffer of a partition that is owned from now on."""

    def __call__(self, claim: Claim, offset: CommittedOffset | None, *, from_end: bool = False) -> PartitionBuffer:
        """:param from_end: without an offset the partition begins with messages to come."""


@dataclass(frozen=True)
class WorkerParts:
    """What a worker shares with its owner and its job threads."""

    coordinator: Coordinator
    make_client: Callable[[], Client]
    """Called once in each thread that talks to Queuey."""
    clock: Clock
    prefetched: Prefetched
    fetcher: Fetcher
    make_buffer: MakeBuffer
    term: Callable[[], int | None]
    """The term in which this member computes the group's plan; None while it does not."""
    wake: Callable[[], None]
    """Let the worker's main loop look again."""
