"""Forms of output: tables, JSON and CSV; exit codes, and a bar on a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from queuey.errors import error_classes
from queuey.terminal.output import FORMS, Failed, ProgressBar, exit_code, say, write_one, write_rows
from queuey.visible import visible

ROWS: list[dict[str, Any]] = [{"name": "a,b", "n": 1, "on": True, "tags": ["x", "y"]}, {"name": 'ü"\x1b', "n": None}]
COLUMNS = ("name", "n", "on", "tags")


def printed(form: str | None, rows: Sequence[Mapping[str, Any]] = ROWS, **options: Any) -> str:
    command = click.Command("print", callback=lambda: write_rows(iter(rows), COLUMNS, form, **options))
    return CliRunner().invoke(command, catch_exceptions=False).stdout


def test_a_table_has_headings_columns_and_nothing_that_steers_a_terminal() -> None:
    assert printed("table").splitlines() == ["NAME    N  ON    TAGS", "a,b     1  true  x,y", 'ü"\\x1b']


def test_a_tables_columns_may_be_of_given_width() -> None:
    assert printed("table", ROWS[:1], widths=(5, 2, 6, 0)).splitlines() == [
        "NAME   N   ON      TAGS",
        "a,b    1   true    x,y",
    ]


def test_in_a_pipe_each_row_is_a_line_of_json() -> None:
    assert [json.loads(line) for line in printed(None).splitlines()] == ROWS


def test_json_is_one_list() -> None:
    assert json.loads(printed("json")) == ROWS
    assert json.loads(printed("json", [])) == []


def test_csv_has_every_column_in_every_row() -> None:
    assert list(csv.reader(io.StringIO(printed("csv")))) == [
        list(COLUMNS),
        ["a,b", "1", "true", "x,y"],
        ['ü"\x1b', "", "", ""],
    ]


@given(st.lists(st.dictionaries(st.sampled_from(COLUMNS), st.text(st.characters(exclude_categories=["Cs"])))))
def test_any_rows_survive_json_lines(rows: list[dict[str, str]]) -> None:
    # Only the line feed ends a line: bodies may have other characters that do so for Python.
    assert [json.loads(line) for line in printed("jsonl", rows).split("\n")[:-1]] == rows


@pytest.mark.parametrize("form", FORMS)
def test_what_fails_at_once_prints_no_heading(form: str) -> None:
    def refuse(row: dict[str, Any]) -> dict[str, Any]:
        raise click.ClickException(f"no {row}")

    rows = map(refuse, ROWS)
    result = CliRunner().invoke(click.Command("print", callback=lambda: write_rows(rows, COLUMNS, form)))

    assert (result.stdout, result.exit_code) == ("", 1)


def test_one_thing_is_a_list_of_members_or_an_object() -> None:
    def one(form: str) -> str:
        return CliRunner().invoke(click.Command("print", callback=lambda: write_one(ROWS[0], form))).stdout

    assert one("table").splitlines() == ["name  a,b", "n     1", "on    true", "tags  x,y"]
    assert json.loads(one("json")) == ROWS[0]
    assert one("csv").splitlines() == ["name,n,on,tags", '"a,b",1,true,"x,y"']


@given(st.text())
def test_visible_text_is_printable(text: str) -> None:
    assert visible(text).isprintable()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ConfigurationError", 2),
        ("StoreInUse", 2),
        ("InvalidParameter", 2),
        ("QueueNotFound", 3),
        ("InvalidApplicationKey", 4),
        ("Forbidden", 4),
        ("Throttled", 5),
        ("ClockUnsafe", 5),
        ("StorageFull", 5),
        ("ServerUnreachable", 5),
        ("OutcomeUnknown", 6),
        ("QueueExists", 1),
        ("BrokenStream", 1),
    ],
)
def test_an_error_has_its_exit_code(code: str, expected: int) -> None:
    error = error_classes()[code]()

    assert exit_code(error) == Failed(error).exit_code == expected


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_appears_after_two_seconds_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.9, 2.1])
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    with ProgressBar("copying", 0, now=lambda: next(times)) as progress:
        progress.reach(1, 10)
        before = terminal.getvalue()
        progress.reach(4, 10)
        progress.reach(10)

    assert before == ""
    assert "copying" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_there_is_no_bar_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    times = iter([0.0, 9.0])

    with ProgressBar("copying", 10, now=lambda: next(times, 99.0)) as progress:
        progress.reach(5)

    assert pipe.getvalue() == ""


def test_a_line_that_nobody_can_read_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as broken:  # noqa: PTH123 - a pipe has no path
        monkeypatch.setattr(sys, "stderr", broken)
        say("")
        with pytest.raises(BrokenPipeError):
            print(file=broken, flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # lets it close


def test_an_object_in_a_table_or_in_csv_is_json() -> None:
    row = {"name": "a", "n": {"kind": "\u00fc"}, "on": None, "tags": [{"k": 1}, {"k": None}]}

    assert list(csv.reader(io.StringIO(printed("csv", [row])))) == [
        list(COLUMNS),
        ["a", '{"kind": "\u00fc"}', "", '[{"k": 1}, {"k": null}]'],
    ]
    assert '{"kind": "\u00fc"}' in printed("table", [row])
