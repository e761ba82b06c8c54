"""What the steps of one group read and write in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from queuey.errors import OutcomeUnknown, QueueNotFound, QueueyError, StorageUnavailable
from queuey.future import Future, start
from queuey.ids import MessageId, unique_bytes
from queuey.model import Appended, AppendRequest, Consistency, Location, Message, Page, PartitionId, Queue, ReadRequest
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import Acknowledged
from queuey.model.lease_steps import LeaseStep
from queuey.storage.cassandra.idempotency import refuse_reused
from queuey.storage.cassandra.lease_heads import ROW_BITS, GroupHead, GroupPlace, Parcel
from queuey.storage.cassandra.lease_parcels import encode_parcel, refuse_large
from queuey.storage.cassandra.lease_rows import WHOLE_VERSIONS, StoredGroup, checksum_of_change
from queuey.storage.cassandra.lease_work import awaited
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import Change, Rows
from queuey.storage.leasing import ATTEMPT_SECONDS
from queuey.storage.leasing.access import PICKS_ALONE, StoredAttempt
from queuey.storage.leasing.attempts import leaving, remember
from queuey.storage.leasing.book import LeaseBook
from queuey.storage.leasing.changes import FoldRoom
from queuey.storage.leasing.joining import PlainStep, join_steps, plain_step

__all__ = ["GroupAccess", "GroupCall"]

_ATTEMPT_TTL_SECONDS = round(2 * ATTEMPT_SECONDS)
"""The row outlives the answer, whatever the nodes' clocks say; it tells itself until when it counts."""
_MOST_WHOLE = 10_000
"""Holes of a state that one transaction folds: they take 300 KiB mostly."""
_STATES_BYTES = 4 << 20
"""A transaction folds no further state once its changes have these bytes: beside what its calls store, it has no room for all
states of a queue with many partitions."""
_LEASE_BYTES = 128
"""Of a lease that is made or changed, with what the answer to an attempt has of it, approximately."""


class GroupCall:
    """A call of one group that waits for its turn."""

    def __init__(
        self,
        job: Callable[[GroupAccess, LeaseBook, int], Any],
        step: LeaseStep | None = None,
        *,
        attempt: str | None = None,
        may_move: bool = False,
    ) -> None:
        """
        :param job: carries the call out, at a moment on the clock of leases. It may be called several times.
        :param step: what the job does; None if it looks at the group.
        :param attempt: the key of an attempt that the call looks up.
        :param may_move: instead of an outcome it takes :class:`~queuey.storage.cassandra.lease_homes.AtHomeElsewhere`.
        """
        self.job, self.attempt, self.may_move = job, attempt, may_move
        self.only_looks = step is None
        self.plain: PlainStep | None = None
        """The step, if it may be carried out together with others."""
        self.requests: Sequence[AppendRequest] = ()
        self.size = self.most = 0
        """Bytes that it stores, approximately, and messages that may be handed out."""
        self.receive_from: Sequence[int] = ()
        """Partitions."""
        self.receives_from_all = False
        self.consistency = Consistency.STRONG
        """Of the queue."""
        if step is not None:
            self._take(step)
        self.future: Future[Any] = Future()
        self.since = 0.0
        """When it began to wait for its turn, in elapsed seconds."""
        self.step = unique_bytes()
        """Names the call among all."""
        self.result: Any = None
        """What the job returned or raised."""
        self.repeats: bytes | None = None
        """The name of an earlier call that this one repeats."""
        self.appends = False
        """Its messages are to be appended."""

    def _take(self, step: LeaseStep) -> None:
        self.plain, self.requests = plain_step(step, with_attempt=True), step.appends
        self.attempt = None if step.attempt is None else step.attempt.key
        self.size = refuse_large(step.appends) + _bytes_beside(step)
        self.most = 0 if step.receive is None else step.receive.most
        (one,) = step.groups
        self.receive_from, self.consistency = one.receive_from, one.queue.consistency
        self.receives_from_all = len(one.receive_from) == one.queue.partitions


class GroupAccess:
    """One transaction, see :class:`queuey.storage.leasing.access.LeaseAccess`. What is written is gathered."""

    def __init__(
        self,
        server: CassandraServer,
        messages: CassandraMessages,
        stored: StoredGroup | None,
        attempts: Mapping[str, Rows] | None,
        now: tuple[int, int],
    ) -> None:
        """:param attempts: what is stored under the keys that the calls look up. None if nobody has looked: then they
            are taken for new, and the transaction is not done if something is kept under one of them already.
        :param now: the watermark, and the wall clock.
        """
        self._dropped, self._messages, self._stored = server.dropped, messages, stored
        self._known, self._has_looked = attempts or {}, attempts is not None
        self.watermark, self.now_ticks = now
        self.passed_over = 0
        self.picking = PICKS_ALONE
        self.folding = FoldRoom(_MOST_WHOLE, most_bytes=_STATES_BYTES)
        self.least_number = (0 if stored is None else stored.head.version) + 1 << ROW_BITS
        self.made: LeaseGroup | None = None
        self._changes: dict[tuple[int, int], tuple[bytes, bool]] = {}
        """By partition and number: the bytes, and whether it is a base."""
        self._folds: dict[int, int] = {}
        """By partition, the number before which all is deleted."""
        self._attempts: dict[str, tuple[StoredAttempt, int, bytes]] = {}
        self._parcels: list[GroupCall] = []
        self._call: GroupCall | None = None

    # The calls

    def run_all(self, calls: Sequence[GroupCall], book: LeaseBook, now: Callable[[], int]) -> Sequence[GroupCall]:
        """Carry out calls: those that may be carried out together at once, and then the others.

        :param now: gives rising moments on the clock of leases.
        :returns: those whose attempts the transaction does not keep, so that it does not find out whether they are new.
        """
        plain = [*_joinable(calls, self._known)]
        joined = join_steps([step for _, step in plain], self, book, now) if plain else ()
        for (call, one), outcome in zip(plain, joined, strict=False):
            call.result, self._call = outcome, call
            remember(one.step, self, outcome.now, outcome)
        done = {call for call, _ in plain[: len(joined)]}
        for call in calls:
            if call not in done:
                self._run(call, book, now())
        return [call for call in calls if call.attempt is not None and call.attempt not in self._attempts]

    def _run(self, call: GroupCall, book: LeaseBook, now: int) -> None:
        """Carry out a call. A call that is refused leaves only what it noted of the state."""
        call.result = call.repeats = None
        call.appends = False
        self._call, had_made = call, self.made
        try:
            call.result = call.job(self, book, now)
        except (StorageUnavailable, OutcomeUnknown):
            raise  # it may have changed what is in memory
        except QueueyError as refused:
            call.result, call.appends = refused, False
            if had_made is None and self.made is not None:
                self.made = None
                book.undone()
        else:
            if call.appends and call.repeats is None:
                self._parcels.append(call)

    @property
    def writes(self) -> bool:
        return bool(self.made or self._changes or self._folds or self._attempts or self._parcels)

    @property
    def changed(self) -> Collection[tuple[int, int]]:
        """Of each change of a state, the partition and the number."""
        return self._changes.keys()

    def parcels(self, head: GroupHead) -> list[tuple[Parcel, GroupCall]]:
        """The names of what is to be appended, once the head is written."""
        return [(Parcel(head.version, part), call) for part, call in enumerate(self._parcels)]

    def statements(self, place: GroupPlace, head: GroupHead) -> list[Change]:
        """All that was gathered, as statements of one transaction."""
        return [*self._state_statements(place, head), *self.beside_state(place, head)]

    def _state_statements(self, place: GroupPlace, head: GroupHead) -> list[Change]:
        found, token = list[Change](), head.group.token
        left = head.version - WHOLE_VERSIONS + 1 << ROW_BITS
        for part, first in self._folds.items():
            found.append(("lease_changes_fold", (*place, part, min(first, left))))
        for (part, number), (data, is_base) in self._changes.items():
            checksum = checksum_of_change(token, part, number, data)
            found.append(("lease_change_keep", (*place, part, number, token, is_base, checksum, data)))
        return found

    def beside_state(self, place: GroupPlace, head: GroupHead) -> list[Change]:
        """Attempts and parcels, as statements."""
        token, found = head.group.token, list[Change]()
        keep = "lease_attempt_keep" if self._has_looked else "lease_attempt_begin"
        for key, (attempt, expires, step) in self._attempts.items():
            values = (*place, key, token, expires, step, attempt.digest, attempt.answer, _ATTEMPT_TTL_SECONDS)
            found.append((keep, values))
        for parcel, call in self.parcels(head):
            data = encode_parcel(call.requests)
            checksum = checksum_of_change(token, parcel.part, parcel.number, data)
            row = (*place, *parcel.key(token), token, head.moment, checksum, call.step, data)
            found.append(("lease_parcel_keep", row))
        return found

    # The group

    def group(self, queue: UUID, name: str) -> LeaseGroup | None:
        return self.made or (self._stored.head.group if self._stored is not None else None)

    def make_group(self, queue: UUID, name: str, group: LeaseGroup) -> None:
        self.made = group

    def changes(self, token: int, partition: int) -> Sequence[tuple[int, bytes]]:
        return self._stored.changes.pop(partition, ()) if self._stored is not None else ()

    def keep(self, token: int, partition: int, number: int, change: bytes) -> None:
        self._changes[partition, number] = (change, False)

    def fold(self, token: int, partition: int, first: int, changes: Sequence[bytes]) -> None:
        self._folds[partition] = first
        before = [at for at in self._changes if at[0] == partition and at[1] < first]
        for at in before:
            del self._changes[at]
        for number, change in enumerate(changes, first):
            self._changes[partition, number] = (change, number == first)

    # Attempts

    def attempt(self, queue: UUID, name: str, key: str, now: int) -> StoredAttempt | None:
        if key in self._attempts:
            known, _, step = self._attempts[key]
            self._repeats(step)
            return known
        group = self.group(queue, name)
        for life, expires, step, digest, answer in self._known.get(key, ()):
            if group is not None and life == group.token and expires > now:
                self._repeats(step)
                return StoredAttempt(digest, answer)
        return None

    def _repeats(self, step: bytes) -> None:
        if self._call is not None:
            self._call.repeats = step
            self._call.appends = bool(self._call.requests)

    def keep_attempt(self, queue: UUID, name: str, key: str, attempt: StoredAttempt, expires: int) -> None:
        step = self._call.step if self._call is not None else b""
        self._attempts[key] = (attempt, expires, step)

    # Messages

    def append(self, requests: Sequence[AppendRequest]) -> list[Appended]:
        if any(request.queue.uuid in self._dropped for request in requests):
            raise QueueNotFound
        awaited(start(refuse_reused(self._messages.appender, requests)))  # once a step has settled, it is too late
        if self._call is not None:
            self._call.appends = True
        return [Appended([]) for _ in requests]

    def read(self, request: ReadRequest) -> Page:
        return awaited(start(self._messages.page(request, now_ticks=self.now_ticks)))

    def appended(self, place: PartitionId, after: MessageId, most: int) -> Sequence[Message]:
        return ()

    def fetch(self, queue: Queue, wanted: Sequence[Location]) -> Sequence[Message | None]:
        found = self._messages.found(queue, wanted, self.now_ticks, queue.consistency.at_least_strong)
        return awaited(start(found))


def _bytes_beside(step: LeaseStep) -> int:
    """What a step of one group stores beside what it appends, approximately: of acknowledgements nearly nothing."""
    (one,), receive = step.groups, step.receive
    size = 0
    for settles in one.settles.values():
        if type(settles) is not Acknowledged:
            size += sum([_LEASE_BYTES + len(settle.reason.encode()) for settle in settles])
    if receive is not None:
        size += _LEASE_BYTES * receive.most + (receive.max_bytes if leaving(step) else 0)
    return size


def _joinable(calls: Sequence[GroupCall], known: Mapping[str, Rows]) -> Iterator[tuple[GroupCall, PlainStep]]:
    """Calls that may be carried out together. Of several calls of one attempt this is the first, if the attempt is new."""
    attempts = set[str]()
    for call in calls:
        if call.plain is None:
            continue
        if call.attempt is not None:
            if call.attempt in attempts or known.get(call.attempt):
                continue
            attempts.add(call.attempt)
        yield call, call.plain
