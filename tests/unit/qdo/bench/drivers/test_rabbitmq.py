"""What RabbitMQ's driver makes of answers, and what it leaves behind, without a RabbitMQ."""

from __future__ import annotations

from typing import Any

import pytest
from pika.exceptions import NackError, StreamLostError, UnroutableError

from qdo.bench.drivers import MeasuredSystem, OutgoingMessage
from qdo.bench.drivers.rabbitmq import RabbitQuorumDriver
from queuey.errors import OutcomeUnknown, StorageUnavailable
from tests.support.bench_by_clock import workload_of


class RecordedChannel:
    """Notes which queues there are, and answers each message with the same."""

    def __init__(self, answer: Exception | None = None) -> None:
        self._answer = answer
        self.queues = set[str]()

    def queue_declare(self, queue: str, **_: object) -> None:
        self.queues.add(queue)

    def queue_delete(self, queue: str) -> None:
        self.queues.remove(queue)

    def basic_publish(self, *_: object, **__: object) -> None:
        if self._answer is not None:
            raise self._answer

    def exchange_declare(self, *_: object, **__: object) -> None:
        """Nothing."""

    queue_bind = exchange_delete = exchange_declare


class RecordedConnection:
    def __init__(self, channel: RecordedChannel) -> None:
        self._channel = channel

    def channel(self) -> RecordedChannel:
        return self._channel

    def close(self) -> None:
        """Nothing."""


def driver_of(channel: RecordedChannel, **values: Any) -> RabbitQuorumDriver:
    driver = RabbitQuorumDriver(MeasuredSystem(workload_of(**values), 1))
    driver.connection = lambda *_: RecordedConnection(channel)  # type: ignore[assignment,method-assign]
    return driver


@pytest.mark.parametrize(
    ("answer", "raised"),
    [(NackError([]), OutcomeUnknown), (StreamLostError(), OutcomeUnknown), (UnroutableError([]), StorageUnavailable)],
)
def test_a_message_for_which_the_server_does_not_answer_may_be_stored(
    answer: Exception, raised: type[Exception]
) -> None:
    """One queue of several may have it; where there is no queue, none has."""
    with pytest.raises(raised):
        driver_of(RecordedChannel(answer)).producer().send(0, [OutgoingMessage(b"a")])


def test_the_dead_letters_of_all_subscriptions_are_removed() -> None:
    channel = RecordedChannel()
    driver = driver_of(channel, topics=2, subscriptionsPerTopic=3, group={"max_failures": 2})

    driver.prepare()
    made = len(channel.queues)
    driver.remove()

    assert (made, channel.queues) == (2 * 2 * 3, set())


def test_what_never_is_a_dead_letter_needs_no_queue_for_it() -> None:
    """RabbitMQ refuses a limit of none."""
    channel = RecordedChannel()

    driver_of(channel, group={"max_failures": 0}).prepare()

    assert len(channel.queues) == 1
