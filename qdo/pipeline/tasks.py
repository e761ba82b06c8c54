"""What Spark hands from the driver to its tasks, and what reads there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from qdo.pipeline.spans import Part

__all__ = ["PartReader", "Task"]


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__(None)
        self.parts = tuple(parts)

    def __repr__(self) -> str:
        return f"Task({len(self.parts)} parts)"


class PartReader(Protocol):
    """Reads parts in a task, for a batch or for a stream."""

    def batches(self, parts: Sequence[Part]) -> Iterator[Any]:
        """The Arrow batches of these parts, as Spark takes them."""
