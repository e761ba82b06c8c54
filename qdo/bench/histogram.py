"""Histograms of times, exact to three digits from a nanosecond to an hour, in the format of HdrHistogram.

Own code, though there is a library: ``hdrhistogram`` needs setuptools 83 or later, and Pyramid 2 needs one before 81, so
the two cannot be installed together. The format is the library's, V2 with its log version 1.2, so that its tools read
what is written here.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

DIGITS = 3
HIGHEST = 3_600_000_000_000
"""An hour. Longer times count as this one."""
_HALF_BITS = 10
_HALF = 1 << _HALF_BITS
"""Half of the 2,048 steps that three digits take."""
_PLAIN_COOKIE, _PACKED_COOKIE = 0x1C849313, 0x1C849314
_HEADER = struct.Struct(">iiiiqqd")


class TimeHistogram:
    """Counts of values in nanoseconds.

    >>> one = TimeHistogram()
    >>> for value in range(1, 1001):
    ...     one.record(value)
    >>> one.count, one.percentile(50), one.percentile(99.9), one.percentile(100), one.mean
    (1000, 500, 999, 1000, 500.5)
    """

    def __init__(self) -> None:
        self._counts: defaultdict[int, int] = defaultdict(int)
        self.count = 0
        self.least = self.most = 0
        self._total = 0

    def record(self, value: int) -> None:
        """Count a value. Below 0 counts as 0, above an hour as an hour."""
        value = min(max(value, 0), HIGHEST)
        self._counts[_index_of(value)] += 1
        self.least = value if not self.count else min(self.least, value)
        self.most = max(self.most, value)
        self.count += 1
        self._total += value

    def add(self, other: TimeHistogram) -> None:
        """Count what the other one has counted."""
        if not other.count:
            return
        for index, count in other._filled():
            self._counts[index] += count
        self.least = other.least if not self.count else min(self.least, other.least)
        self.most = max(self.most, other.most)
        self.count += other.count
        self._total += other._total

    @property
    def mean(self) -> float:
        return self._total / self.count if self.count else 0.0

    def percentile(self, rank: float) -> int:
        """The least value that this share of all values, in percent, does not exceed; 0 without values."""
        wanted = max(1, -int(-round(rank * self.count / 100, 9) // 1))
        passed = 0
        for index, count in self._filled():
            passed += count
            if passed >= wanted:
                return min(_highest_of(index), self.most)
        return 0

    def curve(self) -> list[tuple[float, float]]:
        """Milliseconds, and the share of values up to there: a point for each step that has values."""
        points = []
        passed = 0
        for index, count in self._filled():
            passed += count
            points.append((min(_highest_of(index), self.most) / 1e6, passed / self.count))
        return points

    def _filled(self) -> Iterator[tuple[int, int]]:
        return iter(sorted(self._counts.items()))

    def encode(self) -> str:
        """The counts in HdrHistogram's V2 form, packed, in base64."""
        body = b"".join(_numbers([self._counts.get(index, 0) for index in range(_index_of(self.most) + 1)]))
        head = _HEADER.pack(_PLAIN_COOKIE, len(body), 0, DIGITS, 1, HIGHEST, 1.0)
        packed = zlib.compress(head + body)
        return base64.b64encode(struct.pack(">ii", _PACKED_COOKIE, len(packed)) + packed).decode()


def write_log(out: IO[str], histograms: Iterable[tuple[str, float, float, TimeHistogram]], comment: str) -> None:
    """Write an ``.hlog``.

    :param histograms: tag, start and length in seconds, and what was counted then. The maximum is in milliseconds.
    """
    out.write(f"#[{comment}]\n#[Histogram log format version 1.2]\n")
    out.write('"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n')
    for tag, start, seconds, one in histograms:
        out.write(f"Tag={tag},{start:.3f},{seconds:.3f},{one.most / 1e6:.3f},{one.encode()}\n")


def _index_of(value: int) -> int:
    bucket = max(0, value.bit_length() - _HALF_BITS - 1)
    return ((bucket + 1) << _HALF_BITS) + (value >> bucket) - _HALF


def _highest_of(index: int) -> int:
    """The highest value that is counted there.

    >>> [_highest_of(_index_of(value)) for value in (0, 1, 2047, 2048, 4095, 4096)]
    [0, 1, 2047, 2049, 4095, 4099]
    """
    bucket = max(0, (index >> _HALF_BITS) - 1)
    step = index - (bucket << _HALF_BITS)
    return ((step + 1) << bucket) - 1


def _numbers(counts: Sequence[int]) -> Iterator[bytes]:
    """Counts as variable-length numbers; a run of zeros is its length below zero."""
    zeros = 0
    for count in counts:
        if not count:
            zeros += 1
            continue
        if zeros:
            yield _number(-zeros if zeros > 1 else 0)
            zeros = 0
        yield _number(count)


def _number(value: int) -> bytes:
    """ZigZag, then seven bits a byte, and eight in the ninth."""
    left = (value << 1) ^ (value >> 63)
    left &= (1 << 64) - 1
    said = bytearray()
    while len(said) < 8 and left > 0x7F:
        said.append(left & 0x7F | 0x80)
        left >>= 7
    said.append(left)
    return bytes(said)
