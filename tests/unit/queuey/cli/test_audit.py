"""Audit lines among the lines of a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from queuey.cli import main

LINES: list[dict[str, Any]] = [
    {"time": "2026-11-26T10:00:00.000+00:00", "level": "info", "logger": "a", "event": "started"},
    {
        "time": "2026-11-26T10:01:00.000+00:00",
        "audit": "sign-in",
        "path": "/console/sign-in",
        "outcome": "done",
        "principals": ["app:billing"],
        "address": "10.0.0.7",
        "request_id": "a1",
    },
    {
        "time": "2026-11-26T10:02:00.000+00:00",
        "audit": "DELETE",
        "path": "/v1/billing/jobs",
        "outcome": "Forbidden",
        "principals": ["bid:joe@example.org"],
        "address": "10.0.0.8",
        "request_id": "a2",
    },
    {
        "time": "2026-11-26T10:03:00.000+00:00",
        "audit": "POST",
        "path": "/v1/billing/jobs/tasks/purge",
        "outcome": "done",
        "principals": ["operator:root"],
        "address": "10.0.0.9",
        "request_id": "a3",
    },
]
TEXT = "".join(f"{json.dumps(line)}\n" for line in LINES) + "plain text\n"


def run(*arguments: str, given: str = TEXT) -> Result:
    return CliRunner().invoke(main, ["audit", *arguments], input=given)


def ids(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["request_id"] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), ["a1", "a2", "a3"]),
        (("--principal", "operator:root"), ["a3"]),
        (("--application", "billing"), ["a2", "a3"]),
        (("--application", "bill"), []),
        (("--application", "billing", "--queue", "jobs"), ["a2", "a3"]),
        (("--application", "billing", "--queue", "job"), []),
        (("--action", "delete"), ["a2"]),
        (("--action", "sign-in"), ["a1"]),
        (("--outcome", "done"), ["a1", "a3"]),
        (("--failed",), ["a2"]),
        (("--since", "2026-11-26T10:02:00Z"), ["a2", "a3"]),
        (("--until", "2026-11-26T10:02:00Z"), ["a1", "a2"]),
        (("--since", "2026-11-26T10:01:30Z", "--until", "2026-11-26T10:02:30Z"), ["a2"]),
    ],
)
def test_filters_choose_lines(arguments: tuple[str, ...], found: list[str]) -> None:
    assert ids(run(*arguments)) == found


def test_a_row_has_what_was_done_by_whom_and_from_where() -> None:
    (row,) = map(json.loads, run("--failed").stdout.splitlines())

    assert row == {
        "time": "2026-11-26T10:02:00.000+00:00",
        "action": "DELETE",
        "path": "/v1/billing/jobs",
        "outcome": "Forbidden",
        "principals": ["bid:joe@example.org"],
        "address": "10.0.0.8",
        "request_id": "a2",
    }


def test_a_line_of_any_depth_stops_no_reading() -> None:
    line = '{"audit": ' + "[" * 100_000

    result = run(given=f"{line}\n{TEXT}")

    assert ids(result) == ["a1", "a2", "a3"]
    assert "could not read 1 line:" in result.stderr


def test_files_are_read_and_half_a_line_is_counted(tmp_path: Path) -> None:
    log = tmp_path / "said.txt"
    log.write_text(TEXT + '{"audit": "DELETE", "pa')

    result = run(str(log), given="")

    assert ids(result) == ["a1", "a2", "a3"]
    assert "could not read 1 line:" in result.stderr


def test_a_queue_needs_its_application() -> None:
    result = run("--queue", "jobs")

    assert (result.exit_code, "give --application" in result.stderr) == (2, True)
