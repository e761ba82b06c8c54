"""How far a streaming query is.

The last id read of each partition, by queue and incarnation.

The form is JSON: ``{"v":1,"queues":{"orders":{"u":"<incarnation>","p":{"1":"<id>"}}}}``. Members are always in the same
order, since Spark compares offsets as texts. A partition that is not named is at its beginning,
which a query with ``startingTimestamp`` names once it makes a micro-batch. An offset has no clock:
one that moved with time would make a micro-batch at every trigger. ``"tasks"`` says how many tasks read the micro-batch
that ends here. A batch that is repeated is divided as before; otherwise its tasks would send other requests (G7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from queuey.errors import ConfigurationError
from queuey.ids import ZERO_ID, MessageId

VERSION = 1


@dataclass(frozen=True)
class QueueOffset:
    """How far a query is in one queue."""

    incarnation: str
    ids: Mapping[int, MessageId]

    def at(self, partition: int) -> MessageId:
        """The last id read; :data:`~queuey.ids.ZERO_ID` before the first."""
        return self.ids.get(partition, ZERO_ID)


Offsets = Mapping[str, QueueOffset]
"""By queue."""


def to_json(offsets: Offsets, tasks: int | None = None) -> dict[str, Any]:
    """:param tasks: that read the micro-batch which ends here; None if no micro-batch ends at the offset."""
    return {
        "v": VERSION,
        **({} if tasks is None else {"tasks": tasks}),
        "queues": {
            name: {
                "u": offset.incarnation,
                "p": {str(number): offset.ids[number].hex for number in sorted(offset.ids)},
            }
            for name, offset in sorted(offsets.items())
        },
    }


def from_json(told: Mapping[str, Any]) -> dict[str, QueueOffset]:
    """:raises ConfigurationError: it is no offset of this source, or it is of a later version.

    >>> from_json({"v": 1, "queues": {"q": {"u": "00", "p": {"2": "1f9f6640e56711f189bf02fc00000001"}}}})["q"].at(1) == ZERO_ID
    True
    """
    if told.get("v") != VERSION:
        raise ConfigurationError(
            f"the checkpoint has offsets of version {told.get('v')!r}, this version of qdo knows {VERSION}: it is of a newer "
            "version, or of another source"
        )
    return {
        name: QueueOffset(entry["u"], {int(number): MessageId.parse(text) for number, text in entry["p"].items()})
        for name, entry in told["queues"].items()
    }
