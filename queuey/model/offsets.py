"""How far a group has got in a partition, and what may move it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from queuey.errors import InvalidParameter, OffsetMovesBack, StaleGeneration
from queuey.ids import MessageId

MAX_GENERATION = (1 << 63) - 1
MAX_GENERATION_STEP = 1 << 40
"""The most that one change raises a generation. At the greatest generation no owner could be fenced off any more
(G14)."""


class Offset(NamedTuple):
    """How far a group has got in one partition."""

    id: MessageId | None = None
    """The last message that it has finished; None before the first."""
    generation: int = 0
    """The generation of the owner that claimed the partition last."""
    set_ticks: int | None = None
    """When the id was last set; None if it never was."""


class OffsetMove(NamedTuple):
    """An offset before and after a change."""

    before: Offset
    after: Offset


class OffsetChange(NamedTuple):
    """A change of a group's offsets in some partitions, all of them or none."""

    ids: Mapping[int, MessageId | None]
    """Ids by partition, at least one. None leaves the id as it is and raises only the generation: so an owner takes
    over. In a reset None is the beginning."""
    generation: int = 0
    """The generation of the owner that asks; a reset has none."""
    resets: bool = False
    """A reset by hand: to any id, whichever owner the partition has. It raises the generation by one, so that the
    former owner cannot commit what comes after the former offset."""

    def moves(self, stored: Mapping[int, Offset], now_ticks: int) -> dict[int, OffsetMove]:
        """The changes of the stored offsets.

        :raises StaleGeneration: a partition was claimed with a greater generation (G14).
        :raises OffsetMovesBack: an id is lower than the stored one.
        :raises InvalidParameter: the generation is too far above a stored one.
        """
        before = {number: stored.get(number, Offset()) for number in sorted(self.ids)}
        if not self.resets:
            self._check(before)
        return {number: OffsetMove(offset, self._after(number, offset, now_ticks)) for number, offset in before.items()}

    def _check(self, before: Mapping[int, Offset]) -> None:
        for number, (_, generation, _) in before.items():
            if generation > self.generation:
                raise StaleGeneration(
                    f"partition {number} was claimed with generation {generation}, or reset, and this request has "
                    f"{self.generation}: stop work on it, and claim it anew with {generation} or more; nothing was changed"
                )
            if self.generation - generation > MAX_GENERATION_STEP:
                raise InvalidParameter(
                    problems={
                        "generation": f"is {self.generation}, and partition {number} has {generation}: it may rise by "
                        f"{MAX_GENERATION_STEP} at once; count owners from 1; nothing was changed"
                    }
                )
        for number, (stored, _, _) in before.items():
            wanted = self.ids[number]
            if wanted is not None and stored is not None and wanted < stored:
                raise OffsetMovesBack(
                    f"the offset of partition {number} is {stored.hex}, and {wanted.hex} lies before it: commit a later "
                    'message, or send "reset": true to go back; nothing was changed'
                )

    def _after(self, number: int, before: Offset, now_ticks: int) -> Offset:
        wanted = self.ids[number]
        if self.resets:
            return Offset(wanted, min(before.generation + 1, MAX_GENERATION), now_ticks)
        if wanted is None:
            return before._replace(generation=self.generation)
        return Offset(wanted, self.generation, now_ticks)
