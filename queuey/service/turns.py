"""Turns: who reads much on the event loop lets all others go on in between."""

from __future__ import annotations

from queuey.future import others_turn

TURN_ROWS = 500
"""Messages that a reader of many partitions reads before others have their turn on the event loop."""
LOOK_ROWS = 10
"""What a look into one more partition costs, in messages."""


class Turns:
    """Counts what one call reads, in however many steps."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = 0

    def count(self, rows: int, size: int = 0) -> None:
        """Note messages that were read, or :data:`LOOK_ROWS` for a look that costs as much.

        :param size: bytes of their bodies, which the reader keeps.
        """
        self._rows += rows

    @property
    def over(self) -> bool:
        """More than :data:`TURN_ROWS` were counted: it is the others' turn."""
        return self._rows > TURN_ROWS

    async def give(self) -> None:
        """Before reading more: go on in a later turn of the event loop, if this one is over."""
        if self.over:
            await self._end()

    async def _end(self) -> None:
        self._rows = 0
        await others_turn()
