"""Lease groups, in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from uuid import UUID

from queuey.errors import QueueNotFound, QueueyError
from queuey.future import Future
from queuey.ids import IdGenerator, MessageId
from queuey.model import Appended, AppendRequest, Location, Message, Page, PartitionId, Queue, ReadRequest
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_steps import HeldPage, LeaseCounts, LeaseOutcome, LeaseStep
from queuey.storage.leasing import LeaseStore
from queuey.storage.leasing.access import PICKS_ALONE, StoredAttempt
from queuey.storage.leasing.book import LeaseBook
from queuey.storage.leasing.changes import FoldRoom
from queuey.storage.leasing.clock import LeaseClock
from queuey.storage.leasing.looking import counted, held_after
from queuey.storage.leasing.stepping import run_step
from queuey.storage.memory.messages import MemoryMessages
from queuey.storage.memory.process import Process

__all__ = ["MemoryLeases"]


class MemoryLeases(LeaseStore):
    """The lease groups of one process. The changes of each state are kept as an embedded store keeps them."""

    def __init__(self, process: Process, ids: IdGenerator, messages: MemoryMessages, book: LeaseBook) -> None:
        self._process, self._lock, self._ids = process, process.lock, ids
        self._messages, self._book = messages, book
        self._clock = LeaseClock(process.clock)
        self._groups: dict[UUID, dict[str, LeaseGroup]] = {}
        self._changes: dict[tuple[int, int], list[tuple[int, bytes]]] = {}
        """By token and partition."""
        self._attempts: dict[tuple[UUID, str, str], tuple[StoredAttempt, int]] = {}
        """And when each expires; the oldest first."""

    def step(self, step: LeaseStep) -> Future[LeaseOutcome]:
        with self._lock:
            if any(one.queue.uuid in self._process.dropped for one in step.groups):
                return Future.failed(QueueNotFound())
            try:
                outcome = run_step(step, self._access(), self._book, self._clock.now())
            except QueueyError as refused:
                return Future.failed(refused)
            self._book.settled()
            return Future.of(outcome)

    def _access(self) -> _Access:
        return _Access(self, self._messages, self._ids.watermark(), self._process.clock.now_ticks())

    def find_group(self, queue: UUID, name: str) -> Future[LeaseGroup | None]:
        with self._lock:
            return Future.of(self.stored_group(queue, name))

    def stored_group(self, queue: UUID, name: str) -> LeaseGroup | None:
        """A group. The caller has the lock."""
        return None if queue in self._process.dropped else self._groups.get(queue, {}).get(name)

    def keep_group(self, queue: UUID, name: str, group: LeaseGroup, before: LeaseGroup | None) -> Future[bool]:
        with self._lock:
            if queue in self._process.dropped:
                return Future.failed(QueueNotFound())
            if self.stored_group(queue, name) != before:
                return Future.of(False)
            self.store_group(queue, name, group)
            self._book.replace_group(queue, name, group)
            if before is not None and before.token != group.token:
                self._forget_attempts(queue, name)
            return Future.of(True)

    def store_group(self, queue: UUID, name: str, group: LeaseGroup) -> None:
        """Store a group. The caller has the lock."""
        self._groups.setdefault(queue, {})[name] = group

    def list_groups(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[str]]:
        with self._lock:
            names = [] if queue in self._process.dropped else sorted(self._groups.get(queue, {}))
        first = bisect_left(names, start)
        return Future.of(names[first : first + limit])

    def forget_group(self, queue: UUID, name: str) -> Future[None]:
        with self._lock:
            self._groups.get(queue, {}).pop(name, None)
            self._book.forget_group(queue, name)
            self._forget_attempts(queue, name)
        return Future.of(None)

    def _forget_attempts(self, queue: UUID, name: str) -> None:
        self._attempts = {key: kept for key, kept in self._attempts.items() if key[:2] != (queue, name)}

    def count(self, queue: UUID, name: str, partitions: Sequence[int]) -> Future[Mapping[int, LeaseCounts]]:
        with self._lock:
            return Future.of(counted(self._access(), self._book, queue, name, partitions))

    def held(self, queue: UUID, name: str, partition: int, *, after: MessageId, limit: int) -> Future[HeldPage]:
        with self._lock:
            now, place = self._clock.now(), PartitionId(queue, partition)
            found = held_after(self._access(), self._book, place, name, after, limit)
            return Future.of(found._replace(now=now))

    # For the access

    def changes(self, token: int, partition: int) -> list[tuple[int, bytes]]:
        """The changes of a state. The caller has the lock."""
        return self._changes.setdefault((token, partition), [])

    def attempt(self, place: tuple[UUID, str, str], now: int) -> StoredAttempt | None:
        """An attempt. The caller has the lock."""
        while self._attempts and next(iter(self._attempts.values()))[1] <= now:
            del self._attempts[next(iter(self._attempts))]
        found = self._attempts.get(place)
        return None if found is None else found[0]

    def keep_attempt(self, place: tuple[UUID, str, str], attempt: StoredAttempt, expires: int) -> None:
        """Remember an attempt. The caller has the lock."""
        self._attempts.pop(place, None)  # it expires after all others now
        self._attempts[place] = (attempt, expires)


class _Access:
    """One transaction, see :class:`queuey.storage.leasing.access.LeaseAccess`."""

    least_number = 0
    folding = FoldRoom()
    picking = PICKS_ALONE

    def __init__(self, leases: MemoryLeases, messages: MemoryMessages, watermark: int, now_ticks: int) -> None:
        self._leases, self._messages = leases, messages
        self.watermark, self.now_ticks = watermark, now_ticks
        self.passed_over = 0

    def group(self, queue: UUID, name: str) -> LeaseGroup | None:
        return self._leases.stored_group(queue, name)

    def make_group(self, queue: UUID, name: str, group: LeaseGroup) -> None:
        self._leases.store_group(queue, name, group)

    def changes(self, token: int, partition: int) -> Sequence[tuple[int, bytes]]:
        return self._leases.changes(token, partition)

    def keep(self, token: int, partition: int, number: int, change: bytes) -> None:
        self._leases.changes(token, partition).append((number, change))

    def fold(self, token: int, partition: int, first: int, changes: Sequence[bytes]) -> None:
        stored = self._leases.changes(token, partition)
        stored[:] = [one for one in stored if one[0] >= first] + [*enumerate(changes, first)]

    def attempt(self, queue: UUID, name: str, key: str, now: int) -> StoredAttempt | None:
        return self._leases.attempt((queue, name, key), now)

    def keep_attempt(self, queue: UUID, name: str, key: str, attempt: StoredAttempt, expires: int) -> None:
        self._leases.keep_attempt((queue, name, key), attempt, expires)

    def append(self, requests: Sequence[AppendRequest]) -> list[Appended]:
        return self._messages.append_within(requests)

    def read(self, request: ReadRequest) -> Page:
        return self._messages.read_within(request, self.now_ticks)

    def appended(self, place: PartitionId, after: MessageId, most: int) -> Sequence[Message]:
        return ()

    def fetch(self, queue: Queue, wanted: Sequence[Location]) -> Sequence[Message | None]:
        return self._messages.fetch_within(queue, wanted, self.now_ticks)
