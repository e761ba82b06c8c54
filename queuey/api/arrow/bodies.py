"""Bodies of a batch in Arrow's memory.

Bodies of one partition are joined in one step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from queuey.model import Bodies


@dataclass(frozen=True, slots=True)
class ArrowBodies(Bodies):
    """A column of bodies; a null one is empty here."""

    column: Any
    """The same bodies as an Arrow array."""

    @classmethod
    def of(cls, column: Any) -> ArrowBodies:
        """:param column: binary, with 32-bit offsets."""
        if not len(column):
            return cls(b"", array("i", [0]), 0, column)
        _, offsets, data = column.buffers()
        whole: Any = memoryview(data or b"")
        places = memoryview(offsets).cast("i")[column.offset : column.offset + len(column) + 1]
        return cls(whole, array("i", places.tobytes()), 0, column)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.column.to_pylist())

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...

    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        if not isinstance(at, slice):
            body: bytes = self.column[at].as_py()
            return body
        begin, end, step = at.indices(len(self))
        if step != 1:
            return self.picked(range(begin, end, step))
        return ArrowBodies(self.data, self.ends[begin : max(begin, end) + 1], 0, self.column[begin:end])

    def picked(self, chosen: Sequence[int]) -> ArrowBodies:
        import numpy as np

        return self.of(self.column.take(np.fromiter(chosen, np.int32, len(chosen))))

    def sizes(self) -> Any:
        """Bytes of each body, as numpy numbers."""
        import numpy as np

        return np.diff(np.asarray(self.ends))
