"""Redis streams with consumer groups: what is not acknowledged is claimed by others when it was idle for long enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar

import redis
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as NoAnswerInTime

from qdo.bench.clock import SECOND
from qdo.bench.drivers import Consumer, Delivered, Driver, MeasuredSystem, OutgoingMessage, Producer, StepConsumer
from queuey.errors import OutcomeUnknown, StorageUnavailable

DEFAULT_URL = "redis://127.0.0.1:6379/0"
ANSWER_SECONDS = 30.0
_FIELD = b"b"
_FIRST = b"0-0"
"""Before all entries."""


def carried_out(call: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """The answer to a command.

    :raises OutcomeUnknown: there was none; it may have been carried out.
    :raises StorageUnavailable: it was refused.
    """
    try:
        return call(*values, **options)
    except (NoConnection, NoAnswerInTime) as error:
        raise OutcomeUnknown(str(error)) from error
    except RedisError as error:
        raise StorageUnavailable(str(error)) from error


class RedisDriver(Driver):
    """A Redis server: what its streams and its lists have in common."""

    option_names: ClassVar[Mapping[str, str]] = {"url": f"the server; default {DEFAULT_URL}"}

    def client(self) -> Any:
        # A repeat of a command could store a message twice, and is none of the server's faults.
        return redis.Redis.from_url(
            self.target.options.get("url", DEFAULT_URL), socket_timeout=ANSWER_SECONDS, retry=None
        )

    def remove(self) -> None:
        with self.client() as client:
            for topic in range(self.target.workload.topics):
                for key in self.keys_of(topic):
                    carried_out(client.delete, key)

    def keys_of(self, topic: int) -> Sequence[str]:
        """What holds the messages of a topic."""
        return [self.target.queue(topic)]

    def versions(self) -> Mapping[str, str]:
        with self.client() as client:
            found = carried_out(client.info, "server")
            stored = carried_out(client.config_get, "append*")
        fsync = stored.get("appendfsync", "") if stored.get("appendonly") == "yes" else "never"
        return {"redis": found["redis_version"], "fsync": fsync, "redis-py": redis.__version__}


class RedisStreamsDriver(RedisDriver):
    """A stream for each queue, and a consumer group for each subscription."""

    modes = frozenset(["receive", "read"])

    def __init__(self, target: MeasuredSystem) -> None:
        super().__init__(target)
        self._consumers = count()

    def prepare(self) -> None:
        workload = self.target.workload
        with self.client() as client:
            for topic in self.each_topic():
                for view in range(workload.subscriptions_per_topic):
                    key, group = self.target.queue(topic), f"bench-{view}"
                    carried_out(client.xgroup_create, key, group, id="0", mkstream=True)

    def producer(self) -> Producer:
        return _StreamProducer(self)

    def consumer(self, topic: int, subscription: int) -> Consumer:
        if self.target.workload.queuey.receiving.mode == "read":
            return _StreamReader(self, topic)
        return _GroupConsumer(self, topic, subscription, f"c{id(self):x}-{next(self._consumers)}")


class _StreamProducer(Producer):
    def __init__(self, driver: RedisStreamsDriver) -> None:
        self._client = driver.client()
        self._target = driver.target

    def send(self, topic: int, messages: Sequence[OutgoingMessage]) -> None:
        key = self._target.queue(topic)
        with self._client.pipeline(transaction=len(messages) > 1) as pipe:
            for one in messages:
                pipe.xadd(key, {_FIELD: one.body})
            carried_out(pipe.execute)

    def close(self) -> None:
        self._client.close()


class _GroupConsumer(StepConsumer):
    """Takes new messages, and from time to time those that others have had for too long."""

    def __init__(self, driver: RedisStreamsDriver, topic: int, view: int, name: str) -> None:
        own = driver.target.workload.queuey.receiving
        self._client = driver.client()
        self._clock = driver.target.clock
        self._target = driver.target
        self._key, self._group, self._name = driver.target.queue(topic), f"bench-{view}", name
        self._batch = own.batch
        self._visibility_ms = int(own.visibility * 1000)
        self._next_claim = 0
        self._claim_from = _FIRST
        """Redis looks at ten entries for each that is asked for, whether they are idle or held, and says where to go on."""

    def receive(self, wait: float) -> Sequence[Delivered]:
        now = self._clock.now()
        if now >= self._next_claim and (claimed := self._claimed()):
            return claimed
        if now >= self._next_claim and self._claim_from == _FIRST:  # all were looked at
            self._next_claim = now + min(self._visibility_ms * 1_000_000 // 4, SECOND)
        found = carried_out(
            lambda: self._client.xreadgroup(
                self._group, self._name, {self._key: ">"}, count=self._batch, block=max(1, int(wait * 1000))
            )
        )
        return _delivered(found)

    def _claimed(self) -> Sequence[Delivered]:
        idle, place = self._visibility_ms, self._claim_from
        self._claim_from, found, *_ = carried_out(
            lambda: self._client.xautoclaim(self._key, self._group, self._name, idle, place, count=self._batch)
        )
        return [Delivered(fields[_FIELD], name) for name, fields in found]

    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        with self._client.pipeline(transaction=False) as pipe:
            for token in tokens:
                pipe.xack(self._key, self._group, token)
            return [bool(done) for done in carried_out(pipe.execute)]

    def step(self, tokens: Sequence[object], topic: int, messages: Sequence[OutgoingMessage]) -> None:
        with self._client.pipeline(transaction=True) as pipe:
            pipe.xack(self._key, self._group, *tokens)
            for one in messages:
                pipe.xadd(self._target.queue(topic), {_FIELD: one.body})
            carried_out(pipe.execute)

    def fail(self, tokens: Sequence[object]) -> None:
        """Nothing gives a message back: it is claimed when it was idle for long enough."""

    def close(self) -> None:
        self._client.close()


class _StreamReader(Consumer):
    """Reads the stream from its beginning, without a group."""

    def __init__(self, driver: RedisStreamsDriver, topic: int) -> None:
        self._client = driver.client()
        self._key = driver.target.queue(topic)
        self._batch = driver.target.workload.queuey.receiving.batch
        self._last: object = "0-0"

    def receive(self, wait: float) -> Sequence[Delivered]:
        found = carried_out(
            lambda: self._client.xread({self._key: self._last}, count=self._batch, block=max(1, int(wait * 1000)))
        )
        delivered = _delivered(found)
        if delivered:
            self._last = delivered[-1].token
        return [Delivered(one.body) for one in delivered]

    def close(self) -> None:
        self._client.close()


def _delivered(found: Any) -> list[Delivered]:
    """The entries of the one stream that was asked for; a mapping or a list, by the version of the protocol."""
    streams = found.values() if isinstance(found, dict) else [entries for _, entries in found or ()]
    return [Delivered(fields[_FIELD], name) for entries in streams for name, fields in _flat(entries)]


def _flat(entries: Any) -> Any:
    """RESP3 puts the entries into a list of their own."""
    return entries[0] if entries and entries[0] and isinstance(entries[0][0], list | tuple) else entries
