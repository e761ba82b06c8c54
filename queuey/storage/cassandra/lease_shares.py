"""What one server of a weak lease group hands out before others do.

Servers do not ask each other. Each knows which others hand out messages, and all give a message to the same one of them
by its id (rendezvous hashing). So they rarely hand out the same message at once. docs/decisions/027.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from hashlib import blake2b

from queuey.ids import MessageId
from queuey.model.lease_requests import Received
from queuey.model.lease_rules import Share
from queuey.model.lease_spread import MOST_K, Spread

__all__ = ["ACTIVE_SECONDS", "SharedPicking"]

ACTIVE_SECONDS = 5.0
"""A server hands messages out if it has done so in the last seconds."""
_EACH = 8
"""A receive looks at this many messages for each server, at least: nearly always one of them is its own."""
_LEAST_WAIT_SECONDS, _MOST_WAIT_SECONDS = 0.01, 0.4
"""How long a message is left to the server whose share it is in."""
_STEPS = 4
"""Or this many times what a step of this server takes. Servers that come to it later leave it for half as long again each:
else they would all take it at once if its own server does not."""
_REMEMBERED = 0.95
"""Of a slow step, with each step after it: a quick one does not say that those of the others are quick, too."""


class SharedPicking:
    """What one server knows of the others of a group; see :class:`queuey.storage.leasing.access.Picking`."""

    def __init__(self, lane: int) -> None:
        self._lane = lane
        self.now = 0.0
        """When the lanes of others were looked at last, in seconds."""
        self._active: dict[int, float] = {}
        """By lane of another server, when it was seen to hand out messages."""
        self._new: dict[int, float] = {}
        """By lane of a server that has handed out nothing yet, when it was seen to come."""
        self._of_partition: defaultdict[int, dict[int, float]] = defaultdict(dict)
        """As ``_active``, by partition."""
        self._spreads: defaultdict[int, Spread] = defaultdict(Spread)
        self._left: dict[int, dict[MessageId, float]] = {}
        """By partition, the next messages in the shares of others, and since when they are left to them."""
        self._step_seconds = 0.0

    def spread(self, partition: int) -> Spread:
        return self._spreads[partition]

    def comes(self, lane: int) -> None:
        """Another server has come."""
        self._new[lane] = self.now

    def hands_out(self, lane: int, partition: int) -> None:
        """Another server has handed out messages of a partition."""
        self._new.pop(lane, None)
        self._active[lane] = self._of_partition[partition][lane] = self.now

    def stored(self, at: float) -> None:
        """What this server has handed out is stored."""
        self._step_seconds = max(at - self.now, self._step_seconds * _REMEMBERED)

    # As Picking says

    def k(self, partition: int) -> int:
        return min(max(self._spreads[partition].k, _EACH * self._servers(partition)), MOST_K)

    def share(self, partition: int) -> Share | None:
        others = self._others(partition)
        if not others:
            return None
        lane = self._lane

        def rank(message_id: MessageId) -> int:
            own = _weight(lane, *message_id)
            return sum([_weight(other, *message_id) > own for other in others])

        wait = min(max(_STEPS * self._step_seconds, _LEAST_WAIT_SECONDS), _MOST_WAIT_SECONDS)
        left, now = self._left.get(partition, {}), self.now

        def is_free(message_id: MessageId, rank: int) -> bool:
            return now - left.get(message_id, now) >= wait * (1 + rank) / 2

        return Share(len(others) + 1, rank, is_free)

    def note_shared(self, partition: int, received: Received) -> None:
        left, now = self._left.pop(partition, {}), self.now
        if received.left:
            self._left[partition] = {message_id: left.get(message_id, now) for message_id in received.left}

    def is_left(self, partition: int) -> bool:
        own = _weight(self._lane, partition)
        return any(_weight(lane, partition) > own for lane in self._recent(self._active))

    def _servers(self, partition: int) -> int:
        """How many share a partition, for a factor: 0 if it is this server's alone."""
        others = self._others(partition)
        return len(others) + 1 if others else 0

    def _others(self, partition: int) -> Collection[int]:
        """Other servers that hand out messages of a partition, or may begin to."""
        of_partition = self._active if self.is_left(partition) else self._of_partition[partition]
        return {*self._recent(of_partition), *self._recent(self._new)}

    def _recent(self, seen: dict[int, float]) -> list[int]:
        for lane in [lane for lane, at in seen.items() if self.now - at >= ACTIVE_SECONDS]:
            del seen[lane]
        return [*seen]


def _weight(lane: int, *what: int) -> bytes:
    """Of a server in a partition, or for a message: the greatest hands it out."""
    return blake2b(b"%d " % lane + b" ".join([b"%d" % one for one in what]), digest_size=8).digest()
