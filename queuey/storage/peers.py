"""Servers of one store hear of each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from queuey.future import Future
from queuey.model import PartitionId

__all__ = ["AppendNotice", "NodeState", "Peers", "ServerBeat"]


class AppendNotice(NamedTuple):
    """Where one server stored messages, for the other servers."""

    partitions: Sequence[PartitionId] | None
    """Partitions with new messages; None stands for any."""
    newest_ticks: int
    """When the last of them was acknowledged."""


class ServerBeat(NamedTuple):
    """A sign of life of a server."""

    name: str
    """Its machine and process."""
    version: str
    began: float
    """Seconds since 1970, as are all times here."""
    seen: float
    """When it gave this sign, by its own clock."""


class NodeState(NamedTuple):
    """A node of the store's cluster, as this server sees it."""

    address: str
    data_centre: str
    rack: str
    version: str
    state: str
    """``up``, ``down``, or ``unknown`` without a connection to it."""


class Peers(ABC):
    """How the servers of one store notify each other of new messages, and that they live."""

    @abstractmethod
    def publish(self, notice: AppendNotice) -> Future[None]:
        """Publish a notice to all servers, this one included."""

    @abstractmethod
    def poll(self) -> Future[Sequence[AppendNotice]]:
        """Notices that other servers published since the last call; some may come twice."""

    @abstractmethod
    def beat(self, beat: ServerBeat) -> Future[None]:
        """Give a sign of life. It is forgotten after a minute."""

    @abstractmethod
    def servers(self) -> Future[Sequence[ServerBeat]]:
        """The last sign of each server of the last minute, this one included, by name."""
