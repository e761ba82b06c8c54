"""Plots that a person can read: ticks, names of lines, and lines of one point."""

from __future__ import annotations

import re

import pytest

from qdo.bench.plots import COLOURS, Plot


def ticks(svg: str) -> list[float]:
    """Of the axis across."""
    return [float(text) for text in re.findall(r'text-anchor="middle">([^<]+)</text>', svg)]


@pytest.mark.parametrize(
    ("least", "most", "shown"),
    [
        (0.2, 0.9, [0.2, 0.5]),
        (1.1, 1.4, [1.1, 1.2, 1.3, 1.4]),
        (0.05, 300, [0.1, 1, 10, 100]),
        (3, 70, [5, 10, 20, 50]),
    ],
)
def test_an_axis_by_powers_of_ten_has_ticks_however_short_it_is(least: float, most: float, shown: list[float]) -> None:
    svg = Plot("title", "ms", "share", [("run", [(least, 0.1), (most, 1)])], log_across=True).svg()

    found = ticks(svg)

    assert len(found) >= 3
    assert {*shown} <= {*found}
    assert all(least <= tick <= most for tick in found)


def test_a_line_of_one_point_is_seen() -> None:
    svg = Plot("title", "k", "share", [("one", [(3, 0.5)]), ("two", [(3, 0.7)])]).svg()

    assert svg.count("<circle") == 2


def test_a_curve_of_a_thousand_points_has_no_dots() -> None:
    svg = Plot("title", "ms", "share", [("run", [(1 + at, at / 1000) for at in range(1000)])], log_across=True).svg()

    assert "<circle" not in svg


def test_each_name_stands_beside_a_piece_of_its_line_and_no_two_lines_look_alike() -> None:
    names = [f"k={at}" for at in range(2 * len(COLOURS) + 1)]
    svg = Plot("title", "k", "share", [(name, [(at, at), (at + 1, at)]) for at, name in enumerate(names)]).svg()

    drawn = re.findall(r"<polyline [^>]*?fill=\"none\" ([^>]*)/>", svg)
    named = re.findall(r"<line [^>]*? (stroke=[^>]*)/><text [^>]*>([^<]*)</text>", svg)
    assert len({*drawn}) == len(names)
    assert named == [*zip(drawn, names, strict=True)]


def test_faults_have_a_name_beside_those_of_the_lines() -> None:
    lines = [("sent", [(0.0, 1.0), (5.0, 2.0)])]

    assert "a fault, or its end" in Plot("title", "second", "messages", lines, marks=[(2, "killed")]).svg()
    assert "a fault, or its end" not in Plot("title", "second", "messages", lines).svg()
