"""Moments of cron lines, over changes of the clocks."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from qdo.tasks.occurrences import Cron
from queuey.errors import ConfigurationError

BERLIN = ZoneInfo("Europe/Berlin")


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def moments(line: str, after: str, count: int) -> list[str]:
    cron, moment, found = Cron(line, "Europe/Berlin"), seconds(after), []
    for _ in range(count):
        moment = cron.after(moment)
        found.append(datetime.fromtimestamp(moment, BERLIN).isoformat()[5:16])
    return found


def test_days_are_those_of_the_time_zone() -> None:
    assert moments("0 6 * * *", "2026-11-26T05:59:59+01:00", 2) == ["11-26T06:00", "11-27T06:00"]
    assert moments("0 6 * * *", "2026-11-26T06:00:00+01:00", 1) == ["11-27T06:00"]


def test_an_hour_that_is_left_out_loses_nothing_and_one_that_comes_twice_doubles_nothing() -> None:
    assert moments("30 2 * * *", "2026-03-28T12:00:00+01:00", 2) == ["03-29T03:00", "03-30T02:30"]
    assert moments("30 2 * * *", "2026-10-24T12:00:00+02:00", 2) == ["10-25T02:30", "10-26T02:30"]


def test_with_seconds_it_is_the_same() -> None:
    assert moments("0 30 2 * * *", "2026-03-28T12:00:00+01:00", 2) == ["03-29T03:00", "03-30T02:30"]
    assert moments("0 30 2 * * *", "2026-10-24T12:00:00+02:00", 2) == ["10-25T02:30", "10-26T02:30"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("30 2 * * *", "10-26T02:30"),
        ("5 1-3 * * *", "10-25T03:05"),
        ("*/30 * * * *", "10-25T02:30"),
        ("0 30 2 * * *", "10-26T02:30"),
    ],
)
def test_in_the_hour_that_comes_twice_nothing_is_due_that_lies_before(line: str, found: str) -> None:
    """A schedule that is set then would send at once what is due the next day."""
    assert moments(line, "2026-10-25T02:04:00+01:00", 1) == [found]


def test_moments_only_rise() -> None:
    cron, moment = Cron("*/20 * * * *", "Europe/Berlin"), seconds("2026-10-25T00:00:00+02:00")
    for _ in range(20):
        following = cron.after(moment)
        assert moment < following <= moment + 1200
        moment = following


@pytest.mark.parametrize(
    ("line", "tz", "after", "found"),
    [
        ("0 */3 * * *", "Australia/Lord_Howe", "2026-10-04T00:30:00+10:30", "2026-10-04T03:00:00+11:00"),
        ("30 * * * *", "Australia/Lord_Howe", "2026-10-04T01:40:00+10:30", "2026-10-04T02:30:00+11:00"),
        ("* 2 * * *", "Australia/Lord_Howe", "2026-04-05T01:59:00+10:30", "2026-04-05T02:00:00+10:30"),
        ("0 */3 * * *", "Pacific/Chatham", "2026-04-05T02:49:39+12:45", "2026-04-05T03:00:00+12:45"),
        ("59 */2 * * *", "Pacific/Chatham", "2026-04-05T03:43:00+13:45", "2026-04-05T02:59:00+12:45"),
        ("50 */2 * * *", "Europe/Berlin", "2026-10-25T02:55:00+02:00", "2026-10-25T02:50:00+01:00"),
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-30T02:00:00+02:00"),
        ("*/30 2 * * *", "UTC", "2026-03-29T02:10:00+00:00", "2026-03-29T02:30:00+00:00"),
    ],
)
def test_lines_that_go_on_are_due_whenever_the_clock_shows_such_a_time(
    line: str, tz: str, after: str, found: str
) -> None:
    """Also where clocks change by less than an hour, or not at a full hour."""
    assert Cron(line, tz).after(seconds(after)) == seconds(found)


@pytest.mark.parametrize(
    ("line", "tz", "said"),
    [
        ("0 25 * * *", "UTC", "cron is '0 25"),
        ("every day", "UTC", "expected minute, hour, day, month and weekday"),
        ("", "UTC", "cron is ''"),
        ("0 6 * * *", "Berlin", "expected a time zone such as Europe/Berlin"),
        ("0 6 * * *", "../etc/passwd", "expected a time zone"),
        ("0 6 * * *", "", "expected a time zone"),
    ],
)
def test_what_is_none_is_refused(line: str, tz: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Cron(line, tz)
