"""Histograms: the figures of a sorted list, and the bytes of HdrHistogram's own library."""

from __future__ import annotations

import base64
import io
import zlib

from hypothesis import given
from hypothesis import strategies as st

from qdo.bench.histogram import HIGHEST, TimeHistogram, write_log
from qdo.measure import percentiles

VALUES = (0, 1, 1, 5, 2047, 2048, 2050, 10**6, 10**6 + 1, 123456789, 3 * 10**12, HIGHEST)
BY_THE_LIBRARY = "HISTFAAAADl4nJNpmSzMwMAgzgABzFCaEch0M9ixgMH+A0SAiYWV6aM8ExPT3j5Glo95TOtfMDKtZWECAPb5CoM="
"""What version 0.10.8 of the library makes of these values, for an hour and three digits."""


def histogram_of(*values: int) -> TimeHistogram:
    found = TimeHistogram()
    for value in values:
        found.record(value)
    return found


def unpacked(encoded: str) -> bytes:
    return zlib.decompress(base64.b64decode(encoded)[8:])


def test_the_encoding_is_that_of_the_library() -> None:
    assert unpacked(histogram_of(*VALUES).encode()) == unpacked(BY_THE_LIBRARY)


@given(st.lists(st.integers(0, HIGHEST), min_size=1, max_size=50), st.sampled_from([1, 50, 90, 99, 99.9, 100]))
def test_a_percentile_is_within_a_thousandth_of_the_true_one(values: list[int], rank: float) -> None:
    true = percentiles(values, [rank])[rank]

    found = histogram_of(*values).percentile(rank)

    assert true <= found <= true * 1.001


@given(st.lists(st.integers(0, 10**9)), st.lists(st.integers(0, 10**9)))
def test_a_sum_is_the_histogram_of_both(first: list[int], second: list[int]) -> None:
    summed = histogram_of(*first)
    summed.add(histogram_of(*second))

    both = histogram_of(*first, *second)
    assert summed.encode() == both.encode()
    assert (summed.count, summed.least, summed.most, summed.mean) == (both.count, both.least, both.most, both.mean)


def test_what_is_outside_counts_at_the_edge() -> None:
    found = histogram_of(-5, HIGHEST * 2)

    assert (found.least, found.most, found.percentile(50), found.percentile(100)) == (0, HIGHEST, 0, HIGHEST)


def test_nothing_has_no_percentiles() -> None:
    assert (TimeHistogram().percentile(99), TimeHistogram().mean, TimeHistogram().curve()) == (0, 0.0, [])


def test_a_log_has_a_line_for_each_histogram() -> None:
    out = io.StringIO()

    write_log(out, [("response", 1.5, 2.0, histogram_of(3_000_000))], "test")

    lines = out.getvalue().splitlines()
    assert lines[1] == "#[Histogram log format version 1.2]"
    assert lines[-1].startswith("Tag=response,1.500,2.000,3.000,HISTF")
