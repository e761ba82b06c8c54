"""Rules for Prometheus and boards for Grafana: they load, they are tested, and what they name a running server shows."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from qdo.worker.metrics import WORKER_METRICS
from queuey.monitor.declared import MetricSet
from queuey.monitor.exposition import text_of
from queuey.monitor.metrics import SERVER_METRICS
from tests.support.openmetrics import families_of
from tests.support.raw import TIMEOUT_SECONDS
from tests.support.servers import RunningServer, eventually
from tests.support.source import ROOT

PROMETHEUS, GRAFANA = ROOT / "etc" / "prometheus", ROOT / "etc" / "grafana"
RULES, RULE_TESTS = PROMETHEUS / "rules" / "queuey.yml", PROMETHEUS / "tests" / "queuey.yml"
TOKEN_FILE = "/run/secrets/queuey-metrics-token"
BOARDS = sorted((GRAFANA / "boards").glob("*.json"))
_NAME = re.compile(r"(?<![:\w])(?:queuey|qdo|process)_[a-z0-9_]+(?![:\w])")
_LABEL = re.compile(r"\b(?:by|on|without|ignoring) ?\(([^)]*)\)")
_MATCHER = re.compile(r"((?:queuey|qdo|process)_[a-z0-9_]+)\{([^}]*)\}")
_OF_SCRAPES = {"instance", "job"}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of a rule or a board, with where it stands."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    for path in BOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.stem}: {panel['title']}", target["expr"]
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{path.stem}: {variable['name']}", variable["query"]


def promtool(*arguments: object) -> None:
    ended = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_promtool_takes_the_rules_and_their_tests_pass() -> None:
    promtool("check", "rules", RULES)
    promtool("test", "rules", RULE_TESTS)


def test_promtool_takes_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t" * 32)
    text = (PROMETHEUS / "prometheus.yml").read_text()
    assert TOKEN_FILE in text
    (tmp_path / "prometheus.yml").write_text(text.replace(TOKEN_FILE, "token"))
    (tmp_path / "rules").symlink_to(PROMETHEUS / "rules")

    promtool("check", "config", tmp_path / "prometheus.yml")


def test_every_alert_is_tested_and_says_how_to_mend_it() -> None:
    tested = RULE_TESTS.read_text()
    alerts = [rule for rule in rules() if "alert" in rule]

    assert [rule["alert"] for rule in alerts if rule["alert"] not in tested] == []
    assert [rule["record"] for rule in rules() if "record" in rule and rule["record"] not in tested] == [
        "instance:queuey_http_errors:rate5m",
        "route:queuey_http_request_duration_seconds:p99_5m",
    ]  # what QueueyErrors and QueueySlow are tested with
    assert all(rule["annotations"].keys() == {"summary", "mend"} for rule in alerts)
    assert {rule["labels"]["severity"] for rule in alerts} == {"info", "warning", "critical"}


@pytest.fixture(scope="module")
def shown(shipped_server: RunningServer) -> Mapping[str, str]:
    """The kinds of all metrics that a running server and a worker show, by their names in samples."""
    text = requests.get(f"{shipped_server.url}/metrics", timeout=TIMEOUT_SECONDS).text
    text += text_of(MetricSet(WORKER_METRICS)).decode()
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def shown_as(name: str, shown: Mapping[str, str]) -> bool:
    kind = shown.get(name)
    family = re.sub(r"_(bucket|sum|count)$", "", name)
    return kind in ("counter", "gauge") or (family != name and shown.get(family) == "histogram")


def test_every_metric_that_a_rule_or_a_board_names_is_shown(shown: Mapping[str, str]) -> None:
    found = [(where, name) for where, expression in expressions() for name in _NAME.findall(expression)]

    assert len(found) > 80
    assert [(where, name) for where, name in found if not shown_as(name, shown)] == []


def test_every_label_that_a_rule_or_a_board_names_is_one_of_its_metric() -> None:
    labels = {one.exposed: {*one.labels, *_OF_SCRAPES} for one in (*SERVER_METRICS.metrics, *WORKER_METRICS.metrics)}
    wrong = []
    for where, expression in expressions():
        names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in _NAME.findall(expression)}
        known = set().union(*(labels.get(name, _OF_SCRAPES) for name in names), {"le"}) | (
            {"app", "instance", "route"} if ":" in expression else set()
        )
        for group in _LABEL.findall(expression):
            wrong += [(where, label) for label in re.findall(r"\w+", group) if label not in known]
        for name, matchers in _MATCHER.findall(expression):
            own = labels.get(re.sub(r"_(bucket|sum|count)$", "", name), _OF_SCRAPES)
            wrong += [(where, label) for label in re.findall(r"(\w+)[=!]", matchers) if label not in own]

    assert wrong == []


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_board_has_the_form_that_grafana_loads(path: Path) -> None:
    board = json.loads(path.read_text())

    assert board["uid"] == path.stem
    ids = [panel["id"] for panel in board["panels"]]
    assert sorted(set(ids)) == sorted(ids)
    covered: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (column, line)
            for column in range(place["x"], place["x"] + place["w"])
            for line in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not covered & cells, panel["title"]
        covered |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${source}"}


def test_a_server_shows_its_disk_its_keys_and_its_process(shipped_server: RunningServer) -> None:
    def samples() -> dict[str, float]:
        text = requests.get(f"{shipped_server.url}/metrics", timeout=TIMEOUT_SECONDS).text
        found = re.findall(r"^(\w+\{[^}]*\}|\w+) (\S+)$", text, re.MULTILINE)
        return {series: float(value) for series, value in found}

    # A turn of the thread that looks sets the disk first, then the keys.
    key = 'queuey_key_created_timestamp_seconds{app="demo"}'
    found = eventually(lambda: found if key in (found := samples()) else {})

    assert found["queuey_disk_free_bytes"] > found["queuey_disk_reserve_bytes"] > 0
    assert found[key] > 1.7e9
    assert found["process_resident_memory_bytes"] > 1 << 20


def scraped(running: RunningServer, accept: str) -> requests.Response:
    answer = requests.get(f"{running.url}/metrics", headers={"Accept": accept}, timeout=TIMEOUT_SECONDS)
    assert answer.status_code == 200
    return answer


OF_PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.75,application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=0.0.4;q=0.25,*/*;q=0.1"
)


def test_a_scraper_gets_openmetrics_if_it_asks_for_that(shipped_server: RunningServer) -> None:
    requests.get(f"{shipped_server.url}/v1", headers={"X-Request-Id": "of-an-exemplar"}, timeout=TIMEOUT_SECONDS)

    for accept in ("", "*/*", "text/plain", "text/plain;version=0.0.4, application/openmetrics-text;q=0"):
        plain = scraped(shipped_server, accept)
        assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert " # {" not in plain.text

    answer = scraped(shipped_server, OF_PROMETHEUS)
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert answer.headers["vary"] == "accept"
    samples = [one for family in families_of(answer.text) for one in family.samples]
    (found,) = [one for one in samples if one.exemplar and one.exemplar.labels.get("request_id") == "of-an-exemplar"]
    assert found.labels["code"] == "403"


def test_promtool_takes_both_forms(shipped_server: RunningServer, tmp_path: Path) -> None:
    plain, openmetrics_text = (scraped(shipped_server, accept).text for accept in ("", OF_PROMETHEUS))

    linted = subprocess.run(["promtool", "check", "metrics"], input=plain, capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout + linted.stderr) == (0, "")

    # Blocks for the database are made of samples with a time.
    timed = re.sub(r"^([^#\n]\S*(?:\{.*?\})? \S+)", r"\1 1795236650.5", openmetrics_text, flags=re.MULTILINE)
    (tmp_path / "metrics").write_text(timed)
    promtool("tsdb", "create-blocks-from", "openmetrics", tmp_path / "metrics", tmp_path / "blocks")
    assert list((tmp_path / "blocks").glob("*/index"))
