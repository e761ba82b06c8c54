"""A time limit that leaves room for three Cassandra nodes to start; and a share of these tests, where all would take too long."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SECONDS_A_TEST = 600


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.timeout(SECONDS_A_TEST * config.option.fault_rounds), append=False)
    if config.option.fault_share is not None:
        _leave_out(
            config, items, [item for item in ours if _breaks_nodes(item) and not item.get_closest_marker("long")]
        )


def _breaks_nodes(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "cassandra_cluster" in item.fixturenames


def _leave_out(config: pytest.Config, items: list[pytest.Item], ours: list[pytest.Item]) -> None:
    """All but as many as are asked for, whole functions: the same ones in each process, others with another seed."""
    names = sorted({item.nodeid.partition("[")[0] for item in ours})
    kept = random.Random(config.option.fault_seed).sample(names, min(config.option.fault_share, len(names)))
    left_out = [item for item in ours if item.nodeid.partition("[")[0] not in kept]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
