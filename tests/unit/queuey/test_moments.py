"""Times and durations as a person types them, and as they are printed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.ids import EPOCH_TICKS, parse_timestamp
from queuey.moments import parse_duration, parse_moment, rfc3339

HEX = "1f9f6640e56711f189bf02fc00000001"
NOW = EPOCH_TICKS + 1_795_236_650 * 10_000_000


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(["ms", "s", "m", "h", "d", "w"])), min_size=1))
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    names = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    expected = sum((timedelta(**{names[unit]: number}) for number, unit in parts), timedelta())

    seconds = parse_duration("".join(f"{number}{unit}" for number, unit in parts))

    assert seconds == Decimal(expected // timedelta(milliseconds=1)) / 1000


@pytest.mark.parametrize("text", ["", "3x", "d", "-1s", "1 h", "1e3", "10m later", "³d", "1h-30m", "\u0661s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as"):
        parse_duration(text)


@given(st.datetimes(datetime(1970, 1, 2), datetime(4000, 1, 1), timezones=st.timezones()))  # noqa: DTZ001 -- bounds
def test_a_time_is_read_exactly_as_it_is_printed(moment: datetime) -> None:
    wire = parse_moment(moment.isoformat(), NOW)

    assert rfc3339(parse_timestamp(wire))[:26] == moment.astimezone(UTC).isoformat(timespec="microseconds")[:26]


@given(st.integers(EPOCH_TICKS, NOW))
def test_an_epoch_time_is_passed_on_to_the_tick(ticks: int) -> None:
    text = f"{(ticks - EPOCH_TICKS) / Decimal(10**7):f}"

    assert parse_timestamp(parse_moment(text, NOW)) == ticks


@pytest.mark.parametrize(
    ("text", "wire"),
    [
        (HEX, HEX),
        (HEX.upper(), HEX),
        ("now", "1795236650.0000000"),
        ("10m", "1795236050.0000000"),
        ("9999w", "0.0000000"),
        ("2026-11-21T08:00:00Z", "1795248000.0000000"),
        ("2026-11-21T09:00:00+01:00", "1795248000.0000000"),
        ("2026-11-21 08:00", "1795248000.0000000"),
        ("2026-11-21", "1795219200.0000000"),
        ("60", "60.0000000"),
    ],
)
def test_a_moment_has_many_forms(text: str, wire: str) -> None:
    assert parse_moment(text, NOW, ago=True) == wire


@pytest.mark.parametrize("text", ["", "yesterday", "10m", "1969-12-31", "-5", "1e9", HEX[:-1], "9" * 13])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_moment(text, NOW)
