"""What the fault tests share: a mark, and a time limit that follows from the rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SECONDS_A_TEST = 900


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)
            item.add_marker(pytest.mark.timeout(SECONDS_A_TEST * config.option.fault_rounds))
