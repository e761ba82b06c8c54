"""``queuey bench``: whole runs in which messages come again, most of them with order by key."""

from __future__ import annotations

from pathlib import Path

import pytest

from qdo.bench.running import Experiment
from qdo.bench.workload import load

KEYS = """
name: keys
producerRate: 400
messageSize: 128
producersPerTopic: 2
consumerPerSubscription: 2
queuey:
  seconds: 1
  warmup: 0
  repeats: 1
  linger: 0.1
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.yaml"


@pytest.mark.parametrize("per_key", [1, 5])
def test_a_server_lets_no_message_overtake_one_that_comes_again(path: Path, per_key: int) -> None:
    """Receivers forget messages, and give others back, until they are dead letters."""
    path.write_text(
        f"{KEYS}  start: queuey\n  keys: {{count: 8}}\n"
        "  receiving: {wait: 0.2, batch: 5, visibility: 0.5, crash: 0.1, poison: 0.05}\n"
        f"  group: {{per_key: {per_key}, max_failures: 3, backoff: {{first: 0.1}}}}\n"
    )

    ((document, _),) = Experiment(load(path)).run()

    (run,) = [one["queuey"] for one in document["runs"]]
    assert (run["stored"], run["distinct"]) == (400, 400)
    assert run["redelivered"] > 20
    assert {kind: count for kind, count in run["found"].items() if count and kind not in ("out_of_order", "late")} == {}


@pytest.mark.parametrize("where", ["driver: memory", "start: queuey"])
def test_a_message_that_is_overtaken_by_plan_is_found(path: Path, where: str) -> None:
    path.write_text(f"{KEYS}  {where}\n  keys: {{count: 4}}\n  receiving: {{wait: 0.2}}\n")

    ((document, _),) = Experiment(load(path), plant="overtake").run()

    (run,) = [one["queuey"] for one in document["runs"]]
    assert document["verdict"]["exit"] == 1
    assert run["found"]["overtaken"] == run["planted"] > 0


@pytest.mark.parametrize("keys", ["", "  keys: {count: 8}\n"])
@pytest.mark.parametrize("where", ["driver: memory", "start: queuey"])
def test_a_message_that_is_forgotten_by_plan_is_stranded(path: Path, where: str, keys: str) -> None:
    path.write_text(f"{KEYS}  {where}\n{keys}  receiving: {{wait: 0.2, visibility: 0.5}}\n")

    ((document, _),) = Experiment(load(path), plant="forget").run()

    (run,) = [one["queuey"] for one in document["runs"]]
    assert document["verdict"]["exit"] == 1
    assert run["found"]["stranded"] == run["planted"] > 0
    assert run["found"]["lost"] == run["found"]["duplicates"] == 0


@pytest.mark.parametrize("rate", ["0", "0.3"])
def test_a_run_waits_for_what_its_receivers_forgot(path: Path, rate: str) -> None:
    """All has arrived long before the last lease is over."""
    said: list[str] = []
    path.write_text(f"{KEYS}  receiving: {{wait: 0.2, visibility: 2, crash: 0.3}}\n  group: {{max_failures: 0}}\n")

    ((document, _),) = Experiment(load(path), ["faulty"], {"forget": rate}, tell=said.append).run()

    (run,) = [one["queuey"] for one in document["runs"]]
    assert run["distinct"] == 400
    assert run["redelivered"] > 0
    assert any("all is sent; " in text and "to come again, within 60 s" in text for text in said)
    assert bool(run["found"]["stranded"]) == (rate != "0")
