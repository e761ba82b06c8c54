"""What a simulation says: figures, and how much of each limit is used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["LimitUse", "SimulatedFigures"]


class LimitUse(NamedTuple):
    """One limit."""

    name: str
    use: float
    """The share of it that is used; over 1 it is passed."""
    said: str
    change: str
    """What to change when it is reached."""


@dataclass
class SimulatedFigures:
    """What a part of a scenario came to."""

    figures: dict[str, float] = field(default_factory=dict)
    """By name and unit."""
    limits: list[LimitUse] = field(default_factory=list)
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """By name, over seconds."""

    def add(self, other: SimulatedFigures) -> None:
        """Take what another part came to."""
        self.figures |= other.figures
        self.limits += other.limits
        self.series |= other.series
