"""Some of many, in a run that is to be short."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Drawn(Protocol):
    """The fixture ``drawn``."""

    def __call__(self, names: Iterable[str], most: int) -> list[str]:
        """Those that this run takes."""
