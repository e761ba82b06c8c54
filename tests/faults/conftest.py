"""What the fault tests share: how many rounds, which choices, and a time limit that follows from the rounds."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SECONDS_A_TEST = 900


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)
            item.add_marker(pytest.mark.timeout(SECONDS_A_TEST * config.option.fault_rounds))


@pytest.fixture
def rounds(pytestconfig: pytest.Config) -> Callable[[int], range]:
    """``rounds(3)``: the numbers of three rounds, or of as many times three as the run was asked for."""
    times: int = pytestconfig.option.fault_rounds
    return lambda usual: range(usual * times)


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Each test's own choices, the same again for the same seed."""
    seed: int = request.config.option.fault_seed
    return random.Random(seed ^ zlib.crc32(request.node.nodeid.encode()))
