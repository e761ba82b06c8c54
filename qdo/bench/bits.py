"""A bit for each message of a stream."""

from __future__ import annotations

from collections.abc import Iterator


class NumberBits:
    """A set of small numbers, with a bit for each."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, number: int) -> bool:
        """Set it; whether it was clear."""
        at, bit = number >> 3, 1 << (number & 7)
        if at >= len(self._bytes):
            self._bytes.extend(bytes(at + 1 + len(self._bytes) // 8 - len(self._bytes)))
        if self._bytes[at] & bit:
            return False
        self._bytes[at] |= bit
        return True

    def add_range(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.add(number)

    def has(self, number: int) -> bool:
        at = number >> 3
        return at < len(self._bytes) and bool(self._bytes[at] & 1 << (number & 7))

    def missing_in(self, other: NumberBits | None) -> Iterator[int]:
        """Numbers that are here and not there."""
        theirs = other._bytes if other else b""  # noqa: SLF001 -- of this class
        for at, byte in enumerate(self._bytes):
            left = byte & ~(theirs[at] if at < len(theirs) else 0)
            while left:
                low = left & -left
                yield at * 8 + low.bit_length() - 1
                left ^= low
