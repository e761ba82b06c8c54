"""What writers were told about their writes, and what a store must therefore hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from qdo.client import Appended, Client, HasLocation, Message
from qdo.measure import loss
from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.ids import MessageId

T = TypeVar("T")

Place = tuple[int, MessageId]
Value = bytes | None
"""A body; None is no message."""


def place_of(where: HasLocation) -> Place:
    return where.partition, where.id


@dataclass
class Effects:
    """Every operation ends ``ok``, ``refused`` or ``unknown``; what may be at each place follows from that."""

    values: dict[Place, list[Value]] = field(default_factory=dict)
    """What may stand at a place: one value once that is certain."""
    homeless: set[bytes] = field(default_factory=set)
    """Bodies of appends whose outcome is unknown: they may be anywhere, or nowhere."""
    turned_away: set[bytes] = field(default_factory=set)
    """Bodies that were refused: they must be nowhere."""
    ok: int = 0
    refused: int = 0
    unknown: int = 0

    def append(self, bodies: Sequence[bytes], send: Callable[[], Sequence[Appended]]) -> Sequence[Appended]:
        """One append of one or more bodies; the places that were acknowledged, none unless it was."""
        try:
            placed = send()
        except StorageUnavailable:
            self.refused += 1
            self.turned_away.update(bodies)
            return []
        except OutcomeUnknown:
            self.unknown += 1
            self.homeless.update(bodies)
            return []
        self.ok += 1
        for where, body in zip(placed, bodies, strict=True):
            self.values[place_of(where)] = [body]
        return placed

    def change(self, place: Place, value: Value, send: Callable[[], object]) -> None:
        """An overwrite or a deletion of what stands at a place."""
        try:
            send()
        except StorageUnavailable:
            self.refused += 1
        except OutcomeUnknown:
            self.unknown += 1
            self.values[place].append(value)
        else:
            self.ok += 1
            self.values[place] = [value]

    @property
    def certain(self) -> list[tuple[Place, Value]]:
        """What was acknowledged and not made uncertain since."""
        return [(place, values[0]) for place, values in self.values.items() if len(values) == 1]

    def judge(self, stored: Iterable[Message]) -> Verdict:
        """Compare with all that a reader finds in the queue."""
        found = {place_of(message): message.body for message in stored}
        strangers = [body for place, body in found.items() if place not in self.values]
        return Verdict(
            stored=len(found),
            lost=loss(self.certain, [(place, found.get(place)) for place in self.values]),
            wrong=[place for place, values in self.values.items() if found.get(place) not in values],
            unacknowledged=[body for body in strangers if body in self.homeless],
            from_nowhere=[body for body in strangers if body not in self.homeless],
        )


@dataclass(frozen=True)
class Verdict:
    """What a reader found, beside what it should have."""

    stored: int
    lost: list[tuple[Place, Value]]
    """Acknowledged effects that are not there: a message gone, an overwrite undone, a deleted message back."""
    wrong: list[Place]
    """Places with a value that no outcome explains."""
    unacknowledged: list[bytes]
    """Stored though the writer was never told: allowed, and counted."""
    from_nowhere: list[bytes]
    """Stored though refused, or never sent."""


def everything(client: Client, queue: str) -> list[Message]:
    """All messages of a queue up to its watermark."""
    return list(client.iterate(queue))
