"""How far apart receivers of a weak group pick, so that servers rarely hand out the same message (docs/decisions/027)."""

from __future__ import annotations

__all__ = ["MOST_K", "MOST_SHARE", "Spread"]

MOST_K = 1000
MOST_SHARE = 0.02
"""Duplicates among the messages that are handed out: if there are more, K rises."""
_LEAST_RISE, _MOST_RISE = 2, 8
"""K rises as the share asks for, but by no less and no more in one step: twice the K makes half as many duplicates."""
_FEW_SHARE = MOST_SHARE / 4
"""If there are fewer, K falls by an eighth."""
_WINDOW = 10
"""Messages without duplicates after which K falls."""


class Spread:
    """K of one partition at one server, as the duplicates make it.

    >>> spread = Spread()
    >>> for _ in range(2):
    ...     spread.note(handed=10, duplicates=5)
    >>> spread.k
    64
    >>> for _ in range(40):
    ...     spread.note(handed=10)
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
        share = self._duplicates / max(self._handed, 1)
        if share > MOST_SHARE and self._handed:
            # At once: until many messages were handed out, most of them would be duplicates.
            rise = min(max(share / MOST_SHARE, _LEAST_RISE), _MOST_RISE)
            self.k = min(round(rise * self.k), MOST_K)
        elif self._handed < _WINDOW:
            return
        elif share < _FEW_SHARE:
            self.k = self.k * 7 // 8 or 1
        self._handed = self._duplicates = 0
