"""Offsets kept inside Queuey, next to the messages: anybody who may read a queue can see how far a group is.

A coordinator still says who owns what. Taking over raises the partition's generation in Queuey before
the offset is read, so a former owner's commit is refused there as well (G14).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from qdo.assign import Partition
from qdo.client import Client, GroupOffset
from qdo.coordination import Claim, Coordinator, Member, Offset, Plan
from queuey.errors import CoordinatorUnavailable, QueueNotFound, QueueyError, StaleGeneration
from queuey.ids import MessageId

__all__ = ["OffsetsInQueuey"]

_TAKE_OVERS = 3
"""Attempts, when somebody else raises the generation in the same moment."""


class OffsetsInQueuey(Coordinator):
    """Another coordinator, but for where offsets are."""

    def __init__(self, coordinator: Coordinator, client: Client, group: str) -> None:
        """:param client: closed with the coordinator; nobody else uses it.
        :param group: the name that the offsets have in Queuey.
        """
        self._inner = coordinator
        self._client = client
        self._group = group
        self._lock = threading.Lock()
        self._generations: dict[Claim, int] = {}

    def join(self, about: Mapping[str, Any]) -> str:
        self._generations.clear()
        return self._inner.join(about)

    def tell(self, about: Mapping[str, Any]) -> None:
        self._inner.tell(about)

    def leave(self) -> None:
        self._inner.leave()

    def trusted(self) -> bool:
        return self._inner.trusted()

    def members(self) -> Sequence[Member]:
        return self._inner.members()

    def plan(self) -> Plan:
        return self._inner.plan()

    def propose(self, plan: Plan) -> bool:
        return self._inner.propose(plan)

    def claim(self, partitions: Collection[Partition]) -> Mapping[Claim, Offset | None]:
        claims = {claim.partition: claim for claim in self._inner.claim(partitions)}
        numbers: dict[str, list[int]] = defaultdict(list)
        for queue, number in claims:
            numbers[queue].append(number)
        found: dict[Claim, Offset | None] = {}
        for queue, some in numbers.items():
            for offset in self._take_over(queue, some):
                claim = claims[Partition(queue, offset.partition)]
                self._generations[claim] = offset.generation
                found[claim] = _offset(offset)
        return found

    def _take_over(self, queue: str, numbers: Sequence[int]) -> list[GroupOffset]:
        with self._asking() as client:
            for attempt in range(_TAKE_OVERS):
                try:
                    before = client.offsets(queue, self._group)
                    generation = max(offset.generation for offset in before if offset.partition in numbers) + 1
                    return client.take_over(queue, self._group, numbers, generation)
                except StaleGeneration:
                    if attempt == _TAKE_OVERS - 1:
                        raise
                except QueueNotFound:
                    return []  # the next plan does not have it
        return []

    def release(self, claims: Collection[Claim]) -> None:
        for claim in claims:
            self._generations.pop(claim, None)
        self._inner.release(claims)

    def commit(self, offsets: Mapping[Claim, Offset]) -> Collection[Claim]:
        refused = [claim for claim in offsets if claim not in self._generations]
        together: dict[tuple[str, int], list[Claim]] = defaultdict(list)
        for claim in offsets:
            if claim in self._generations:
                together[claim.partition.queue, self._generations[claim]].append(claim)
        for (queue, generation), claims in together.items():
            if not self._commit(queue, generation, claims, offsets):
                refused += [claim for claim in claims if not self._commit(queue, generation, [claim], offsets)]
        return refused

    def _commit(self, queue: str, generation: int, claims: Sequence[Claim], offsets: Mapping[Claim, Offset]) -> bool:
        """:returns: False if one of them has a newer owner; then nothing was recorded."""
        ids = {claim.partition.number: offsets[claim].message_id for claim in claims}
        with self._asking() as client:
            try:
                client.commit_offsets(queue, self._group, ids, generation)
            except StaleGeneration:
                return False
            except QueueNotFound:
                return True  # its offsets went with it
        return True

    def owners(self) -> Mapping[Partition, tuple[str, int]]:
        return self._inner.owners()

    def offsets(self) -> Mapping[Partition, Offset]:
        found: dict[Partition, Offset] = {}
        for queue in sorted({partition.queue for partition in self.plan().partitions()}):
            with self._asking() as client:
                try:
                    offsets = client.offsets(queue, self._group)
                except QueueNotFound:
                    continue
            for offset in offsets:
                if (at := _offset(offset)) is not None:
                    found[Partition(queue, offset.partition)] = at
        return found

    def reset(self, offsets: Mapping[Partition, Offset | None]) -> None:
        ids: dict[str, dict[int, MessageId | str | None]] = defaultdict(dict)
        for (queue, number), offset in offsets.items():
            ids[queue][number] = None if offset is None else offset.message_id
        for queue, some in ids.items():
            with self._asking() as client:
                client.reset_offsets(queue, self._group, some)

    def close(self) -> None:
        self._inner.close()
        with self._lock:
            self._client.close()

    @property
    def changed(self) -> Callable[[], None]:
        return self._inner.changed

    @changed.setter
    def changed(self, called: Callable[[], None]) -> None:
        self._inner.changed = called

    @contextmanager
    def _asking(self) -> Iterator[Client]:
        with self._lock:
            try:
                yield self._client
            except QueueyError as error:
                raise CoordinatorUnavailable(f"offsets in Queuey: {error}") from error


def _offset(found: GroupOffset) -> Offset | None:
    return None if found.id is None else Offset(found.incarnation, found.id)
