"""Lease groups in an embedded store's file.

A step runs in the committer's transaction, with the appends of its group. It reads messages as others do: what is
readable is on disk, so it sees it outside of the transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from uuid import UUID

from queuey.errors import QueueNotFound, QueueyError
from queuey.future import Future
from queuey.ids import MessageId
from queuey.model import (
    Appended,
    AppendRequest,
    Consistency,
    Location,
    Message,
    Page,
    PartitionId,
    Queue,
    ReadRequest,
)
from queuey.model.lease_groups import GroupSettings, LeaseGroup
from queuey.model.lease_steps import GroupStep, HeldPage, LeaseCounts, LeaseOutcome, LeaseStep
from queuey.storage.checksums import checksum_of_change, making_sense
from queuey.storage.leasing import LeaseStore
from queuey.storage.leasing.access import PICKS_ALONE, StoredAttempt
from queuey.storage.leasing.changes import FoldRoom
from queuey.storage.leasing.joining import PlainStep, carry_out_together, plain_step
from queuey.storage.leasing.looking import counted, held_after
from queuey.storage.leasing.stepping import carry_out, partitions_of
from queuey.storage.sqlite.checked_rows import names_in, with_checksum, without_checksum
from queuey.storage.sqlite.file import File
from queuey.storage.sqlite.lease_loading import LARGE_BYTES, LoadedState, StateLoader, StatePlace
from queuey.storage.sqlite.messages import SqliteMessages, size_of
from queuey.storage.sqlite.purging import Purge
from queuey.storage.sqlite.remembering import ATTEMPTS, place_of
from queuey.storage.sqlite.rows import key_of, message_of_row
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import LEASE_CHANGES, Row, Transaction
from queuey.storage.sqlite.writes import Later, PutOff

__all__ = ["SqliteLeases"]

_PURGE = Purge(
    expired=("purge_lease_changes", "purge_lease_forgotten", "purge_lease_attempts"),
    dropped=("purge_dropped_leases", "purge_dropped_attempts"),
)


_MESSAGE_BYTES = 128
"""A message that is handed out or settled takes as long as these bytes to store."""
_MOST_SMALL = 32
"""Changes that are counted, see the statement ``lease_changes_bytes``."""


class SqliteLeases(LeaseStore):
    """The lease groups of one file."""

    def __init__(self, file: File, messages: SqliteMessages) -> None:
        self._file, self._messages, self._book = file, messages, file.lease_book
        self._clock = file.lease_clock
        self._last_access: _Access | None = None
        self._loader = StateLoader(file, self._book.changes, _checked, self._install)
        file.purger.add(_PURGE)

    def step(self, step: LeaseStep) -> Future[LeaseOutcome]:
        submit, plain = self._file.committer.submit, plain_step(step, with_attempt=True)
        if plain is not None:
            size = plain.messages * _MESSAGE_BYTES
            return submit(partial(self._gather, plain), grows=False, size=size, is_light=True)
        size, is_light = _size_of(step)
        return submit(partial(self._carry_out, step), grows=bool(step.appends), size=size, is_light=is_light)

    def _carry_out(self, step: LeaseStep, transaction: Transaction) -> LeaseOutcome | PutOff:
        for one in step.groups:
            self._refuse_dropped(one.queue.uuid)
        access = self._access(transaction)
        absent = self._absent(access, [(one.queue.uuid, one.name, partitions_of(one)) for one in step.groups])
        return absent or carry_out(step, access, self._book, self._clock.now())

    def _gather(self, plain: PlainStep, transaction: Transaction) -> LeaseOutcome | PutOff | Later:
        """Let a step be carried out with others at the end of the transaction."""
        one = plain.step.groups[0]
        self._refuse_dropped(one.queue.uuid)
        access = self._access(transaction, is_plain=True)
        if plain.step.attempt is not None and access.is_repeated(one, plain.step.attempt.key):
            return self._carry_out(plain.step, transaction)
        known = self._book.known(one.queue.uuid, one.name)
        if known is None or len(known.partitions) < one.queue.partitions:
            absent = self._absent(access, [(one.queue.uuid, one.name, partitions_of(one))])
            if absent:
                return absent
        return access.later(plain)

    def _absent(self, access: _Access, wanted: Iterable[tuple[UUID, str, Iterable[int]]]) -> PutOff | None:
        """What to do if a large state is not in memory: it is read outside of the committer's turn."""
        for queue, name, numbers in wanted:
            known = self._book.known(queue, name)
            partitions = () if known is None else known.partitions
            missing = [number for number in numbers if number not in partitions]
            group = access.group(queue, name) if missing else None
            if group is not None:
                for number in missing:
                    if access.has_large(group.token, number):
                        return self._loader.put_off(StatePlace(name, group, PartitionId(queue, number)))
        return None

    def _install(self, place: StatePlace, loaded: LoadedState) -> Future[None]:
        """Take in a state, unless it has changed since it was read."""

        def job(transaction: Transaction) -> None:
            access, (queue, number) = self._access(transaction), place.partition
            group = self._book.group(access, queue, place.name, None)
            is_same = group is not None and group.group.token == place.group.token
            if group is None or not is_same or number in group.partitions:
                return
            if access.last_change(place.group.token, number) == loaded.stored.next - 1:
                self._book.install(group, place.partition, *loaded)

        return self._file.committer.read(job)

    def _refuse_dropped(self, queue: UUID) -> None:
        dropped = self._file.dropped
        if dropped and queue.bytes in dropped:
            raise QueueNotFound

    def _access(self, transaction: Transaction, *, is_plain: bool = False) -> _Access:
        """What all jobs of a transaction use. What they changed is stored at its end.

        :param is_plain: it is for a plain step. For any other, the plain ones that came before are carried out first.
        """
        access = self._last_access
        if access is None or access.transaction is not transaction:
            access = self._last_access = _Access(self._file, self._messages, transaction)
            transaction.at_end(self._save)
        elif access.plain_steps and not is_plain:
            self._carry_out_plain(access)
        return access

    def _save(self) -> None:
        access, self._last_access = self._last_access, None
        if access is None:
            return
        self._carry_out_plain(access)
        self._book.save(access)

    def _carry_out_plain(self, access: _Access) -> None:
        gathered, access.plain_steps = access.plain_steps, {}
        for steps in gathered.values():
            self._carry_out_together(steps, access)

    def _carry_out_together(self, steps: Sequence[tuple[PlainStep, Later]], access: _Access) -> None:
        """Carry out steps of one group."""
        found: Sequence[LeaseOutcome | QueueyError]
        try:
            self._refuse_dropped(
                steps[0][0].step.groups[0].queue.uuid
            )  # another job of the transaction may have dropped it
            found = carry_out_together([step for step, _ in steps], access, self._book, self._clock.now)
        except QueueyError as refused:  # nothing is done
            found = [refused] * len(steps)
        for outcome, (_, later) in zip(found, steps, strict=True):
            if isinstance(outcome, QueueyError):
                later.error = outcome
            else:
                later.value = outcome

    def find_group(self, queue: UUID, name: str) -> Future[LeaseGroup | None]:
        if queue.bytes in self._file.dropped:
            return Future.of(None)
        return self._file.query(SQL["lease_group"], (queue.bytes, name), _group)

    def keep_group(self, queue: UUID, name: str, group: LeaseGroup, before: LeaseGroup | None) -> Future[bool]:
        def job(transaction: Transaction) -> bool:
            self._refuse_dropped(queue)
            access = self._access(transaction)
            if access.group(queue, name) != before:
                return False
            access.make_group(queue, name, group)
            self._book.save(access)
            self._book.replace_group(queue, name, group)
            return True

        return self._file.committer.submit(job, grows=before is None)

    def list_groups(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[str]]:
        if queue.bytes in self._file.dropped:
            return Future.of([])
        return self._file.query(SQL["lease_group_names"], (queue.bytes, start, limit), names_in)

    def forget_group(self, queue: UUID, name: str) -> Future[None]:
        def job(transaction: Transaction) -> None:
            access = self._access(transaction)
            transaction.execute(SQL["lease_group_forget"], (queue.bytes, name))
            self._book.forget_group(queue, name)
            access.groups.clear()

        return self._file.committer.submit(job, grows=False)

    def count(self, queue: UUID, name: str, partitions: Sequence[int]) -> Future[Mapping[int, LeaseCounts]]:
        def job(transaction: Transaction) -> Mapping[int, LeaseCounts] | PutOff:
            if queue.bytes in self._file.dropped:
                return {}
            access = self._access(transaction)
            absent = self._absent(access, [(queue, name, partitions)])
            return absent or counted(access, self._book, queue, name, partitions)

        return self._file.committer.read(job)

    def held(self, queue: UUID, name: str, partition: int, *, after: MessageId, limit: int) -> Future[HeldPage]:
        def job(transaction: Transaction) -> HeldPage | PutOff:
            now = self._clock.now()
            if queue.bytes in self._file.dropped:
                return HeldPage(now)
            access, place = self._access(transaction), PartitionId(queue, partition)
            absent = self._absent(access, [(queue, name, [partition])])
            return absent or held_after(access, self._book, place, name, after, limit)._replace(now=now)

        return self._file.committer.read(job)


def _size_of(step: LeaseStep) -> tuple[int, bool]:
    """The size of a step, and whether it takes no longer than that says."""
    messages = 0 if step.receive is None else step.receive.most
    is_light = step.attempt is None or step.receive is None or not step.receive.pop  # it may store what it hands out
    for one in step.groups:
        is_light = is_light and not (one.renewals or one.passes)
        for settles in one.settles.values():
            messages += len(settles)
    return messages * _MESSAGE_BYTES + sum([size_of(request.drafts) for request in step.appends]), is_light


def _checked(token: int, partition: int, rows: Iterable[Row]) -> Iterator[tuple[int, bytes]]:
    """Changes with their numbers.

    :raises ValueError: one does not match its checksum.
    """
    for number, checksum, change in rows:
        if checksum != checksum_of_change(token, number, change):
            raise ValueError(f"change {number} of a lease group in partition {partition} does not match its checksum")
        yield number, change


def _group(rows: Sequence[Row]) -> LeaseGroup | None:
    for _, _, token, ticks, tail, settings in map(without_checksum, rows):
        return LeaseGroup(token, MessageId(ticks, tail), _settings(settings))
    return None


@lru_cache(1024)
def _settings(text: str) -> GroupSettings:
    return GroupSettings.from_json(json.loads(text))


class _Access:
    """One transaction, see :class:`queuey.storage.leasing.access.LeaseAccess`."""

    least_number = 0
    folding = FoldRoom()
    picking = PICKS_ALONE

    def __init__(self, file: File, messages: SqliteMessages, transaction: Transaction) -> None:
        self._messages, self.transaction, self._book = messages, transaction, file.lease_book
        self.watermark = messages.watermark(Consistency.STRONG)
        self.now_ticks = file.clock.now_ticks()
        self.passed_over = 0
        self.plain_steps: dict[tuple[int, str], list[tuple[PlainStep, Later]]] = {}
        """By queue and group: those of one are carried out together, later in the transaction."""
        self._attempts: set[tuple[UUID, str, str]] = set()
        """Of these steps."""
        self._unknown: set[tuple[int | None, str]] = set()
        """Attempts that were looked for in vain, by the token of their group."""
        self._lease_now = file.lease_clock.look()
        self.groups: dict[tuple[int, str], LeaseGroup | None] = {}
        """Those that were read, by queue and name."""

    def is_repeated(self, one: GroupStep, key: str) -> bool:
        """Whether an attempt is answered already, or will be in this transaction."""
        named = (one.queue.uuid, one.name, key)
        return named in self._attempts or self.attempt(*named, self._lease_now) is not None

    def later(self, plain: PlainStep) -> Later:
        """The outcome of a plain step, once it is carried out."""
        one, later = plain.step.groups[0], Later()
        if plain.step.attempt is not None:
            self._attempts.add((one.queue.uuid, one.name, plain.step.attempt.key))
        self.plain_steps.setdefault((one.queue.uuid.int, one.name), []).append((plain, later))
        return later

    def group(self, queue: UUID, name: str) -> LeaseGroup | None:
        key = (queue.int, name)
        if key not in self.groups:
            with making_sense():
                self.groups[key] = _group(self.transaction.look(SQL["lease_group"], (queue.bytes, name)))
        return self.groups[key]

    def make_group(self, queue: UUID, name: str, group: LeaseGroup) -> None:
        settings = json.dumps(group.settings.to_json())
        values: Row = (queue.bytes, name, group.token, *group.start, settings)
        self.transaction.look(SQL["lease_group_keep"], with_checksum(values))
        self.groups[queue.int, name] = group

    def changes(self, token: int, partition: int) -> Iterable[tuple[int, bytes]]:
        return _checked(token, partition, self.transaction.lease_changes(SQL["lease_changes"], (token, partition)))

    def has_large(self, token: int, partition: int) -> bool:
        """Whether the changes of a state are many."""
        ((number, size),) = self.transaction.lease_changes(SQL["lease_changes_bytes"], (token, partition))
        return number == _MOST_SMALL or (size or 0) > LARGE_BYTES

    def last_change(self, token: int, partition: int) -> int | None:
        """The number of the last change."""
        ((number,),) = self.transaction.lease_changes(SQL["lease_changes_last"], (token, partition))
        return None if number is None else int(number)

    def keep(self, token: int, partition: int, number: int, change: bytes) -> None:
        values = (token, partition, number, checksum_of_change(token, number, change), change)
        self.transaction.keep(LEASE_CHANGES, values)

    def fold(self, token: int, partition: int, first: int, changes: Sequence[bytes]) -> None:
        self.transaction.execute(SQL["lease_changes_fold"], (token, partition, first))
        for number, change in enumerate(changes, first):
            self.keep(token, partition, number, change)

    def attempt(self, queue: UUID, name: str, key: str, now: int) -> StoredAttempt | None:
        token = self._token(queue, name)
        if token is None:
            return None
        row = self.transaction.named(ATTEMPTS, token, key)
        if row is not None:
            _, _, _, _, digest, answer, *_ = row
            return StoredAttempt(digest, answer)
        if (token, key) in self._unknown:
            return None
        asked = (place_of(queue.bytes, str(token), key), token, key, now)
        for found in self.transaction.look(SQL["lease_attempt"], asked):
            with making_sense():
                _, _, _, _, digest, answer = without_checksum(found)
            return StoredAttempt(digest, answer)
        self._unknown.add((token, key))
        return None

    def _token(self, queue: UUID, name: str) -> int | None:
        """That of a group; None if there is none."""
        known = self._book.known(queue, name)
        group = self.group(queue, name) if known is None else known.group
        return None if group is None else group.token

    def keep_attempt(self, queue: UUID, name: str, key: str, attempt: StoredAttempt, expires: int) -> None:
        token = self._token(queue, name)
        self._unknown.discard((token, key))
        *values, checksum = with_checksum((place_of(queue.bytes, str(token), key), queue.bytes, token, key, *attempt))
        self.transaction.keep(ATTEMPTS, (*values, expires, checksum), token, key)

    def append(self, requests: Sequence[AppendRequest]) -> list[Appended]:
        with self.transaction.whole() if len(requests) > 1 else nullcontext():
            return [self._messages.append_within(self.transaction, request) for request in requests]

    def read(self, request: ReadRequest) -> Page:
        return self._messages.read(request, now_ticks=self.now_ticks).wait()

    def appended(self, place: PartitionId, after: MessageId, most: int) -> Sequence[Message]:
        found = [message_of_row(row) for row in self.transaction.gathered(key_of(place), after, most)]
        return () if any(message.id.is_scheduled for message in found) else found

    def fetch(self, queue: Queue, wanted: Sequence[Location]) -> Sequence[Message | None]:
        found = self._messages.fetch(queue, wanted, now_ticks=self.now_ticks).wait()
        if None in found and self.transaction.adds:  # an earlier step of this commit may have handed out what it adds
            found = self._messages.fetch_within(self.transaction, queue, wanted, now_ticks=self.now_ticks)
        return found
