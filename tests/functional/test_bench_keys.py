"""``queuey bench``: order by key in whole runs, while messages come again."""

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
