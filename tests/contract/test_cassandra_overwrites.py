"""Overwrites and deletions of one message through several servers whose clocks differ, on a real node.

Cassandra keeps the row with the later date, and the dates are those of the servers' clocks.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any
from uuid import uuid4

import pytest

from queuey.clock import ManualClock
from queuey.errors import ClockUnsafe, StorageUnavailable
from queuey.future import Future
from queuey.ids import IdGenerator, MessageId
from queuey.model import Location, Overwrite, Queue, Span
from queuey.storage.cassandra.clock import ClockGuard
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import Timing
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import client_id, done
from tests.support.cassandra_stores import messages_of

BOUND = Timing().clock_error_seconds
OFF = (-BOUND, 0.0, BOUND)
DRIFT = 0.01
"""A reading of the nodes' clocks is less exact the older it is."""
ROUND_TRIP_SECONDS = 0.001


class Server:
    """A server whose clock is off."""

    def __init__(self, session: CassandraSession, off: float) -> None:
        self.clock = ManualClock()
        self.guard = ClockGuard(self.clock, BOUND + DRIFT)
        self.guard.learn("node", self.clock.now_ticks(), self.clock.elapsed(), self.clock.elapsed())
        self.clock.step(off)
        self.store = messages_of(session, self.clock, IdGenerator(self.clock), guard=self.guard)

    def put(self, at: Message, body: bytes) -> None:
        done(self.store.put(at.queue, [at.place], Overwrite(body, 3600)))

    def delete(self, at: Message) -> None:
        done(self.store.delete(at.queue, [at.place]))


class Message:
    """One message, and what is there of it."""

    def __init__(self, store: CassandraMessages, clock: ManualClock) -> None:
        self.queue = Queue("app", "q", uuid4(), clock.now_ticks())
        self.place = Location(1, client_id(clock.now_ticks()))
        self._store, self._clock = store, clock

    def body(self) -> bytes | None:
        (found,) = done(self._store.fetch(self.queue, [self.place], now_ticks=self._clock.now_ticks()))
        return None if found is None else found.body


class Servers:
    """Servers of one keyspace, with one time: it goes on while one of them pauses, and a little between two calls."""

    def __init__(self, session: CassandraSession) -> None:
        self._by_off = {off: Server(session, off) for off in OFF}
        self.paused = 0.0

    def __getitem__(self, off: float) -> Server:
        self._advance(ROUND_TRIP_SECONDS)
        return self._by_off[off]

    def message(self) -> Message:
        right = self[0.0]
        return Message(right.store, right.clock)

    def pause(self, seconds: float) -> Future[None]:
        self.paused += seconds
        self._advance(seconds)
        return Future.of(None)

    def _advance(self, seconds: float) -> None:
        for server in self._by_off.values():
            server.clock.advance(seconds)

    def close(self) -> None:
        for server in self._by_off.values():
            server.store.close()


@pytest.fixture
def servers(session: CassandraSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    servers = Servers(session)
    monkeypatch.setattr(session, "pause", servers.pause)
    yield servers
    servers.close()


@pytest.mark.parametrize(("first", "second"), [*product(OFF, OFF)])
def test_of_two_overwrites_the_one_that_begins_when_the_other_is_answered_stays(
    servers: Servers, first: float, second: float
) -> None:
    message = servers.message()
    servers[first].put(message, b"former")

    servers[second].put(message, b"latter")

    assert message.body() == b"latter"


@pytest.mark.parametrize("off", OFF)
def test_overwrites_by_servers_in_turn_do_not_run_ahead_of_deletions(servers: Servers, off: float) -> None:
    message = servers.message()
    for turn in range(10):
        servers[OFF[turn % 3]].put(message, b"%d" % turn)
        assert message.body() == b"%d" % turn

    servers[off].delete(message)

    assert message.body() is None


@pytest.mark.parametrize(("deletes", "puts", "again"), [*product(OFF, OFF, OFF)])
def test_an_overwrite_beats_the_deletion_before_it_and_not_the_one_after_it(
    servers: Servers, deletes: float, puts: float, again: float
) -> None:
    message = servers.message()
    servers[0.0].put(message, b"former")
    servers[deletes].delete(message)

    servers[puts].put(message, b"latter")
    assert message.body() == b"latter"
    servers[again].delete(message)

    assert message.body() is None


def test_an_overwrite_where_clocks_agree_waits_for_nothing(servers: Servers) -> None:
    message = servers.message()

    servers[0.0].put(message, b"one")
    servers[0.0].put(message, b"two")

    assert not servers.paused


REMOVALS: list[Callable[[Server, Message], object]] = [
    Server.delete,
    lambda server, message: done(
        server.store.delete_span(message.queue, 1, Span(upto=MessageId.last_of(message.place.id.ticks)), most=10)
    ),
    lambda server, message: done(server.store.drop(message.queue.uuid)),
]


@pytest.mark.parametrize("removes", REMOVALS, ids=["delete", "delete_span", "drop"])
@pytest.mark.parametrize("seconds", [-3600.0, -1.0, 1.0, 3600.0])
def test_a_server_whose_clock_is_wrong_deletes_nothing(
    servers: Servers, removes: Callable[[Server, Message], object], seconds: float
) -> None:
    """Its deletion would be dated before the message, and be answered all the same, or hide what comes after it."""
    message, right = servers.message(), servers[0.0]
    right.put(message, b"body")
    right.clock.advance(10)
    right.guard.learn("node", right.clock.now_ticks(), right.clock.elapsed(), right.clock.elapsed())

    right.clock.step(seconds)
    with pytest.raises(ClockUnsafe):
        removes(right, message)
    right.clock.step(-seconds)

    assert servers[BOUND].store.fetch(message.queue, [message.place], now_ticks=0).wait(30) != [None]


def test_changes_that_are_refused_leave_nothing_that_is_never_carried_out(session: CassandraSession) -> None:
    """A server with too many calls under way printed a warning of Python for each."""
    busy = CassandraSession(replace(session.options, most_calls=0))
    clock = ManualClock()
    messages, queue = messages_of(busy, clock, IdGenerator(clock)), Queue("app", "q", uuid4(), clock.now_ticks())
    at = [Location(1, client_id(clock.now_ticks()))]
    changes: list[Callable[[], Future[Any]]] = [
        lambda: messages.put(queue, at, Overwrite(b"x", 3600)),
        lambda: messages.delete(queue, at),
        lambda: messages.delete_span(queue, 1, Span(), most=1),
    ]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for change in changes:
            with pytest.raises(StorageUnavailable):
                done(change())
        gc.collect()
    busy.close()

    assert [str(one.message) for one in warned] == []
