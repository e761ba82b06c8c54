"""Members of one group, as tests want them: joined, dead without knowing it, or away for a while."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import count
from typing import Self, TypeVar
from uuid import uuid4

from kazoo.client import KazooClient

from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset, Coordinator
from qdo.groups.zookeeper import ZooKeeperCoordinator
from queuey.errors import CoordinatorUnavailable, SessionLost
from queuey.ids import MessageId, tail_from_low

T = TypeVar("T")
SESSION_SECONDS = 4.0
INCARNATION = "0" * 31 + "1"
START = 139_000_000_000_000_000


def parts(*numbers: int, queue: str = "q") -> list[Partition]:
    return [Partition(queue, number) for number in numbers]


def place(number: int, incarnation: str = INCARNATION) -> CommittedOffset:
    """Offsets in their order."""
    return CommittedOffset(incarnation, MessageId(START + number, tail_from_low(0b10 << 62)))


class Member:
    """A coordinator that has joined, and how often it was told of changes."""

    def __init__(self, coordinator: Coordinator, about: str) -> None:
        self.coordinator = coordinator
        self.told = 0
        coordinator.changed = self._tell
        self.name = coordinator.join({"name": about})

    def _tell(self) -> None:
        self.told += 1

    def claim(self, *partitions: Partition) -> dict[Partition, Claim]:
        """Those that it got."""
        return {claim.partition: claim for claim in self.coordinator.claim(partitions)}

    def claim_one(self, partition: Partition) -> Claim:
        return self.claim(partition)[partition]

    def is_lost(self) -> bool:
        """Whether it knows that the others hold it for dead; it asks them."""
        try:
            self.coordinator.claim([])
        except SessionLost:
            return True
        except CoordinatorUnavailable:
            pass
        return False

    def commit(self, claim: Claim, offset: CommittedOffset) -> bool:
        """Whether it was recorded."""
        return self.coordinator.commit({claim: offset}) == []


class MemberGroup(ABC):
    """A group of one kind of coordinator."""

    def __init__(self) -> None:
        self.name = f"g{uuid4().hex}"
        self._made: list[Coordinator] = []
        self._names = count(1)
        self._incarnations: dict[str, str] = {}

    def coordinator(self) -> Coordinator:
        """Another one for the same group; it has not joined."""
        made = self.make()
        self._made.append(made)
        return made

    def member(self) -> Member:
        return Member(self.coordinator(), f"m{next(self._names)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        for made in self._made:
            made.close()

    def again(self, call: Callable[[], T]) -> T:
        """Its result, as soon as the coordinator is not unavailable."""
        found: list[T] = []

        def look() -> bool:
            with suppress(CoordinatorUnavailable):
                found.append(call())
            return bool(found)

        self.until(look)
        return found[0]

    def place(self, number: int, queue: str = "q") -> CommittedOffset:
        """Offsets in their order, of the queue that there is now."""
        return place(number, self._incarnations.get(queue, INCARNATION))

    def make_anew(self, queue: str) -> None:
        """Delete it and make it once more."""
        self._incarnations[queue] = uuid4().hex

    @abstractmethod
    def make(self) -> Coordinator: ...

    @abstractmethod
    def everything(self) -> object:
        """All that is kept of this group."""

    @abstractmethod
    def end_session(self, member: Member) -> None:
        """The others hold it for dead, once this returns; nobody has told it."""

    @abstractmethod
    def pass_unheard(self, coordinator: Coordinator, seconds: float) -> None:
        """Time passes by the coordinator's clock, in which it hears nothing."""

    @abstractmethod
    def until(self, look: Callable[[], object]) -> None:
        """Let what was told arrive, until it holds."""


def partitions_of(claims: Collection[Claim]) -> list[Partition]:
    return sorted(claim.partition for claim in claims)


def end_session(hosts: str, coordinator: ZooKeeperCoordinator) -> None:
    """Close it from another connection, as ZooKeeper does when time is up."""
    thief = KazooClient(hosts, client_id=coordinator._session.client.client_id, timeout=SESSION_SECONDS)
    thief.start(timeout=60)
    thief.stop()
    thief.close()
