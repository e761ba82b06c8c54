"""Offsets kept inside Queuey, next to the messages.

Every reader of a queue can see how far a group is.

A coordinator still gives each partition its owner. Taking over a partition raises its generation in Queuey before the offset is
read, so Queuey refuses the commits of a former owner as well (G14). A claim is only given out if the coordinator
confirms it *after* that: otherwise a member that slept between the two steps could share a generation with its
successor. So the generation of a claim is the one in Queuey. A reset raises it, too.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from qdo.client import Client, GroupOffset
from qdo.client.refusals import may_pass
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset, Coordinator
from qdo.groups.delegating import DelegatingCoordinator
from qdo.groups.hash_slots import ALL, is_slot, moment_of, slot_of
from queuey.errors import (
    Conflict,
    CoordinatorUnavailable,
    InvalidParameter,
    OffsetMovesBack,
    QueueNotFound,
    QueueyError,
    StaleGeneration,
)
from queuey.ids import MessageId

__all__ = ["OffsetsInQueuey", "offset_of"]

_TAKE_OVERS = 3
"""Attempts, if somebody else raises the generation at the same moment."""


class OffsetsInQueuey(DelegatingCoordinator):
    """Another coordinator, except for the offsets."""

    def __init__(self, coordinator: Coordinator, client: Client, group: str) -> None:
        """:param client: closed with the coordinator; nobody else uses it.
        :param group: the name that its offsets have in Queuey.
        """
        super().__init__(coordinator)
        self._client = client
        self._group = group
        self._lock = threading.Lock()
        self._inner_of: dict[Claim, Claim] = {}
        """From a claim that was given out to the coordinator's own claim."""

    def join(self, about: Mapping[str, Any]) -> str:
        self._inner_of.clear()
        return self._inner.join(about)

    def claim(self, partitions: Collection[Partition]) -> Mapping[Claim, CommittedOffset | None]:
        inner = {claim.partition: claim for claim in self._inner.claim(partitions)}
        by_queue: dict[str, list[Claim]] = defaultdict(list)
        for claim in inner.values():
            by_queue[claim.partition.queue].append(claim)
        taken = {claim: at for queue, some in by_queue.items() for claim, at in self._take_over(queue, some).items()}
        confirmed = self._inner.claim(list(inner))
        found = {claim: at for claim, at in taken.items() if inner[claim.partition] in confirmed}
        self._inner_of |= {claim: inner[claim.partition] for claim in found}
        return found

    def _take_over(self, queue: str, inner: Sequence[Claim]) -> Mapping[Claim, CommittedOffset | None]:
        with self._asking() as client:
            for attempt in range(_TAKE_OVERS):
                try:
                    return self._taken(client, queue, {claim.partition.number: claim for claim in inner})
                except StaleGeneration:
                    if attempt == _TAKE_OVERS - 1:
                        raise
                except QueueNotFound:
                    return {}  # the next plan does not have it
        return {}

    def _taken(self, client: Client, queue: str, inner: Mapping[int, Claim]) -> Mapping[Claim, CommittedOffset | None]:
        """Raise the generations of partitions that this member does not have yet.

        The queue may have fewer of them by now.
        """
        found = {each.partition: each for each in client.offsets(queue, self._group) if each.partition in inner}
        new = [number for number, each in found.items() if self._inner_of.get(_claim(queue, each)) != inner[number]]
        if new:
            generation = max(max(found[number].generation + 1, inner[number].generation) for number in new)
            found |= {each.partition: each for each in client.take_over(queue, self._group, new, generation)}
        return {_claim(queue, each): offset_of(each) for each in found.values()}

    def release(self, claims: Collection[Claim]) -> None:
        self._inner.release([self._inner_of.get(claim, claim) for claim in claims])
        for claim in claims:
            self._inner_of.pop(claim, None)

    def commit(self, offsets: Mapping[Claim, CommittedOffset]) -> Collection[Claim]:
        refused = [claim for claim in offsets if claim not in self._inner_of]
        together: dict[tuple[str, int], list[Claim]] = defaultdict(list)
        for claim in offsets:
            if claim in self._inner_of:
                together[claim.partition.queue, claim.generation].append(claim)
        for (queue, generation), claims in together.items():
            if not self._commit(queue, generation, claims, offsets):
                refused += [claim for claim in claims if not self._commit(queue, generation, [claim], offsets)]
        return refused

    def _commit(
        self, queue: str, generation: int, claims: Sequence[Claim], offsets: Mapping[Claim, CommittedOffset]
    ) -> bool:
        """:returns: False if a partition has a newer owner or a later offset; then nothing is recorded."""
        ids = {claim.partition.number: offsets[claim].message_id for claim in claims}
        with self._asking() as client:
            try:
                client.commit_offsets(queue, self._group, ids, generation)
            except (StaleGeneration, OffsetMovesBack, InvalidParameter):
                return False  # somebody committed by hand, or the queue has fewer partitions by now
            except QueueNotFound:
                return True  # the offsets went with the queue
        return True

    def owners(self) -> Mapping[Partition, tuple[str, int]]:
        """The generations are the coordinator's. Those in Queuey may be higher."""
        return self._inner.owners()

    def offsets(self) -> Mapping[Partition, CommittedOffset]:
        """All offsets of the group; of slots their moments.

        It sends one request for each queue that the group plans for or ever claimed.
        """
        found = {part: offset for part, offset in self._inner.offsets().items() if is_slot(part)}
        for queue in sorted({partition.queue for partition in {*self.known(), *self.plan().partitions()}} - {ALL}):
            with self._asking() as client:
                try:
                    offsets = client.offsets(queue, self._group)
                except QueueNotFound:
                    continue
            for offset in offsets:
                if (at := offset_of(offset)) is not None:
                    found[Partition(queue, offset.partition)] = at
        return found

    def begin(self, offsets: Mapping[Partition, CommittedOffset]) -> Collection[Partition]:
        return [part for part, offset in offsets.items() if self._begin(part.queue, part.number, offset.message_id)]

    def _begin(self, queue: str, number: int, message_id: MessageId) -> bool:
        with self._asking() as client:
            try:
                known = {each.partition: each for each in client.offsets(queue, self._group)}
                if number not in known or known[number].generation or known[number].timestamp is not None:
                    return False
                client.commit_offsets(queue, self._group, {number: message_id})
            except (StaleGeneration, OffsetMovesBack, QueueNotFound):
                return False  # somebody was there in between
        return True

    def reset(self, offsets: Mapping[Partition, CommittedOffset | None]) -> None:
        ids: dict[str, dict[int, MessageId | str | None]] = defaultdict(dict)
        for (queue, number), offset in offsets.items():
            ids[queue][number] = None if offset is None else offset.message_id
        for queue, some in ids.items():
            with self._asking() as client:
                client.reset_offsets(queue, self._group, some)
        # Members may hear of the reset only now: they read the offsets again.
        if any(map(is_slot, self._inner.known())):
            self._set_slots_back(offsets)
        else:
            self._inner.reset(dict.fromkeys(offsets))

    def _set_slots_back(self, offsets: Mapping[Partition, CommittedOffset | None]) -> None:
        """Set the slots' moments back as well.

        Their owners then read again from those moments.
        """
        moments = {part: offset for part, offset in self._inner.offsets().items() if is_slot(part)}
        back: dict[Partition, CommittedOffset | None] = {}
        for (queue, _), offset in offsets.items():
            slot = Partition(ALL, slot_of(queue))
            if slot in moments:
                ticks = 0 if offset is None else offset.message_id.ticks
                at = back.get(slot) or moments[slot]
                back[slot] = moment_of(min(ticks, at.message_id.ticks))
        if back:
            self._inner.reset(back)

    def close(self) -> None:
        self._inner.close()
        with self._lock:
            self._client.close()

    @contextmanager
    def _asking(self) -> Iterator[Client]:
        """:raises CoordinatorUnavailable: a later try may go better. An error that stays is raised as it is."""
        with self._lock:
            try:
                yield self._client
            except QueueyError as error:
                if not (may_pass(error) or isinstance(error, Conflict)):
                    raise
                raise CoordinatorUnavailable(f"offsets in Queuey: {error}") from error


def _claim(queue: str, found: GroupOffset) -> Claim:
    return Claim(Partition(queue, found.partition), found.generation)


def offset_of(found: GroupOffset) -> CommittedOffset | None:
    """The same offset as coordinators have it."""
    return None if found.id is None else CommittedOffset(found.incarnation, found.id)
