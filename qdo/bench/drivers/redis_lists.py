"""Redis lists: a message is popped by one consumer, and is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qdo.bench.drivers import Consumer, Delivered, OutgoingMessage, Producer
from qdo.bench.drivers.redis_streams import RedisDriver, carried_out


class RedisListsDriver(RedisDriver):
    """A list for each subscription of each queue."""

    modes = frozenset(["pop"])

    def prepare(self) -> None:
        """A list is made by its first message."""

    def keys_of(self, topic: int) -> Sequence[str]:
        return [f"{self.target.queue(topic)}-{view}" for view in range(self.target.workload.views)]

    def producer(self) -> Producer:
        return _ListProducer(self)

    def consumer(self, topic: int, subscription: int) -> Consumer:
        return _ListConsumer(self, self.keys_of(topic)[subscription])


class _ListProducer(Producer):
    def __init__(self, driver: RedisListsDriver) -> None:
        self._driver = driver
        self._client = driver.client()

    def send(self, topic: int, messages: Sequence[OutgoingMessage]) -> None:
        bodies = [one.body for one in messages]
        keys = self._driver.keys_of(topic)
        with self._client.pipeline(transaction=len(keys) > 1) as pipe:
            for key in keys:
                pipe.rpush(key, *bodies)
            carried_out(pipe.execute)

    def close(self) -> None:
        self._client.close()


class _ListConsumer(Consumer):
    def __init__(self, driver: RedisListsDriver, key: str) -> None:
        self._client = driver.client()
        self._key = key
        self._batch = driver.target.workload.queuey.receiving.batch

    def receive(self, wait: float) -> Sequence[Delivered]:
        # A wait of 0 is for ever.
        found: Any = carried_out(
            lambda: self._client.blmpop(max(wait, 0.01), 1, self._key, direction="LEFT", count=self._batch)
        )
        return [Delivered(body) for body in found[1]] if found else []

    def close(self) -> None:
        self._client.close()
