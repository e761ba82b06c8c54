"""The lines of a look at a server."""

from __future__ import annotations

from qdo.client import ApplicationFigures, QueueFigures, ServerFigures
from queuey.cli.top import Glance, HeldByGroup, view

COUNTERS = {
    "appended": 1000,
    "read": 500,
    "received": 0,
    "settled": 0,
    "dead_letters": 7,
    "bytes_in": 0,
    "bytes_out": 0,
}
SERVER = {
    "version": "1.0",
    "storage": "sqlite",
    "problems": ["the disk is full"],
    "warnings": ["no swap"],
    "waiters": 3,
    "requests_in_progress": 1,
    "bytes_in_flight": 0,
    "clock_error_seconds": 0.25,
    "memory_bytes": 64 << 20,
    "disk_free_bytes": None,
}
SAMPLE = dict.fromkeys(["appended", "read", "received", "settled", "requests", "errors"], 12.0) | {
    "p50": 0.001,
    "p99": 0.25,
}


def queue(depth: int | None, name: str = "jobs") -> QueueFigures:
    size = None if depth is None else 2048
    return QueueFigures(name, 1, "user", depth, 0, size, None if depth is None else "40.0000000", None)


def look(time: float = 100.0, depth: int | None = 12, appended: int = 1000, *, operator: bool = False) -> Glance:
    figures = ApplicationFigures("demo", time, COUNTERS | {"appended": appended}, (queue(depth),))
    server = ServerFigures(ApplicationFigures("", time, COUNTERS), SERVER, [SAMPLE], ()) if operator else None
    return Glance("http://x:5000", figures, server, [HeldByGroup("jobs", "workers", 5, 2)], are_all=True)


def test_the_first_look_has_numbers_and_no_rates() -> None:
    lines = view(look(), None)

    assert lines[0] == "queuey at http://x:5000"
    assert lines[1] == "demo  appended 1,000  read 500  received 0  settled 0  dead letters 7"
    assert lines[3].split() == ["QUEUE", "DEPTH", "CHANGE", "SCHEDULED", "BYTES", "OLDEST"]
    assert lines[4].split() == ["jobs", "12", "0", "2.0", "KiB", "60.0", "s"]
    assert lines[-1].split() == ["jobs/workers", "5", "2"]


def test_the_next_look_has_rates_between_the_two() -> None:
    lines = view(look(104.0, depth=4, appended=1040), look())

    assert "appended 1,040 (10.0/s)" in lines[1]
    assert lines[4].split()[:3] == ["jobs", "4", "-2.0/s"]


def test_a_restart_in_between_shows_no_negative_rate() -> None:
    assert "appended 3  " in view(look(104.0, appended=3), look())[1]


def test_an_operator_sees_the_server() -> None:
    lines = view(look(operator=True), None)

    assert lines[:3] == ["queuey 1.0 at http://x:5000, sqlite", "PROBLEM: the disk is full", "WARNING: no swap"]
    assert "1 requests, 3 waiting readers, memory 64.0 MiB, in flight 0 B, clock error 0.25 s" in lines[3]
    assert lines[4].endswith("p50 1 ms  p99 250 ms")


def test_a_queue_that_was_not_counted_says_so() -> None:
    assert view(look(depth=None), None)[4].split() == ["jobs", "not", "counted"]


def test_an_application_without_queues_says_so() -> None:
    empty = look()._replace(figures=ApplicationFigures("demo", 1.0, COUNTERS), groups=[])

    assert view(empty, None)[-1] == "no queues"
