"""What became of a batch of which Kafka's client takes only a part, without a Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from qdo.bench.drivers import MeasuredSystem, OutgoingMessage
from qdo.bench.drivers.kafka import KafkaDriver
from queuey.errors import OutcomeUnknown, StorageUnavailable
from tests.support.bench_by_clock import workload_of

TOO_LARGE, NO_ANSWER = KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._MSG_TIMED_OUT


class HalfClient:
    """Takes messages in place of the client, and refuses some at once."""

    def __init__(self, answer: KafkaError | None) -> None:
        """:param answer: to those that it takes."""
        self._answer = answer
        self._taken: list[Callable[[Any, Any], None]] = []

    def produce(self, _topic: str, body: bytes, _key: str | None, *, on_delivery: Callable[[Any, Any], None]) -> None:
        if body == b"large":
            raise KafkaException(KafkaError(TOO_LARGE))
        self._taken.append(on_delivery)

    def flush(self, _seconds: float) -> int:
        for note in self._taken:
            note(self._answer, "stored")
        return 0


@pytest.mark.parametrize(
    ("bodies", "answer", "raised"),
    [
        ([b"large", b"small"], None, StorageUnavailable),
        ([b"small", b"large"], None, OutcomeUnknown),
        ([b"small", b"large"], NO_ANSWER, OutcomeUnknown),
        ([b"small", b"large"], TOO_LARGE, StorageUnavailable),
    ],
)
def test_a_batch_is_refused_only_if_all_of_it_is(
    bodies: list[bytes], answer: int | None, raised: type[Exception]
) -> None:
    producer: Any = KafkaDriver(MeasuredSystem(workload_of(), 1)).producer()
    producer._client = HalfClient(None if answer is None else KafkaError(answer))

    with pytest.raises(raised):
        producer.send(0, [OutgoingMessage(body) for body in bodies])
