"""Receivers of Queuey's driver, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from qdo.bench.drivers import MeasuredSystem, OutgoingMessage
from qdo.bench.drivers.http1 import HttpAnswer
from qdo.bench.drivers.queuey_v1 import QueueyDriver
from queuey.errors import ConfigurationError, QueueNotFound
from tests.support.bench_by_clock import workload_of


class EndedClient:
    """Its stream ends at once."""

    def follow(self, _queue: str) -> Iterator[Any]:
        raise QueueNotFound("gone")


class RecordedLine:
    """Notes the headers of what is sent."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    def ask(self, _method: bytes, _path: bytes, headers: bytes, _body: bytes) -> HttpAnswer:
        self.heads.append(headers)
        return HttpAnswer(201, {}, b"{}")


@pytest.mark.parametrize("delay", [0.0004, 1.0004])
def test_a_delay_is_not_rounded_down(delay: float) -> None:
    """Its message would come too soon, and the server be accused of that."""
    line = RecordedLine()
    driver = QueueyDriver(MeasuredSystem(workload_of(delay=delay), 1))
    driver.connection = lambda _wait=0.0: line  # type: ignore[method-assign,assignment,return-value]

    driver.producer().send(0, [OutgoingMessage(b"a", None, delay)])

    (head,) = line.heads
    assert b"X-Delay: %.7f\r\n" % delay in head


def test_a_stream_that_has_ended_answers_nothing_any_more() -> None:
    """An empty answer would say that the server has nothing more: what it was not asked for would count as lost."""
    driver = QueueyDriver(MeasuredSystem(workload_of(receiving={"mode": "follow"}), 1))
    driver.client = EndedClient  # type: ignore[method-assign,assignment]
    consumer = driver.consumer(0, 0)

    for _ in range(3):
        with pytest.raises(ConfigurationError, match=r"the stream ended: .*gone"):
            consumer.receive(60)
    consumer.close()
