"""The driver that spreads its connections over several servers."""

from __future__ import annotations

import pytest

from qdo.bench.drivers import MeasuredSystem, driver_class
from qdo.bench.spread import SpreadQueueyDriver
from queuey.errors import ConfigurationError
from tests.support.bench_by_clock import workload_of


def test_connections_take_the_servers_in_turn() -> None:
    target = MeasuredSystem(workload_of(), 1, {"url": "http://one:1,http://two:2", "key": "k"})
    driver = SpreadQueueyDriver(target)

    assert [driver.url() for _ in range(3)] == ["http://one:1", "http://two:2", "http://one:1"]
    assert driver.server.url == "http://one:1"


def test_it_is_found_by_its_entry_point() -> None:
    assert driver_class("queuey-spread") is SpreadQueueyDriver


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no option urls"):
        SpreadQueueyDriver(MeasuredSystem(workload_of(), 1, {"urls": "http://one:1"}))
