"""What is known of a batch of which a service of SQS carries out a part, without a service."""

from __future__ import annotations

from typing import Any

import pytest

from qdo.bench.drivers import MeasuredSystem, OutgoingMessage
from qdo.bench.drivers.sqs import SqsDriver
from queuey.errors import ConfigurationError, OutcomeUnknown, StorageUnavailable
from tests.support.bench_by_clock import workload_of


class PartialClient:
    """Answers in place of the service."""

    def __init__(self, *failed: dict[str, Any]) -> None:
        """:param failed: entries of each answer."""
        self._answer = {"Failed": [*failed]}

    def get_queue_url(self, **_: object) -> dict[str, str]:
        return {"QueueUrl": "http://127.0.0.1/1/q"}

    def delete_message_batch(self, **_: object) -> dict[str, Any]:
        return self._answer

    send_message_batch = delete_message_batch


def wrong(at: int) -> dict[str, Any]:
    return {"Id": f"{at}", "SenderFault": True, "Code": "ReceiptHandleIsInvalid"}


def broken(at: int) -> dict[str, Any]:
    return {"Id": f"{at}", "SenderFault": False, "Code": "InternalError"}


def driver_of(client: PartialClient) -> SqsDriver:
    driver = SqsDriver(MeasuredSystem(workload_of(receiving={"wait": 1}), 1))
    driver.client = lambda: client  # type: ignore[method-assign]
    return driver


def test_a_handle_that_ended_is_not_held_and_the_rest_of_its_batch_is() -> None:
    consumer = driver_of(PartialClient(wrong(1))).consumer(0, 0)

    assert [*consumer.acknowledge(["a", "b", "c"])] == [True, False, True]


def test_a_deletion_at_which_the_service_failed_may_have_been_one() -> None:
    """A receiver that took it for undone would wait for a message that is gone."""
    consumer = driver_of(PartialClient(wrong(0), broken(1))).consumer(0, 0)

    with pytest.raises(OutcomeUnknown, match="1 of 3 were not deleted, or perhaps: InternalError"):
        consumer.acknowledge(["a", "b", "c"])


@pytest.mark.parametrize(
    ("failed", "raised"),
    [
        ([wrong(0), wrong(1)], StorageUnavailable),
        ([wrong(0)], OutcomeUnknown),
        ([wrong(0), broken(1)], OutcomeUnknown),
    ],
)
def test_a_batch_is_refused_only_if_all_of_it_is(failed: list[dict[str, Any]], raised: type[Exception]) -> None:
    producer = driver_of(PartialClient(*failed)).producer()

    with pytest.raises(raised):
        producer.send(0, [OutgoingMessage(b"a"), OutgoingMessage(b"b")])


@pytest.mark.parametrize("delay", [0.5, 1.0001, 901])
def test_a_delay_that_sqs_has_not_is_refused(delay: float) -> None:
    """Rounded up, it would count as the time that messages take."""
    with pytest.raises(ConfigurationError, match="delay: SQS delays messages by whole seconds, at most 900"):
        SqsDriver(MeasuredSystem(workload_of(delay=delay), 1))
    SqsDriver(MeasuredSystem(workload_of(delay=900), 1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"access_key": "some"}, "missing: aws_secret_access_key"),
        ({"url": "none", "access_key": "some", "secret_key": "none"}, "Invalid endpoint: none"),
    ],
)
def test_an_option_that_the_library_does_not_take_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"driver sqs: .*{said}"):
        SqsDriver(MeasuredSystem(workload_of(), 1, options)).prepare()


def test_a_second_subscription_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigurationError, match="subscriptionsPerTopic: a queue of SQS gives each message once"):
        SqsDriver(MeasuredSystem(workload_of(subscriptionsPerTopic=2), 1))
