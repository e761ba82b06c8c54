"""Turns on the event loop: a call that reads much lets others go on in between."""

from __future__ import annotations

from queuey.future import others_turn

TURN_ROWS = 500
"""Messages that a reader of many partitions reads before others have their turn on the event loop."""
LOOK_ROWS = 10
"""The cost of reading one more partition, counted in messages."""


class Turns:
    """Counts what one call reads, over all its steps."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = 0

    def count(self, rows: int, size: int = 0) -> None:
        """Count messages that were read, or :data:`LOOK_ROWS` for reading a partition.

        :param size: bytes of their bodies, which the reader keeps.
        """
        self._rows += rows

    @property
    def over(self) -> bool:
        """Whether more than :data:`TURN_ROWS` were counted. Then it is the others' turn."""
        return self._rows > TURN_ROWS

    async def give(self) -> None:
        """If this turn is over, wait for the next one before reading more."""
        if self.over:
            await self._end()

    async def _end(self) -> None:
        self._rows = 0
        await others_turn()
