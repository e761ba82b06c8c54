"""What goes wrong with servers, their clocks, the network and the nodes: one thing at a time, for a while."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.fleet import READ_DELAY, Fleet
from tests.support.services.cassandra import Cassandra
from tests.support.services.proxy import BOTH, Proxy, Way

STEPS = (-5.0, -1.0, -0.2, 0.2, 1.0, 5.0)
"""Seconds by which one server's wall clock is off for a while: some that it may be, some that it must not."""

LONG_WAY_SECONDS = 0.3


@dataclass
class Mishaps:
    """Each lasts from half a read delay to three."""

    fleet: Fleet
    cassandra: Cassandra
    chance: random.Random
    happened: Counter[str] = field(default_factory=Counter)

    def happen(self, kind: str) -> None:
        with getattr(self, kind)():
            time.sleep(self.chance.uniform(0.5, 3.0) * READ_DELAY)
        self.happened[kind] += 1

    @contextmanager
    def server_stopped(self) -> Iterator[None]:
        """Wherever it is just then: also between an append's stamp and its sending, or its sending and its answer."""
        with self.chance.choice(self.fleet.nodes).stopped():
            yield

    @contextmanager
    def server_stopped_as_it_sends(self) -> Iterator[None]:
        """The way to all nodes is long, so most of its appends have an id and wait: for their keys, or for an answer."""
        with self._network(self.cassandra.proxies, lambda proxy: proxy.delay(LONG_WAY_SECONDS, (Way.THERE,))):
            time.sleep(4 * LONG_WAY_SECONDS)
            with self.chance.choice(self.fleet.nodes).stopped():
                yield

    @contextmanager
    def server_stopped_and_stepped(self) -> Iterator[None]:
        """When it goes on, its clock is another one, and stays so for a moment."""
        index = self.chance.randrange(len(self.fleet.nodes))
        with self.fleet.stepped(index, self.chance.choice(STEPS)):
            with self.fleet.nodes[index].stopped():
                yield
            time.sleep(self.chance.uniform(0.0, READ_DELAY))

    @contextmanager
    def clock_stepped(self) -> Iterator[None]:
        with self.fleet.stepped(self.chance.randrange(len(self.fleet.nodes)), self.chance.choice(STEPS)):
            yield

    @contextmanager
    def node_stopped(self) -> Iterator[None]:
        node = self.chance.choice(self.cassandra.nodes)
        node.pause()
        try:
            yield
        finally:
            node.resume()

    @contextmanager
    def network_slow(self) -> Iterator[None]:
        """All requests to some nodes, or all their answers, or both, take up to three read delays longer."""
        seconds = self.chance.choice((0.1, 0.5, 1.0, self.chance.uniform(0.0, 3.0) * READ_DELAY))
        ways = self.chance.choice((BOTH, (Way.THERE,), (Way.BACK,)))
        with self._network(self._some(), lambda proxy: proxy.delay(seconds, ways)):
            yield

    @contextmanager
    def network_silent(self) -> Iterator[None]:
        ways = self.chance.choice((BOTH, (Way.THERE,), (Way.BACK,)))
        with self._network(self._some(), lambda proxy: proxy.drop(ways)):
            yield

    @contextmanager
    def network_cut(self) -> Iterator[None]:
        with self._network(self._some(), Proxy.cut):
            yield

    def _some(self) -> Sequence[Proxy]:
        return self.chance.sample(self.cassandra.proxies, self.chance.choice((1, 2, 3)))

    @contextmanager
    def _network(self, proxies: Sequence[Proxy], fault: Callable[[Proxy], None]) -> Iterator[None]:
        try:
            for proxy in proxies:
                fault(proxy)
            yield
        finally:
            for proxy in proxies:
                proxy.heal()


ALL = (
    "server_stopped",
    "server_stopped_as_it_sends",
    "server_stopped_and_stepped",
    "clock_stepped",
    "node_stopped",
    "network_slow",
    "network_silent",
    "network_cut",
)
