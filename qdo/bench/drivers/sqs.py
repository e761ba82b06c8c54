"""Any service with the protocol of Amazon SQS, by boto3: Amazon's, ElasticMQ, Queuey's own.

boto3 spends about a millisecond of processor time on a request, so speeds over it are mostly its own; what is lost,
repeated or out of order is the service's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import count
from typing import Any, ClassVar
from uuid import uuid4

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from qdo.bench.drivers import Consumer, DeadLetterDriver, Delivered, MeasuredSystem, OutgoingMessage, Producer
from queuey.errors import ConfigurationError, OutcomeUnknown, QueueNotFound, QueueyError, StorageUnavailable

_NO_QUEUE = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
MOST_A_REQUEST = 10
"""Messages, by the protocol."""
MOST_DELAY = 900


class SqsDriver(DeadLetterDriver):
    """An endpoint of SQS."""

    keys = True
    delays = True
    option_names: ClassVar[Mapping[str, str]] = {
        "url": "the endpoint; default Amazon's of the region",
        "region": "default us-east-1",
        "access_key": "id; default by boto3 from environment and files",
        "secret_key": "secret of the access key; better set AWS_SECRET_ACCESS_KEY",
        "fifo": "1 for FIFO queues",
    }

    def __init__(self, target: MeasuredSystem) -> None:
        super().__init__(target)
        self.fifo = bool(self.option("fifo", 0))
        own = target.workload.queuey
        if own.receiving.batch > MOST_A_REQUEST or own.batch > MOST_A_REQUEST:
            raise ConfigurationError(f"batch: a request of SQS has at most {MOST_A_REQUEST} messages")
        if target.workload.subscriptions_per_topic > 1:
            raise ConfigurationError("subscriptionsPerTopic: a queue of SQS gives each message once")
        if own.delay and self.fifo:
            raise ConfigurationError("delay: messages of FIFO queues have none of their own")
        if own.delay % 1 or own.delay > MOST_DELAY:
            raise ConfigurationError(f"delay: SQS delays messages by whole seconds, at most {MOST_DELAY}")
        if target.workload.keys and not self.fifo:
            raise ConfigurationError("keys: only FIFO queues keep order: option fifo=1")
        self._urls: dict[str, str] = {}

    def client(self) -> Any:
        """:raises ConfigurationError: the library does not take an option, or one of two that go together is missing."""
        options = self.target.options
        try:
            return boto3.client(
                "sqs",
                endpoint_url=options.get("url"),
                region_name=options.get("region", "us-east-1"),
                aws_access_key_id=options.get("access_key"),
                aws_secret_access_key=options.get("secret_key"),
                # A repeat of a send could store a message twice, and is none of the service's faults.
                config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=40),
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigurationError(f"driver sqs: {error}") from error

    def queue(self, topic: int) -> str:
        return self.target.queue(topic) + (".fifo" if self.fifo else "")

    def url(self, client: Any, queue: str) -> str:
        if queue not in self._urls:
            self._urls[queue] = carried_out(client.get_queue_url, QueueName=queue)["QueueUrl"]
        return self._urls[queue]

    def prepare(self) -> None:
        attributes = {"FifoQueue": "true"} if self.fifo else {}
        with closing(self.client()) as client:
            for topic in self.each_topic():
                more = self._dead_after(client, topic, attributes)
                carried_out(client.create_queue, QueueName=self.queue(topic), Attributes={**attributes, **more})

    def _dead_after(self, client: Any, topic: int, attributes: Mapping[str, str]) -> Mapping[str, str]:
        """The attribute for the dead letters of a queue, with a queue for them, if the workload asks for it."""
        if self.max_failures is None:
            return {}
        made = carried_out(client.create_queue, QueueName=self.letters_queue(topic), Attributes=attributes)
        known = carried_out(client.get_queue_attributes, QueueUrl=made["QueueUrl"], AttributeNames=["QueueArn"])[
            "Attributes"
        ]
        policy = {"deadLetterTargetArn": known["QueueArn"], "maxReceiveCount": str(self.max_failures)}
        return {"RedrivePolicy": json.dumps(policy)}

    def letters_queue(self, topic: int) -> str:
        return self.target.queue(topic) + ("-dead.fifo" if self.fifo else "-dead")

    def letters(self, topic: int) -> Consumer:
        return _SqsConsumer(self, self.letters_queue(topic))

    def remove(self) -> None:
        with closing(self.client()) as client:
            for topic in range(self.target.workload.topics):
                names = [self.queue(topic), *([] if self.max_failures is None else [self.letters_queue(topic)])]
                for name in names:
                    carried_out(client.delete_queue, QueueUrl=self.url(client, name))

    def versions(self) -> Mapping[str, str]:
        return {"boto3": boto3.__version__, "botocore": botocore.__version__, "url": self.target.options.get("url", "")}

    def producer(self) -> Producer:
        return _SqsProducer(self)

    def consumer(self, topic: int, subscription: int) -> Consumer:
        return _SqsConsumer(self, self.queue(topic))


def carried_out(call: Callable[..., Any], **values: Any) -> Any:
    """The answer to a request.

    :raises QueueNotFound: the queue is not there.
    :raises ConfigurationError: there are no credentials to sign with.
    :raises QueueyError: it was refused, or nothing is known of it.
    """
    try:
        return call(**values)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in _NO_QUEUE:
            raise QueueNotFound(str(error)) from error
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status >= 500:
            raise OutcomeUnknown(str(error)) from error
        raise StorageUnavailable(str(error)) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise ConfigurationError(
            f"{error}: options access_key and secret_key, or AWS_ACCESS_KEY_ID and its secret"
        ) from error
    except BotoCoreError as error:
        raise OutcomeUnknown(str(error)) from error


def _is_refused(failed: Mapping[str, Any]) -> bool:
    """Whether an entry that failed was wrong itself. One that the service failed at may have been carried out."""
    return bool(failed.get("SenderFault"))


class _SqsProducer(Producer):
    def __init__(self, driver: SqsDriver) -> None:
        self._driver = driver
        self._client = driver.client()
        self._once = count()
        self._name = uuid4().hex

    def send(self, topic: int, messages: Sequence[OutgoingMessage]) -> None:
        entries = [self._entry(at, one) for at, one in enumerate(messages)]
        url = self._driver.url(self._client, self._driver.queue(topic))
        answer = carried_out(self._client.send_message_batch, QueueUrl=url, Entries=entries)
        if failed := answer.get("Failed"):
            is_refusal = len(failed) == len(entries) and all(map(_is_refused, failed))
            text = f"{len(failed)} of {len(entries)} messages were refused: {failed[0].get('Code')}"
            raise (StorageUnavailable if is_refusal else OutcomeUnknown)(text)

    def _entry(self, at: int, message: OutgoingMessage) -> dict[str, Any]:
        entry: dict[str, Any] = {"Id": str(at), "MessageBody": message.body.decode()}
        if self._driver.fifo:
            entry["MessageGroupId"] = message.key or "all"
            entry["MessageDeduplicationId"] = f"{self._name}-{next(self._once)}"
        elif message.delay:
            entry["DelaySeconds"] = int(message.delay)
        return entry

    def close(self) -> None:
        self._client.close()


class _SqsConsumer(Consumer):
    def __init__(self, driver: SqsDriver, queue: str) -> None:
        own = driver.target.workload.queuey.receiving
        self._client = driver.client()
        self._url = driver.url(self._client, queue)
        self._batch = own.batch
        self._visibility = math.ceil(own.visibility)

    def receive(self, wait: float) -> Sequence[Delivered]:
        answer = carried_out(
            self._client.receive_message,
            QueueUrl=self._url,
            MaxNumberOfMessages=self._batch,
            VisibilityTimeout=self._visibility,
            WaitTimeSeconds=min(20, math.ceil(wait)),
        )
        return [Delivered(one["Body"].encode(), one["ReceiptHandle"]) for one in answer.get("Messages", ())]

    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        entries = [{"Id": str(at), "ReceiptHandle": token} for at, token in enumerate(tokens)]
        answer = carried_out(self._client.delete_message_batch, QueueUrl=self._url, Entries=entries)
        failed = answer.get("Failed", ())
        if unknown := [one.get("Code") for one in failed if not _is_refused(one)]:
            raise OutcomeUnknown(f"{len(unknown)} of {len(entries)} were not deleted, or perhaps: {unknown[0]}")
        refused = {int(one["Id"]) for one in failed}
        return [at not in refused for at in range(len(tokens))]

    def close(self) -> None:
        self._client.close()

    def fail(self, tokens: Sequence[object]) -> None:
        for token in tokens:
            try:
                carried_out(
                    self._client.change_message_visibility,
                    QueueUrl=self._url,
                    ReceiptHandle=token,
                    VisibilityTimeout=0,
                )
            except QueueyError:
                continue
