"""What the rows of a lease group in Cassandra have in common, and how they are named."""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from queuey.model.lease_groups import LeaseGroup

__all__ = ["ROW_BITS", "GroupHead", "GroupPlace", "Parcel", "StepName"]

_STEP = struct.Struct("<IHH")
_STEPS = 32
"""Steps whose names are kept."""
ROW_BITS = 16
"""The number of a row is the version that brought it, shifted by this, and its place among those of the version."""

GroupPlace = tuple[UUID, str]
"""A queue and the name of a group: the key of the group's Cassandra partition."""


class StepName(NamedTuple):
    """The identity of a step among those that would have made the same version."""

    server: int
    """Of 32 random bits."""
    turn: int
    """Another one for each step of a server, in 16 bits."""
    rows: int = 0
    """Changes of states that it has stored, in 16 bits."""

    def encode(self) -> bytes:
        return _STEP.pack(*self)


def read_step(name: bytes) -> StepName:
    """The inverse of :meth:`StepName.encode`."""
    return StepName(*_STEP.unpack(name))


class Parcel(NamedTuple):
    """The name of messages in a group's rows that are to be appended."""

    number: int
    """The version that brought them."""
    part: int

    def key(self, token: int) -> tuple[int, str]:
        """The rest of the row's key. A deletion is dated ahead, and must not hit a parcel of the group's next life."""
        return self.number, f"{self.part} {token}"

    @classmethod
    def of_key(cls, number: int, label: str) -> Parcel:
        """The inverse of :meth:`key`."""
        return cls(number, int(label.split(maxsplit=1)[0]))


class GroupHead(NamedTuple):
    """What a group's rows have in common."""

    group: LeaseGroup
    version: int
    """Rises by one with each change."""
    moment: int
    """Of the last step, in ticks on the clock of leases."""
    steps: bytes
    """The names of the last steps, the newest first."""
    newest: int = 0
    """The version that brought the newest parcel."""
    carried: int = 0
    """Parcels of this version and before are appended."""
    parts: int = 0
    """Changes are of the partitions up to this number."""

    def next(self, step: StepName) -> GroupHead:
        """As a step leaves it."""
        steps = (step.encode() + self.steps)[: _STEP.size * _STEPS]
        return self._replace(version=self.version + 1, steps=steps)

    def step(self, version: int) -> StepName | None:
        """The step that made a version; None if it is not kept any more."""
        at = (self.version - version) * _STEP.size
        name = self.steps[at : at + _STEP.size]
        return read_step(name) if name else None

    @property
    def named_since(self) -> int:
        """The names of the steps behind this version are kept."""
        return self.version - len(self.steps) // _STEP.size

    @property
    def least_number(self) -> int:
        """Of the changes of the next version."""
        return self.version + 1 << ROW_BITS
