"""What a monitor reads: states, bounds and performance data."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from queuey.cli import main
from queuey.cli.check import KINDS, AlertBounds, AlertState, Measure, _in_one_line

PERFORMANCE = re.compile(r"[a-z_]+=-?[0-9.e+-]+[a-zA-Z%]*;[0-9.e+-]*:?;[0-9.e+-]*:?;0")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["check", *arguments], env={"QUEUEY_URL": "http://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("depth", 10, AlertState.OK),
        ("depth", 11, AlertState.WARNING),
        ("depth", 100, AlertState.WARNING),
        ("depth", 101, AlertState.CRITICAL),
        ("disk", 101, AlertState.OK),
        ("disk", 100, AlertState.OK),
        ("disk", 99, AlertState.WARNING),
        ("disk", 9, AlertState.CRITICAL),
    ],
)
def test_a_bound_is_the_last_good_value(name: str, value: float, state: AlertState) -> None:
    bounds = AlertBounds(100, 10) if KINDS[name].falls else AlertBounds(10, 100)

    assert Measure(name, value, bounds).state is state


@given(
    st.sampled_from(sorted(KINDS)), st.floats(0, 1e15), st.none() | st.floats(0, 1e12), st.none() | st.floats(0, 1e12)
)
def test_performance_data_has_the_form_that_monitors_read(
    name: str, value: float, warn: float | None, crit: float | None
) -> None:
    assert PERFORMANCE.fullmatch(Measure(name, value, AlertBounds(warn, crit)).performance)


@given(st.text())
def test_whatever_an_error_says_is_one_line_and_no_performance_data(said: str) -> None:
    line = _in_one_line(said.replace(" | ", "/"))

    assert len(line.splitlines()) <= 1
    assert "|" not in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-w", "depth=1"), "depth needs a queue"),
        (("q", "-w", "held=1"), "held needs --group"),
        (("q", "-c", "lag=1"), "lag needs --offsets"),
        (("--group", "g"), "name it"),
        (("q", "-w", "dept=1"), "'dept=1': expected NAME=BOUND"),
        (("q", "-w", "depth"), "expected NAME=BOUND"),
        (("q", "-w", "depth=1.5"), "'1.5' is not a whole number"),
        (("q", "-w", f"depth={'9' * 400}"), "is not a whole number"),
        (("q", "-w", "oldest=soon"), "a duration such as 90"),
        (("-c", "disk=much"), "a size such as"),
        (("q", "--no-such"), "No such option"),
    ],
)
def test_wrong_usage_is_unknown_and_never_critical(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (AlertState.UNKNOWN, "")
    assert said in result.stderr


def test_a_server_that_is_not_there_is_critical() -> None:
    result = run()

    assert result.exit_code == AlertState.CRITICAL
    assert result.stdout == "QUEUEY CRITICAL - ServerUnreachable: no server answers at http://127.0.0.1:1\n"
