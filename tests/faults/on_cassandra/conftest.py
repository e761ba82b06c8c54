"""A time limit that leaves room for three Cassandra nodes to start; and of these tests each run draws a few, for all would take too long."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SECONDS_A_TEST = 600


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(SECONDS_A_TEST * config.option.fault_rounds), append=False)
            if isinstance(item, pytest.Function) and "cassandra_cluster" in item.fixturenames:
                item.add_marker(pytest.mark.drawn)
