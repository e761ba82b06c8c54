"""What lease groups hold, as gauges.

The age of a message that waits rises by itself, so no step of a group can tell it. A thread looks at the groups that this
server has used last.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from queuey.background import BackgroundWork
from queuey.clock import Clock
from queuey.errors import QueueyError
from queuey.ids import TICKS_PER_SECOND
from queuey.model import Queue
from queuey.monitor.metrics import (
    LEASE_GROUPS,
    LEASE_GROUPS_CLOSED_KEYS,
    LEASE_GROUPS_HELD,
    LEASE_GROUPS_LEASED,
    LEASE_GROUPS_OLDEST,
    Monitor,
)
from queuey.service.log import Log
from queuey.storage import LeaseStore

__all__ = ["HeldFigures"]

log = logging.getLogger(__name__)

MOST_GROUPS = 1000
"""Groups that are reported: those that were used last."""
MOST_PARTITIONS = 500
"""Partitions that are looked at in one turn. The next turn goes on with other groups."""
REST_SECONDS = 10.0
"""Between two turns."""

_Key = tuple[int, str]
"""A queue, by the number of its uuid, and a group: quick to hash, for each step does it."""


class _Held(NamedTuple):
    """What one group holds in all partitions."""

    holes: int = 0
    leased: int = 0
    closed_keys: int = 0
    oldest: int | None = None
    """The id of the oldest message that it has not settled, in ticks; None if there is none."""


class _Group(NamedTuple):
    queue: Queue
    name: str
    held: _Held = _Held()


class HeldFigures(BackgroundWork):
    """What the groups hold that one server has used since it began. Thread-safe."""

    def __init__(self, leases: LeaseStore, log: Log, clock: Clock, monitor: Monitor) -> None:
        super().__init__("lease figures", REST_SECONDS)
        self._leases, self._log = leases, log
        self._clock, self._monitor = clock, monitor
        self._used: dict[_Key, Queue] = {}
        """Groups that were used since the last turn."""
        self._groups: OrderedDict[_Key, _Group] = OrderedDict()
        """The one that was used last comes last."""
        self._left: deque[_Key] = deque()
        """Groups that are looked at before any other is looked at again."""
        self._reported: set[str] = set()

    def note(self, queue: Queue, name: str) -> None:
        """A lease group has done a step."""
        if len(self._used) < MOST_GROUPS and ":" not in name:  # a colon: the group of a task
            self._used[queue.uuid.int, name] = queue
            self.wake()

    async def turn(self) -> None:
        """Look at some groups, and report all."""
        self._take_used()
        room = MOST_PARTITIONS
        if not self._left:
            self._left.extend(self._groups)
        while self._left and room > 0 and not self.stopping:
            key = self._left.popleft()
            group = self._groups.get(key)
            if group is None:
                continue
            room -= group.queue.partitions
            try:
                held = await self._look_at(group.queue, group.name)
            except QueueyError as error:
                log.debug("what a lease group holds is as it was seen before: %s", error)
                continue
            if held is None:
                del self._groups[key]
            else:
                self._groups[key] = group._replace(held=held)
        self._report([*self._groups.values()])
        if self._groups:
            self.wake()  # the ages rise by themselves

    def _take_used(self) -> None:
        used, self._used = self._used, {}
        for key, queue in [*used.items()]:  # a step may still add to it
            held = self._groups.pop(key).held if key in self._groups else _Held()
            self._groups[key] = _Group(queue, key[1], held)
        while len(self._groups) > MOST_GROUPS:
            self._groups.popitem(last=False)

    async def _look_at(self, queue: Queue, name: str) -> _Held | None:
        """What a group holds; None if there is no such group any more."""
        counts = await self._leases.count(queue.uuid, name, range(1, queue.partitions + 1))
        if not counts:
            return None
        behind = await self._log.first_behind(queue, {number: one.done_up_to for number, one in counts.items()})
        each = counts.values()
        return _Held(
            sum(one.holes for one in each),
            sum(one.leased for one in each),
            sum(one.closed_keys for one in each),
            min([one.ticks for one in behind.values()], default=None),
        )

    def _report(self, groups: Sequence[_Group]) -> None:
        of_application: defaultdict[str, list[_Held]] = defaultdict(list)
        for group in groups:
            of_application[group.queue.application].append(group.held)
        now = self._clock.now_ticks()
        for application in self._reported | of_application.keys():
            held = of_application[application]
            ages = [(now - one.oldest) / TICKS_PER_SECOND for one in held if one.oldest is not None]
            for gauge, value in (
                (LEASE_GROUPS, len(held)),
                (LEASE_GROUPS_HELD, sum(one.holes for one in held)),
                (LEASE_GROUPS_LEASED, sum(one.leased for one in held)),
                (LEASE_GROUPS_CLOSED_KEYS, sum(one.closed_keys for one in held)),
                (LEASE_GROUPS_OLDEST, max(0.0, *ages) if ages else 0.0),
            ):
                self._monitor.set(gauge, value, application)
            self._reported.add(application)
