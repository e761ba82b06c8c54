"""What the book of lease groups needs of a store, and what they pass between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from queuey.ids import MessageId
from queuey.model import Appended, AppendRequest, Columns, Location, Message, Page, PartitionId, Queue, ReadRequest
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import Received
from queuey.model.lease_rules import Share
from queuey.storage.leasing.changes import ChangesAccess

__all__ = ["PICKS_ALONE", "LeaseAccess", "Picking", "ReadAhead", "StoredAttempt", "partition_key"]


class StoredAttempt(NamedTuple):
    """An attempt that was answered."""

    digest: bytes
    answer: bytes


class Picking(Protocol):
    """What a server goes by that hands out messages beside others, without asking them."""

    def k(self, partition: int) -> int:
        """K of a group whose K is automatic."""

    def share(self, partition: int) -> Share | None:
        """This server's share of the messages; None if no other server hands them out."""

    def note_shared(self, partition: int, received: Received) -> None:
        """Note the outcome of a receive by a share."""

    def is_left(self, partition: int) -> bool:
        """Whether another server hands out the messages of a partition, so that this one looks elsewhere first."""


class _PicksAlone:
    """There are no other servers, or a transaction fails that meets theirs."""

    def k(self, partition: int) -> int:
        return 1

    def share(self, partition: int) -> Share | None:
        return None

    def note_shared(self, partition: int, received: Received) -> None:
        """There are no shares."""

    def is_left(self, partition: int) -> bool:
        return False


PICKS_ALONE: Picking = _PicksAlone()


class LeaseAccess(ChangesAccess, Protocol):
    """What the book needs of a store, inside one of its transactions."""

    watermark: int
    now_ticks: int
    """The wall clock, for expiry."""
    passed_over: int
    """What the transaction has passed over, see :mod:`queuey.storage.leasing.passing`; it begins at 0."""
    picking: Picking

    def group(self, queue: UUID, name: str) -> LeaseGroup | None:
        """A group as stored."""

    def make_group(self, queue: UUID, name: str, group: LeaseGroup) -> None:
        """Store a new group."""

    def changes(self, token: int, partition: int) -> Iterable[tuple[int, bytes]]:
        """The stored changes of a group's state, in order, each with its number."""

    def attempt(self, queue: UUID, name: str, key: str, now: int) -> StoredAttempt | None:
        """An attempt that has not expired."""

    def keep_attempt(self, queue: UUID, name: str, key: str, attempt: StoredAttempt, expires: int) -> None:
        """Remember an attempt."""

    def append(self, requests: Sequence[AppendRequest]) -> list[Appended]:
        """Append the messages of all these requests, or of none."""

    def read(self, request: ReadRequest) -> Page:
        """A page, as :meth:`queuey.storage.MessageStore.read` gives it."""

    def appended(self, place: PartitionId, after: MessageId, most: int) -> Sequence[Message]:
        """The next messages behind an id that the transaction itself adds to a partition, none of them scheduled.

        If there may be others among them, there are none. :meth:`read` does not give them.
        """

    def fetch(self, queue: Queue, wanted: Sequence[Location]) -> Sequence[Message | None]:
        """Messages by location."""


class ReadAhead(NamedTuple):
    """Messages of one partition that were read."""

    since: MessageId
    upto: MessageId
    messages: Columns
    """All of them behind ``since`` and up to ``upto``."""


def partition_key(place: PartitionId) -> bytes:
    """Names a partition among those of all queues."""
    return place.queue.bytes + place.number.to_bytes(1, "big")
