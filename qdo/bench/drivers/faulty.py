"""A system that loses, repeats, swaps, forgets and overtakes messages at stated rates: the judge must find each."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

from qdo.bench.drivers import Consumer, Delivered, MeasuredSystem, OutgoingMessage, Producer
from qdo.bench.drivers.memory import MemoryDriver
from queuey.errors import ConfigurationError


class FaultyDriver(MemoryDriver):
    """The system in memory, with faults drawn from the seed of the workload."""

    option_names: ClassVar[Mapping[str, str]] = {
        **MemoryDriver.option_names,
        "lose": "share of the messages that are acknowledged to the producer, and not kept",
        "repeat": "share of the messages that are handed out twice",
        "swap": "share of the messages that are handed out after the next one of their answer",
        "forget": "share of the messages that are handed out once, settled or not",
        "overtake": "share of the messages that are handed out also while an earlier one of their key is",
    }

    fault_names: ClassVar[Sequence[str]] = ("lose", "repeat", "swap", "forget", "overtake")

    def __init__(self, target: MeasuredSystem) -> None:
        super().__init__(target)
        self.rates = {name: self.option(name, 0) for name in self.fault_names}
        for name, rate in self.rates.items():
            if rate > 1:
                raise ConfigurationError(f"option {name}: {rate} is no share: 0 to 1")
        workload = target.workload
        if self.rates["overtake"] and not (workload.leases and workload.keys):
            raise ConfigurationError("option overtake: only leases of messages with keys can be overtaken")
        self._made = 0

    def chance(self) -> random.Random:
        """Of one producer or consumer."""
        self._made += 1
        return random.Random(f"{self.target.workload.queuey.seed}/{self._made}")  # noqa: S311 -- repeatable, not secret

    def producer(self) -> Producer:
        return _FaultyProducer(self, super().producer())

    def consumer(self, topic: int, subscription: int) -> Consumer:
        return _FaultyConsumer(self, super().consumer(topic, subscription))


class _FaultyProducer(Producer):
    def __init__(self, driver: FaultyDriver, inner: Producer) -> None:
        self._inner = inner
        self._chance = driver.chance()
        self._lose, self._overtake = driver.rates["lose"], driver.rates["overtake"]

    def send(self, topic: int, messages: Sequence[OutgoingMessage]) -> None:
        kept = [one for one in messages if self._chance.random() >= self._lose]
        if self._overtake:
            # The system does not know the key of such a message; its name in the body has it.
            kept = [one._replace(key=None) if self._chance.random() < self._overtake else one for one in kept]
        self._inner.send(topic, kept)


class _FaultyConsumer(Consumer):
    def __init__(self, driver: FaultyDriver, inner: Consumer) -> None:
        self._inner = inner
        self._chance = driver.chance()
        self._forget, self._forgotten = driver.rates["forget"], set[object]()
        self._repeat, self._swap = driver.rates["repeat"], driver.rates["swap"]

    def receive(self, wait: float) -> Sequence[Delivered]:
        handed = [*self._inner.receive(wait)]
        forgotten = [one.token for one in handed if self._forget and self._chance.random() < self._forget]
        if forgotten:
            self._inner.acknowledge(forgotten)
            self._forgotten.update(forgotten)
        at = 0
        while at + 1 < len(handed):
            if self._chance.random() < self._swap:
                handed[at], handed[at + 1] = handed[at + 1], handed[at]
                at += 1
            at += 1
        return [one for one in handed for _ in range(1 + (self._chance.random() < self._repeat))]

    def acknowledge(self, tokens: Sequence[object]) -> Sequence[bool]:
        held = self._inner.acknowledge(tokens)
        return [one or token in self._forgotten for token, one in zip(tokens, held, strict=True)]

    def fail(self, tokens: Sequence[object]) -> None:
        self._inner.fail(tokens)
