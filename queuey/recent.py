"""Values of keys that come again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["ONE_IN", "Recent"]

K = TypeVar("K")
V = TypeVar("V")

ONE_IN = 17
"""One of this number of missing keys is kept. A prime: keys that come in turn are all kept sooner or later."""


class Recent(dict[K, V]):
    """Values by their keys, made where they are missing, and kept for one of 17 keys that were missing.

    A key that comes again and again is soon among them. Of very many keys each comes once: to keep them all costs more than
    to make a small value, since memory that is not given back at once leaves the processor's caches. At the bound all go.

    >>> squares = Recent(lambda number: number**2, most=100)
    >>> [squares[3] for _ in range(17)][-1], len(squares)
    (9, 1)
    """

    def __init__(self, make: Callable[[K], V], most: int) -> None:
        super().__init__()
        self._make, self._most = make, most
        self._missed = 0

    def __missing__(self, key: K) -> V:
        value = self._make(key)
        self._missed += 1
        if self._missed % ONE_IN == 0:
            if len(self) >= self._most:
                self.clear()
            self[key] = value
        return value
