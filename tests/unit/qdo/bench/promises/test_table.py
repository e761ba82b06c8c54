"""The table of promises: what it says, and that the documentation has all of it."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from qdo.bench.promises import TrialResult
from qdo.bench.promises.table import (
    COLUMNS,
    ROWS,
    ProbedColumn,
    PromiseTable,
    cells_of,
    markdown,
    reasons,
    text_of,
    up_as_long,
)
from qdo.bench.systems import SYSTEMS, system_class
from qdo.bench.workload import find, load
from queuey.cli import main
from tests.support.source import ROOT

FOUND = {
    ("redis", "early"): TrialResult(None, 0, "it delays no messages"),
    ("redis", "ghost"): TrialResult(None, 0, "redis-server is missing", is_missing=True),
    ("redis", "stale"): TrialResult(3, 1200, "3 of 1,200"),
}


def test_a_table_has_its_reasons_below() -> None:
    columns = ["early", "ghost", "stale"]

    assert cells_of(["redis"], columns, FOUND)[1] == ["Redis streams", "-", "not measured here", "3 of 1,200"]
    assert markdown(["redis"], columns, FOUND).splitlines()[1] == "|---|---|---|---|"
    assert "stale accepted" in text_of(["redis"], columns, FOUND).splitlines()[0]
    assert reasons(FOUND) == [
        "Redis streams: it delays no messages (early)",
        "Redis streams: redis-server is missing (ghost after delete)",
        "Redis streams: 3 of 1,200 (stale accepted)",
    ]


def test_each_row_has_a_system_and_a_driver_of_it() -> None:
    assert {one.system for one in ROWS.values()} <= SYSTEMS.keys()
    assert [name for name, one in ROWS.items() if one.driver not in system_class(one.system).drivers] == []


def test_the_documentation_says_what_each_column_does() -> None:
    text = (ROOT / "docs" / "bench.md").read_text()

    assert [name for name, one in COLUMNS.items() if f"| {one.title} | `{name}` |" not in text] == []


def test_the_documentation_has_a_row_for_each_system() -> None:
    lines = (ROOT / "docs" / "bench.md").read_text().splitlines()
    head = f"| | {' | '.join(one.title for one in COLUMNS.values())} |"
    first = lines.index(head) + 2

    assert [lines[first + at].split(" | ")[0] for at in range(len(ROWS))] == [f"| {one.title}" for one in ROWS.values()]


def test_what_a_machine_lacks_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qdo.bench.systems.found_program", lambda name: None)

    found = PromiseTable().cell("redis", "lost-at-kill")

    assert (found.cell, found.is_missing) == ("not measured here", True)
    assert "apt-get install redis-server" in found.said


@pytest.mark.parametrize(("row", "option"), [("elasticmq", "jars"), ("cassandra-weak", "hosts")])
@pytest.mark.parametrize("column", ["lost-at-kill", "ghost"])
def test_a_system_whose_place_is_not_named_is_no_failure(row: str, option: str, column: str) -> None:
    found = PromiseTable().cell(row, column)

    assert (found.cell, found.is_missing) == ("not measured here", True)
    assert found.said.endswith(f"with the option {option}")


@pytest.mark.parametrize("column", ["lost-at-kill", "key-order", "stale"])
def test_a_driver_that_is_not_installed_is_no_lack_of_its_system(column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "qdo.bench.drivers.redis_streams", raising=False)

    found = PromiseTable().cell("redis", column)

    assert (found.cell, found.said) == ("not measured here", "driver redis-streams: redis is not installed")


def test_a_cell_without_messages_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COLUMNS, "stale", ProbedColumn("stale", lambda _: TrialResult(0, 0, "0 of 0 messages")))

    found = PromiseTable().cell("redis", "stale")

    assert (found.cell, found.said) == ("not measured here", "it was tried with no message at all: 0 of 0 messages")


def test_a_driver_that_lacks_something_says_so() -> None:
    assert PromiseTable().cell("redis", "early").said == "delay: the system of this driver delays no messages"
    assert PromiseTable().cell("redis", "key-order").said == "it has no keys in whose order messages are delivered"


def test_a_system_that_starts_slowly_is_killed_later_and_as_often() -> None:
    """The load of eight seconds has a kill in each two: with starts of ten one in seven, and four of them take 68."""
    workload = load(find("promises-kill"))

    found = [up_as_long(workload, start) for start in (0.0, 10.0)]

    assert [one.seconds for one in found] == [8.0, 68.0]
    assert [one.queuey.faults.server and one.queuey.faults.server.mttf for one in found] == [2.0, 7.0]
    assert up_as_long(load(find("promises-keys")), 10.0).seconds == load(find("promises-keys")).seconds


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--row", "none"), "'none' is none of embedded"),
        (("--column", "none"), "'none' is none of lost-at-kill"),
        (("--option", "none.url=1"), "'none' is none of embedded"),
        (("--option", "nats.progam=x"), "option nats.progam: nats knows program"),
        (("--option", "redis.url=redis://127.0.0.1"), "option redis.url: redis knows program"),
        (("--option", "embedded.program=x"), "option embedded.program: embedded knows none"),
    ],
)
def test_an_unknown_name_is_refused(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(main, ["bench", "table", *words])

    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


@pytest.mark.long
@pytest.mark.parametrize("column", COLUMNS)
def test_the_embedded_store_keeps_its_promises(column: str) -> None:
    found = PromiseTable().cell("embedded", column)

    assert (found.wrong, found.of > 0) == (0, True), found.said
