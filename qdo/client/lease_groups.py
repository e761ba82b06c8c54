"""What the client knows of lease groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qdo.client.values import Json
from queuey.ids import MessageId

__all__ = ["LeaseGroup", "LeasePartition"]


@dataclass(frozen=True, slots=True)
class LeasePartition:
    """What a group holds in one partition."""

    number: int
    held: int
    """Messages that are leased or wait."""
    leased: int
    dead: int
    """Messages that went to the dead letters."""
    closed_keys: int
    """Keys whose messages wait for an earlier one of the same key."""
    k: int
    """A receive at the server that answered picks at random among this number of messages."""
    done_up_to: str | None
    """All messages up to here are settled. It has the form of an id, but may lie between those of messages."""
    handed_up_to: str | None
    """No message behind this one was handed out yet."""
    oldest: MessageId | None
    """The oldest message that is not settled."""
    more: bool | None
    """There are messages that were never handed out, scheduled ones aside. One that is younger than the read delay counts,
    though no receiver gets it yet. None while the clock of the server is unsafe."""
    waiting: int = 0
    """Messages that wait for another try, or are given up and not moved yet."""
    oldest_age: float | None = None
    """Seconds since the oldest message that is not settled was due, by the clock of the server."""
    visible: int | None = None
    """Messages that a receive may hand out now. As the next two, None unless it was asked for."""
    hidden: int | None = None
    """Messages that are leased, or wait for another try."""
    delayed: int | None = None
    """Messages that are not due yet, and were never handed out."""

    @classmethod
    def from_wire(cls, entry: Json) -> LeasePartition:
        return cls(
            entry["partition"],
            entry["held"],
            entry["leased"],
            entry["dead"],
            entry["closed_keys"],
            entry["k"],
            entry["done_up_to"],
            entry["handed_up_to"],
            None if entry["oldest"] is None else MessageId.parse(entry["oldest"]),
            entry["more"],
            entry["waiting"],
            entry["oldest_age"],
            entry.get("visible"),
            entry.get("hidden"),
            entry.get("delayed"),
        )


@dataclass(frozen=True, slots=True)
class LeaseGroup:
    """A lease group of a queue."""

    name: str
    settings: Mapping[str, Any] = field(hash=False)
    """By their names on the wire."""
    partitions: tuple[LeasePartition, ...]

    @classmethod
    def from_wire(cls, entry: Json) -> LeaseGroup:
        partitions = tuple(map(LeasePartition.from_wire, entry["partitions"]))
        return cls(entry["group"], entry["settings"], partitions)
