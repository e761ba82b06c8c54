"""How far apart receivers of a weak group pick, so that servers rarely hand out the same message (docs/decisions/027)."""

from __future__ import annotations

__all__ = ["MOST_K", "MOST_SHARE", "Spread"]

MOST_K = 1000
MOST_SHARE = 0.02
"""Duplicates among the messages that are handed out: if there are more, K doubles."""
_FEW_SHARE = MOST_SHARE / 4
"""If there are fewer, K falls by a quarter."""
_WINDOW = 50
"""Messages after which K is looked at."""


class Spread:
    """K of one partition at one server, as the duplicates make it.

    >>> spread = Spread()
    >>> for _ in range(8):
    ...     spread.note(handed=100, duplicates=50)
    >>> spread.k
    256
    >>> for _ in range(20):
    ...     spread.note(handed=100, duplicates=0)
    >>> spread.k
    1
    """

    def __init__(self) -> None:
        self.k = 1
        self._handed = self._duplicates = 0

    def note(self, *, handed: int = 0, duplicates: int = 0) -> None:
        """Note messages that were handed out, and those that were handed out twice."""
        self._handed += handed
        self._duplicates += duplicates
        if self._handed < _WINDOW:
            return
        share = self._duplicates / self._handed
        self._handed = self._duplicates = 0
        if share > MOST_SHARE:
            self.k = min(2 * self.k, MOST_K)
        elif share < _FEW_SHARE:
            self.k = self.k * 3 // 4 or 1
