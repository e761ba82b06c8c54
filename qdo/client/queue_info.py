"""What is known of a queue without reading it."""

from __future__ import annotations

from dataclasses import dataclass

from qdo.client.values import Json, QueueSettings, id_or_none
from queuey.ids import MessageId

__all__ = ["PartitionInfo", "QueueInfo"]


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """What lies in one partition."""

    number: int
    depth: int
    scheduled: int
    oldest: MessageId | None
    newest: MessageId | None
    bytes: int
    """Bytes of the bodies."""
    rate: float | None = None
    """Appends a second in the last minute at the server that answered; None if it counts them from now on."""

    @classmethod
    def from_wire(cls, entry: Json) -> PartitionInfo:
        return cls(
            entry["partition"],
            entry["depth"],
            entry["scheduled"],
            id_or_none(entry, "oldest"),
            id_or_none(entry, "newest"),
            entry["bytes"],
            entry["rate"],
        )


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """Everything that is known about a queue without reading it."""

    settings: QueueSettings
    application: str
    uuid: str
    """Of this incarnation. A queue that was deleted and made anew has another one."""
    depth: int
    scheduled: int
    watermark: str
    partitions: tuple[PartitionInfo, ...]
    bytes: int
    """Bytes of the bodies, in all partitions."""
    tag: str
    """The ETag of the settings, for ``if_match`` of :meth:`~qdo.client.Client.update_queue`. Empty if a proxy took it away."""

    @classmethod
    def from_wire(cls, entry: Json, tag: str) -> QueueInfo:
        return cls(
            QueueSettings.from_wire(entry),
            entry["application"],
            entry["uuid"],
            entry["depth"],
            entry["scheduled"],
            entry["watermark"],
            tuple(PartitionInfo.from_wire(part) for part in entry["partition_details"]),
            entry["bytes"],
            tag,
        )
