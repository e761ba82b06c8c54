"""Lines of the log say the same as JSON and as text."""

from __future__ import annotations

import json
import logging

from queuey.monitor.logs import JsonFormatter, TextFormatter

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
