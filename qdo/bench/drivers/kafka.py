"""Kafka: a topic for each queue, and a consumer group for each subscription.

A group settles positions, not messages: what is acknowledged counts up to the first message that is not. A message that
is given back, or held for longer than ``visibility``, has its partition read again from there.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from qdo.bench.clock import SECOND
from qdo.bench.drivers import Consumer, Delivered, Driver, OutgoingMessage, Producer
from queuey.errors import OutcomeUnknown, StorageUnavailable

DEFAULT_SERVERS = "127.0.0.1:9092"
ANSWER_SECONDS = 30.0
_NOT_SENT = frozenset([KafkaError._MSG_TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT])  # noqa: SLF001


def carried_out(call: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """The answer to a request.

    :raises OutcomeUnknown: there was none; it may have been carried out.
    :raises StorageUnavailable: it was refused.
    """
    try:
        return call(*values, **options)
    except KafkaException as error:
        raise _as_ours(error.args[0]) from error
    except TimeoutError as error:
        raise OutcomeUnknown("there was no answer in time") from error


def _as_ours(error: Any) -> OutcomeUnknown | StorageUnavailable:
    is_unknown = error.retriable() or error.code() in _NOT_SENT
    return (OutcomeUnknown if is_unknown else StorageUnavailable)(str(error))


class KafkaDriver(Driver):
    """A Kafka cluster."""

    modes = frozenset(["receive", "read"])
    keys = True
    option_names: ClassVar[Mapping[str, str]] = {
        "servers": f"HOST:PORT of brokers; default {DEFAULT_SERVERS}",
        "flush": "1 to have what is acknowledged on disk; else the kernel writes it in its own time",
    }

    @property
    def servers(self) -> dict[str, Any]:
        # What the client says by itself would stand in the report.
        return {"bootstrap.servers": self.target.options.get("servers", DEFAULT_SERVERS), "log_level": 0}

    def prepare(self) -> None:
        workload = self.target.workload
        settings = {"flush.messages": "1"} if self.option("flush", 0) else {}
        names = [self.target.queue(topic) for topic in range(workload.topics)]
        topics = [NewTopic(name, workload.partitions_per_topic, config=settings) for name in names]
        # What was asked goes with the client.
        client = AdminClient(self.servers)
        self._done(client.create_topics(topics))

    def remove(self) -> None:
        client = AdminClient(self.servers)
        self._done(client.delete_topics([self.target.queue(topic) for topic in range(self.target.workload.topics)]))

    @staticmethod
    def _done(asked: Mapping[str, Any]) -> None:
        for future in asked.values():
            carried_out(future.result, ANSWER_SECONDS)

    def versions(self) -> Mapping[str, str]:
        library, _ = confluent_kafka.libversion()
        return {
            "confluent-kafka": confluent_kafka.__version__,
            "librdkafka": library,
            "kafka": self.servers["bootstrap.servers"],
        }

    def producer(self) -> Producer:
        return _KafkaProducer(self)

    def consumer(self, topic: int, subscription: int) -> Consumer:
        if self.target.workload.queuey.receiving.mode == "read":
            return _KafkaReader(self, topic)
        return _GroupConsumer(self, topic, subscription)


class _KafkaProducer(Producer):
    """Repeats are the client's, and are stored once."""

    def __init__(self, driver: KafkaDriver) -> None:
        self._target = driver.target
        settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 0}
        limits = {"message.timeout.ms": int(ANSWER_SECONDS * 1000)}
        self._client = confluent_kafka.Producer({**driver.servers, **settings, **limits})

    def send(self, topic: int, messages: Sequence[OutgoingMessage]) -> None:
        name = self._target.queue(topic)
        errors: list[Any] = []
        confirmed: list[Any] = []

        def note(error: Any, message: Any) -> None:
            (errors if error is not None else confirmed).append(error or message)

        for one in messages:
            try:
                self._client.produce(name, one.body, one.key, on_delivery=note)
            except KafkaException as error:  # those before it are on their way
                errors.append(error.args[0])
                break
        left = self._client.flush(ANSWER_SECONDS + 5)
        if left or (errors and confirmed):
            raise OutcomeUnknown(f"{len(confirmed)} of {len(messages)} messages were acknowledged")
        if errors:
            ours = [_as_ours(error) for error in errors]
            raise next((one for one in ours if isinstance(one, OutcomeUnknown)), ours[0])

    def close(self) -> None:
        self._client.flush(ANSWER_SECONDS)


class _Place(NamedTuple):
    """Where a message lies."""

    partition: int
    offset: int


class _GroupConsumer(Consumer):
    """A member of a consumer group."""

    def __init__(self, driver: KafkaDriver, topic: int, view: int) -> None:
        own = driver.target.workload.queuey.receiving
        self._clock = driver.target.clock
        self._topic = driver.target.queue(topic)
        self._batch = own.batch
        self._visibility = int(own.visibility * SECOND)
        self._held: defaultdict[int, dict[int, int]] = defaultdict(dict)
        """By partition, offsets that were handed out and not settled, and until when they may be held."""
        self._done: dict[int, int] = {}
        """By partition, the offset behind the last message that was handed out."""
        self._client = confluent_kafka.Consumer(
            {
                **driver.servers,
                "group.id": f"{self._topic}-{view}",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._client.subscribe([self._topic], on_revoke=self._forget, on_lost=self._forget)

    def _forget(self, _client: Any, partitions: Sequence[TopicPartition]) -> None:
        """Other members have these partitions now."""
        for one in partitions:
            self._held.pop(one.partition, None)
            self._done.pop(one.partition, None)

    def receive(self, wait: float) -> Sequence[Delivered]:
        now = self._clock.now()
        for partition, held in [*self._held.items()]:
            if any(until <= now for until in held.values()):
                self._read_again(partition, min(held))
        found = _taken(self._client, self._batch, wait)
        held_until = self._clock.now() + self._visibility
        delivered = []
        for one in found:
            place = _Place(one.partition(), one.offset())
            self._held[place.partition][place.offset] = held_until
            self._done[place.partition] = place.offset + 1
            delivered.append(Delivered(one.value(), place))
        return delivered

    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        places = [token for token in tokens if isinstance(token, _Place)]
        was_held = [self._held[place.partition].pop(place.offset, None) is not None for place in places]
        offsets = []
        for partition in {place.partition for place, known in zip(places, was_held, strict=True) if known}:
            settled = min(self._held[partition], default=self._done[partition])
            offsets.append(TopicPartition(self._topic, partition, settled))
        if offsets:
            for one in carried_out(self._client.commit, offsets=offsets, asynchronous=False):
                if one.error is not None:
                    raise _as_ours(one.error)
        reached = {one.partition: one.offset for one in offsets}
        return [
            known and place.offset < reached[place.partition] for place, known in zip(places, was_held, strict=True)
        ]

    def fail(self, tokens: Sequence[object]) -> None:
        firsts: dict[int, int] = {}
        for token in tokens:
            if isinstance(token, _Place) and token.offset in self._held[token.partition]:
                firsts[token.partition] = min(token.offset, firsts.get(token.partition, token.offset))
        for partition, offset in firsts.items():
            self._read_again(partition, offset)

    def _read_again(self, partition: int, offset: int) -> None:
        """From this offset on."""
        carried_out(self._client.seek, TopicPartition(self._topic, partition, offset))
        held = self._held[partition]
        self._held[partition] = {at: until for at, until in held.items() if at < offset}
        self._done[partition] = offset

    def close(self) -> None:
        self._client.close()


class _KafkaReader(Consumer):
    """Reads all partitions from their beginning, without a group."""

    def __init__(self, driver: KafkaDriver, topic: int) -> None:
        workload = driver.target.workload
        name = driver.target.queue(topic)
        self._batch = workload.queuey.receiving.batch
        settings = {"group.id": f"{name}-{uuid.uuid4().hex}", "enable.auto.commit": False}
        self._client = confluent_kafka.Consumer({**driver.servers, **settings})
        beginning = confluent_kafka.OFFSET_BEGINNING
        self._client.assign([TopicPartition(name, at, beginning) for at in range(workload.partitions_per_topic)])

    def receive(self, wait: float) -> Sequence[Delivered]:
        return [Delivered(one.value()) for one in _taken(self._client, self._batch, wait)]

    def close(self) -> None:
        self._client.close()


def _taken(client: Any, most: int, wait: float) -> list[Any]:
    """Waits for the first message alone: the client would wait for all of them.

    :raises QueueyError: the cluster said that something is wrong.
    """
    first = carried_out(client.poll, wait)
    if first is None:
        return []
    found = [first, *(carried_out(client.consume, most - 1, 0) if most > 1 else ())]
    good = [one for one in found if one.error() is None]
    if not good:
        raise _as_ours(first.error())
    return good
