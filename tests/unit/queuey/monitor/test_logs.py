"""Lines of the log say the same as JSON and as text."""

from __future__ import annotations

import json
import logging
import sys
import warnings

import pytest

from queuey.monitor.logs import JsonFormatter, TextFormatter, set_up

EXTRA = {
    "app": "demo",
    "queue": "a b\nstatus=500",
    "principals": ["app:demo", "bid:joe@example.org"],
    "none": None,
    "empty": "",
}


def record() -> logging.LogRecord:
    return logging.makeLogRecord({"name": "queuey", "levelname": "INFO", "msg": "%s", "args": ("GET",), **EXTRA})


def test_text_has_what_json_has_and_no_value_passes_for_two() -> None:
    line = json.loads(JsonFormatter().format(record()))
    text = TextFormatter("%(name)s: %(message)s").format(record())

    assert {name: line[name] for name in EXTRA} == EXTRA
    assert text == (
        "queuey: GET app=demo queue='a b\\nstatus=500' principals=app:demo,bid:joe@example.org none=None empty=''"
    )


@pytest.mark.parametrize("text", ["a\nINFO queuey: b", "a\r\x1b[2Kb", "a\u2028b", "a\udc80b"])
def test_text_of_a_caller_ends_no_line_and_moves_no_cursor(text: str) -> None:
    said = TextFormatter("%(message)s").format(logging.makeLogRecord({"msg": "refused %s", "args": (text,)}))

    assert said.isprintable()
    assert said.startswith("refused a\\")
    assert said.endswith("b")


def test_a_warning_and_an_uncaught_error_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        set_up("info", "json")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", stacklevel=1)
        sys.excepthook(ValueError, ValueError("nobody caught this"), None)
    finally:
        set_up("info", "text")

    warned, ended = map(json.loads, capsys.readouterr().err.splitlines())
    assert (warned["logger"], "old" in warned["event"]) == ("py.warnings", True)
    assert (ended["level"], "nobody caught this" in ended["exception"]) == ("error", True)
    assert sys.excepthook is sys.__excepthook__


class Silent:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("message", "arguments", "extra", "shown"),
    [
        ("file %s", ("a\udcffb",), {}, {"event": "file a\\udcffb"}),
        ("one", (), {"n": 1 << 70, "m": 2, "f": 0.5}, {"n": str(1 << 70), "m": 2, "f": 0.5}),
        ("one", (), {"d": {(1, 2): 3}}, {"d": "{(1, 2): 3}"}),
        ("one", (), {"o": Silent()}, {"o": "<Silent>"}),
        ("one %s", (Silent(),), {}, {"event": "one %s (its arguments do not fit: no text)"}),
        ("%s %s", (1,), {}, {"event": "%s %s (its arguments do not fit: not enough arguments for format string)"}),
        ("one", (), {"time": "noon", "event": "mine"}, {"event": "one", "extra_time": "noon", "extra_event": "mine"}),
    ],
)
def test_whatever_a_job_logs_is_a_line_of_json(
    message: str, arguments: tuple[object, ...], extra: dict[str, object], shown: dict[str, object]
) -> None:
    made = {"name": "jobs", "levelname": "INFO", "msg": message, "args": arguments, **extra}

    line = JsonFormatter().format(logging.makeLogRecord(made))

    assert "\n" not in line
    told = json.loads(line)
    assert told["time"].startswith("20")
    assert {name: told[name] for name in shown} == shown
