"""Receivers of Queuey's driver, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from qdo.bench.drivers import MeasuredSystem
from qdo.bench.drivers.queuey_v1 import QueueyDriver
from queuey.errors import ConfigurationError, QueueNotFound
from tests.support.bench_by_clock import workload_of


class EndedClient:
    """Its stream ends at once."""

    def follow(self, _queue: str) -> Iterator[Any]:
        raise QueueNotFound("gone")


def test_a_stream_that_has_ended_answers_nothing_any_more() -> None:
    """An empty answer would say that the server has nothing more: what it was not asked for would count as lost."""
    driver = QueueyDriver(MeasuredSystem(workload_of(receiving={"mode": "follow"}), 1))
    driver.client = EndedClient  # type: ignore[method-assign,assignment]
    consumer = driver.consumer(0, 0)

    for _ in range(3):
        with pytest.raises(ConfigurationError, match=r"the stream ended: .*gone"):
            consumer.receive(60)
    consumer.close()
