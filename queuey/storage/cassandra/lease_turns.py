"""Which server makes the next transaction of a group.

Of servers that make transactions of one group at once, all but one lose theirs. So the one goes first whose last step is
longest ago: the names of the steps beside a group's version tell whose they were. The others wait, and their calls
gather. This is a hint and no right. A server that does not take its turn is passed over after a moment, and two that
take one turn meet in a compare-and-set.
"""

from __future__ import annotations

from math import inf

from queuey.storage.cassandra.lease_heads import GroupHead, StepName

__all__ = ["LeaseTurns"]

_ACTIVE_SECONDS = 0.5
"""A server takes part if its last step was seen within this time."""
_MET_SECONDS = 2.0
"""Servers have met if each has made steps, or wants one, within this time."""
_LEAST_SLOT_SECONDS, _MOST_SLOT_SECONDS = 0.005, 0.15
"""How long a server whose turn it is may take to make its transaction."""
_STEPS = 32
"""The last ones, which are looked at."""
_USUAL = 3
"""Nearly all take less than this many times the mean."""
_EARLY = 0.7
"""A server looks early whether its turn has come."""
_LEARNS = 0.2
"""The share of the last transaction in what is expected of the next one."""


class LeaseTurns:
    """The turns of one group, as one server sees them. One thread at a time uses it. Moments are seconds of elapsed time."""

    def __init__(self, server: int) -> None:
        """:param server: see :class:`~queuey.storage.cassandra.lease_heads.StepName`."""
        self.server = server
        self._steps = 0
        self._version = 0
        self._since = 0.0
        """When the version was seen first."""
        self._own, self._own_at = 0, 0.0
        """The version of this server's last step, and when it was made."""
        self._asked, self._asked_at = 0, -inf
        """The version when this server began to wait, and when that was."""
        self._others: dict[int, tuple[int, float]] = {}
        """By server, the version of its last step, and when that was seen."""
        self._took = _LEAST_SLOT_SECONDS
        """What a transaction takes."""
        self._met = (-inf, -inf)
        """When this server last saw steps of others while it used the group itself, and when it did so before that."""

    def name(self, rows: int) -> StepName:
        """Of the next step."""
        self._steps = (self._steps + 1) % (1 << 16)
        return StepName(self.server, self._steps, rows)

    def note(self, head: GroupHead, now: float) -> None:
        """Note a version of the group that was seen."""
        if head.version < self._version:  # the group has begun anew
            self._version, self._own_at = 0, 0.0
            self._others.clear()
        is_in_use = self._version > 0 and now - max(self._own_at, self._asked_at) < _MET_SECONDS
        for version in range(max(self._version, head.version - _STEPS) + 1, head.version + 1):
            step = head.step(version)
            if step is not None and step.server == self.server:
                self._own, self._own_at = version, now
            elif step is not None:
                self._others[step.server] = (version, now)
                if is_in_use:
                    self._met = (now, self._met[0])
        if head.version > self._version:
            self._version, self._since = head.version, now

    def took(self, seconds: float, *, is_lost: bool) -> None:
        """Note what a transaction took. If it is lost, others need more time."""
        self._took += _LEARNS * (min(seconds, _MOST_SLOT_SECONDS) - self._took)
        if is_lost:
            self._took = min(2 * self._took, _MOST_SLOT_SECONDS)

    @property
    def slot(self) -> float:
        """Seconds that a server has for its transaction."""
        return min(max(_USUAL * self._took, _LEAST_SLOT_SECONDS), _MOST_SLOT_SECONDS)

    def have_met(self, now: float) -> bool:
        """Whether this server and others make steps at once. A single step says nothing: settings may have changed."""
        return now - self._met[1] < _MET_SECONDS

    def met(self, now: float) -> list[int]:
        """The servers whose steps were seen lately."""
        return [server for server, (_, seen) in self._others.items() if now - seen < _MET_SECONDS]

    def ask(self, now: float) -> None:
        """This server begins to wait for its turn."""
        self._asked, self._asked_at = self._version, now

    def left(self, now: float) -> float:
        """Seconds until it is this server's turn, if no other one takes its own."""
        self._others = {server: last for server, last in self._others.items() if now - last[1] < _ACTIVE_SECONDS}
        return max(self._since + len(self._before(now)) * self.slot - now, 0.0)

    def expected(self, now: float) -> float:
        """Seconds until it is likely this server's turn, if each server takes its own."""
        return self._since + _EARLY * len(self._before(now)) * self._took - now

    def _before(self, now: float) -> list[int]:
        """The servers whose turn comes before.

        The others do not count on a server that has done nothing lately. It lets one of them go, and then comes first.
        """
        servers = sorted(self._others, key=lambda server: self._others[server][0])
        if now - self._own_at >= _ACTIVE_SECONDS:
            return servers[:1] if self._version == self._asked else []
        return [server for server in servers if self._others[server][0] < self._own]

    def take(self, now: float) -> None:
        """This server goes now. Those that have let their turn pass do not take part until their next step."""
        for server in self._before(now):
            del self._others[server]
