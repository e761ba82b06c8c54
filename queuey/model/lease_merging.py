"""One partition of a weak lease group, as one server sees it: its own changes, and those that it learns of others.

Each server carries out steps on what it knows, and others learn of them a moment later. A change that moves the frontier
says where it began, so it covers the messages in between and no others. What nobody covers is not settled: a change that
got lost lets messages be handed out twice, and none be lost. docs/decisions/027.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from queuey.ids import MessageId
from queuey.model.holes import LEASED, Hole
from queuey.model.lease_codec import decode_changes
from queuey.model.lease_state import Change, LeaseState

__all__ = ["LearnedChange", "Merger", "since_each"]

T = TypeVar("T")

_MOST_REMEMBERED = 20_000
"""Messages whose end, or last lease, is remembered."""
_MOST_MADE_BYTES = 1 << 20
"""What this server has changed and nobody has asked for yet: some 20,000 messages in any case."""
_MOST_WAITING = 1000
"""Changes that wait for others before them."""


class LearnedChange(NamedTuple):
    """A change that another server has made."""

    since: MessageId
    """The frontier from which it moves on."""
    change: Change
    is_after: bool = False
    """Of leases that began in the same moment, those of the other server count as the later ones."""


def since_each(since: MessageId, changes: Sequence[Change], *, is_after: bool) -> Iterator[LearnedChange]:
    """Changes that were made one after the other, each with the frontier from which it moves on."""
    for change in changes:
        yield LearnedChange(since, change, is_after)
        since = change.frontier or since


class Merger:
    """What one server needs beside the state of a partition to merge the changes of others into it."""

    def __init__(self) -> None:
        self._closed: OrderedDict[MessageId, None] = OrderedDict()
        """Messages that were settled lately. A lease that is learned of later does not open them again."""
        self._given: OrderedDict[MessageId, int] = OrderedDict()
        """Messages that this server handed out lately, and when, in ticks."""
        self._waiting: deque[LearnedChange] = deque(maxlen=_MOST_WAITING)
        self._made: deque[bytes] = deque()
        """Changes of this server that are not in the above yet."""
        self._made_bytes = 0

    def made(self, changes: bytes) -> None:
        """Note what this server has changed. Until there are changes of others, nobody asks for it.

        :param changes: as :func:`~queuey.model.lease_codec.encode_change` makes them.
        """
        self._made.append(changes)
        self._made_bytes += len(changes)
        while self._made_bytes > _MOST_MADE_BYTES and len(self._made) > 1:
            self._made_bytes -= len(self._made.popleft())

    def _note_made(self) -> None:
        while self._made:
            for change in decode_changes(self._made.popleft()):
                self._note_closed(change.closed)
                for hole in _leases(change):
                    _note(self._given, hole.id, hole.leased_at)
        self._made_bytes = 0

    def forget_waiting(self) -> None:
        """The state is read anew, and so are changes that wait."""
        self._waiting.clear()

    def learn(self, state: LeaseState, learned: LearnedChange, take: Callable[[Change], None]) -> int:
        """Merge a change of another server.

        :param take: carries out a change of ``state``.
        :returns: how many messages this server handed out while they had a receiver of the other.
        """
        self._note_made()
        duplicates = self._duplicates(learned)
        self._note_closed(learned.change.closed)
        self._waiting.append(learned)
        return duplicates + self.retry(state, take)

    def retry(self, state: LeaseState, take: Callable[[Change], None]) -> int:
        """Merge the changes that waited until the messages before them were covered.

        :returns: as :meth:`learn`.
        """
        if not self._waiting:
            return 0
        self._note_made()
        duplicates, is_moving = 0, True
        while is_moving:
            is_moving = False
            for _ in range(len(self._waiting)):
                learned = self._waiting.popleft()
                merged = self._merged(state, learned)
                if merged is None:
                    self._waiting.append(learned)
                else:
                    take(merged)
                    duplicates += self._duplicates(learned)
                    is_moving = bool(self._waiting)
        return duplicates

    def _merged(self, state: LeaseState, learned: LearnedChange) -> Change | None:
        """The change as it applies to a state; None if messages before it are not covered yet."""
        since, change, _ = learned
        frontier = state.frontier
        if change.frontier is not None and change.frontier > frontier:
            if since > frontier:
                return None
            frontier = change.frontier
        holes = [hole for hole in _holes(change) if hole.id not in self._closed and _is_news(state, hole)]
        if any(hole.id > frontier for hole in holes):
            return None
        return Change(
            frontier if frontier > state.frontier else None,
            holes=holes,
            closed=[one for one in change.closed if state.holes.find(one) is not None],
            renewals={
                name: renewal
                for name, renewal in change.renewals.items()
                if name not in state.renewals or renewal.until > state.renewals[name].until
            },
            reasons={hole.id: change.reasons[hole.id] for hole in holes if hole.id in change.reasons},
            dead=change.dead,
        )

    def _duplicates(self, learned: LearnedChange) -> int:
        """Messages that this server handed out after the other, while the other's lease ran."""
        found = 0
        for hole in _leases(learned.change):
            if hole.leased_at + learned.is_after <= self._given.get(hole.id, -1) < hole.visible_at:
                found += 1
                del self._given[hole.id]  # it counts once, also if the other extends its lease
        return found

    def _note_closed(self, closed: Sequence[MessageId]) -> None:
        for message_id in closed:
            _note(self._closed, message_id, None)


def _holes(change: Change) -> Iterator[Hole]:
    """All holes that a change makes or changes."""
    for ticks, tails, hole in change.fresh:
        for message_id in map(MessageId, ticks, tails):
            yield hole._replace(id=message_id)
    yield from change.holes


def _leases(change: Change) -> Iterator[Hole]:
    return (hole for hole in _holes(change) if hole.flags & LEASED)


def _is_news(state: LeaseState, hole: Hole) -> bool:
    """Whether another server knows something later of a message."""
    known = state.holes.find(hole.id)
    return known is None or (hole.deliveries, hole.leased_at) >= (known.deliveries, known.leased_at)


def _note(noted: OrderedDict[MessageId, T], message_id: MessageId, value: T) -> None:
    noted.pop(message_id, None)
    noted[message_id] = value
    while len(noted) > _MOST_REMEMBERED:
        noted.popitem(last=False)
