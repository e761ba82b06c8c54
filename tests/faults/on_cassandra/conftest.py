"""Of the tests that break three Cassandra nodes each run draws a few, for all would take too long."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and HERE in item.path.parents and "cassandra_cluster" in item.fixturenames:
            item.add_marker(pytest.mark.drawn)
