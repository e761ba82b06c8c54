"""The benchmark measures what it says. What it measures is no test: a figure passes or fails nothing here."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from qdo.bench.promises import power as power_cuts
from tests.bench import peers
from tests.bench.__main__ import BACKENDS, bench
from tests.bench.drivers import NUMBER, drive, numbered, request
from tests.bench.measure import Spread, alternate, ratios
from tests.bench.on_cassandra import power
from tests.bench.plan import Plan
from tests.bench.reads import arrow
from tests.bench.spark import TOPICS as OF_THE_PIPELINE
from tests.bench.spark import SparkPlan, staged
from tests.bench.spark.batch import read
from tests.bench.table import Row, markdown, parse_bar
from tests.support.services.cassandra import Commitlog

pytestmark = pytest.mark.bench


def row(*, ratio: float, p99: float) -> Row:
    return Row(
        "append",
        "",
        "",
        Spread(ratio, ratio, ratio),
        first="ratio >= 0.3",
        goal="ratio >= 0.5, p99 <= 5 ms",
        figures={"p99": p99},
    )


@pytest.mark.parametrize(
    ("ratio", "p99", "verdict"),
    [
        (0.5, 5.0, "reached"),
        (0.5, 5.1, "first bar"),
        (0.49, 1.0, "first bar"),
        (0.3, 9.0, "first bar"),
        (0.29, 1.0, "short"),
    ],
)
def test_the_goal_is_reached_when_all_its_limits_are_met(ratio: float, p99: float, verdict: str) -> None:
    assert row(ratio=ratio, p99=p99).verdict == verdict


def test_a_row_without_a_first_bar_falls_short_of_its_goal() -> None:
    assert Row("memory", "", "", goal="more <= 15 MiB", figures={"more": 15.1}).verdict == "short"
    assert Row("memory", "", "", goal="more <= 15 MiB", figures={"more": 15.0}).verdict == "reached"


def test_a_row_without_bars_is_only_recorded() -> None:
    assert Row("trap", "", "", Spread(0.1, 0.1, 0.1)).verdict == "recorded"


def test_a_bar_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ValueError, match="is no limit"):
        parse_bar("ratio > 0.5")


def test_a_ratio_is_taken_within_each_round_so_that_a_slow_round_does_not_count() -> None:
    baseline, subject = [100.0, 10.0, 100.0], [50.0, 5.0, 60.0]

    assert ratios(subject, baseline) == Spread(0.5, 0.5, 0.6)


def test_baseline_and_subject_take_turns_in_going_first() -> None:
    calls = iter(range(6))

    baseline, subject = alternate(lambda: next(calls), lambda: next(calls), 3)

    assert (baseline, subject) == ([0, 3, 4], [1, 2, 5])


def test_a_table_has_a_line_for_each_row() -> None:
    table = markdown([row(ratio=0.5, p99=1), Row("b", "", "", goal="", first="")]).splitlines()

    assert len(table) == 4
    assert len({line.count("|") for line in table}) == 1


def test_the_help_names_every_topic() -> None:
    shown = "".join(CliRunner().invoke(bench, ["--help"]).output.split())  # a line may end within a name

    assert [name for topics in BACKENDS.values() for name in topics if name not in shown] == []
    shown = CliRunner().invoke(bench, ["pipeline", "--help"]).output
    assert [name for name in OF_THE_PIPELINE if name not in shown] == []


def test_too_few_queues_are_refused() -> None:
    refused = CliRunner().invoke(bench, ["--only", "queues", "--queues", "999"])

    assert refused.exit_code == 2
    assert "999 is not in the range x>=1000" in refused.output


def test_a_row_is_measured_against_the_shipped_server(tmp_path: Path) -> None:
    """Arrow, because it needs no load generator; a stream that lacks a row would fail the run."""
    plan = Plan(
        tmp_path,
        seconds=0.25,
        rounds=1,
        queues=100,
        stored=1000,
        rows=2000,
        appended=100,
        consumed=100,
        tell=lambda text: None,
    )

    raw, decoded = arrow(plan)

    for measured in (raw, decoded):
        assert measured.ratio is not None
        assert measured.ratio.least > 0
        assert measured.verdict in ("reached", "first bar", "short")


def test_the_first_number_is_sent() -> None:
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """It says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever).start()
        listening: Any = SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}")
        drive(listening, numbered(request("GET", f"/{NUMBER}"), 5, 12), 1)
        server.shutdown()

    assert asked[:6] == [f"/{number:07d}" for number in range(5, 11)]


@pytest.mark.long
def test_rows_of_the_pipeline_are_measured_beside_kafka(tmp_path: Path) -> None:
    """A message that one of the two lacks, or has twice, would fail the run."""
    plan = SparkPlan(tmp_path, rounds=1, messages=4000, few=400, in_a_batch=1000, triggers=2, tell=lambda text: None)

    with staged(plan) as stage:
        beside_kafka, spent, narrow, as_json = read(stage)

    for measured in (beside_kafka, narrow, as_json):
        assert measured.ratio is not None
        assert measured.ratio.least > 0
    assert "Kafka" in beside_kafka.baseline
    assert "Python" in spent.ours


@pytest.mark.long
def test_peers_are_started_and_measured_in_one_table(tmp_path: Path) -> None:
    plan = Plan(tmp_path, 1.0, 1, 1, 1, 1, 1, 1, tell=lambda text: None)

    documents = peers.run(plan, ["nats", "kafka"])

    assert [one["driver"] for one in documents] == ["queuey", "nats", "kafka"]
    assert [one["verdict"]["violations"] for one in documents] == [[], [], []]
    assert all(one["versions"] for one in documents)


@pytest.mark.long
@pytest.mark.parametrize(("commitlog", "loses"), [("batch", False), ("periodic", True)])
def test_a_power_cut_takes_what_a_node_had_not_synced(tmp_path: Path, commitlog: Commitlog, loses: bool) -> None:
    plan = Plan(tmp_path, 1.0, 1, 1, 1, 1, 1, 1, tell=lambda text: None, commitlog=commitlog)

    found = power.cut(plan, "cassandra-exact")

    assert found.of >= power_cuts.LEAST_MESSAGES
    assert found.wrong == (found.of if loses else 0), found.said
