"""G9 on a real node: an append is not acknowledged once the removal of its queue may have been answered.

One server removes the queue while another still uses what it found before. Time is set by hand, and answers of the
node are held back by a proxy for as long as the test wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

import pytest

from queuey.clock import ManualClock
from queuey.errors import OutcomeUnknown, QueueNotFound
from queuey.future import run, start
from queuey.ids import IdGenerator, MessageId
from queuey.model import AppendRequest, Location, Overwrite, Queue
from queuey.monitor.metrics import Monitor
from queuey.service.log import Log
from queuey.service.queues import Queues
from queuey.service.waiting.registry import Waiters
from queuey.settings import load_settings
from queuey.storage import Stores
from queuey.storage.cassandra import cluster as cassandra_cluster
from queuey.storage.cassandra.metadata import CassandraMetadata
from queuey.storage.cassandra.server import Timing
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import done, draft
from tests.support.cassandra_stores import CassandraStores
from tests.support.servers import eventually
from tests.support.services.proxy import Proxy, Way

TRUSTED, BUDGET = 0.1, 0.15
SETTLE = TRUSTED + BUDGET
STEP = 0.05
"""Seconds by which the clock goes on while a removal waits for it."""


class Server:
    """What one server has above its stores, by a clock that only the test moves."""

    def __init__(self, session: CassandraSession, metadata: CassandraSession, clock: ManualClock) -> None:
        self.clock = clock
        stores = CassandraStores(session, clock, IdGenerator(clock), Timing(write_budget_seconds=BUDGET))
        self.messages = stores.messages
        self.driver = metadata.cluster
        self.metadata = CassandraMetadata(metadata, clock, trusted_seconds=TRUSTED, settle_seconds=SETTLE)
        monitor = Monitor("cassandra")
        live = Waiters(self.messages, clock, monitor, load_settings(None, {}, {}), by_hand=True)
        lasting = Stores(self.messages, stores.offsets, self.metadata, stores.leases, stores.tasks)
        self.queues = Queues(lasting, clock, monitor, live)
        self.log = Log(self.messages, self.queues, clock, monitor, live)

    def append(self, queue: Queue) -> None:
        run(self.log.append(AppendRequest(queue, [draft()])))

    def put(self, queue: Queue) -> None:
        id_ = MessageId(self.clock.now_ticks(), 1)
        run(self.log.put(queue, [Location(1, id_)], Overwrite(b"x", 60)))

    def find(self, queue: Queue) -> Queue | None:
        return run(self.queues.find(queue.application, queue.name))

    def remove(self, queue: Queue) -> None:
        """Remove a queue; time goes on meanwhile."""
        removal = start(self.queues.delete(queue))

        def is_answered() -> bool:
            self.clock.advance(STEP)
            return removal.done

        assert eventually(is_answered, seconds=90)
        removal.result()


WRITES = [Server.append, Server.put]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(other: Server) -> Queue:
    made = Queue("app", uuid4().hex, uuid4(), other.clock.now_ticks())
    done(other.metadata.create_queue(made))
    return made


@pytest.fixture
def other(session: CassandraSession, clock: ManualClock) -> Server:
    """The server that removes the queue."""
    return Server(session, session, clock)


@pytest.fixture
def proxy(session: CassandraSession) -> Iterator[Proxy]:
    """Between a server and the node, for what it asks about queues."""
    with Proxy(lambda: (session.options.hosts[0], session.options.port)) as proxy:
        yield proxy


@pytest.fixture
def server(
    session: CassandraSession, proxy: Proxy, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    # With signs of life the driver would end a connection whose answers are held back.
    monkeypatch.setattr(cassandra_cluster, "_HEARTBEAT_SECONDS", 0)
    host, port = proxy.address
    slow = CassandraSession(replace(session.options, hosts=[host], port=port))
    yield Server(session, slow, clock)
    slow.close()


@contextmanager
def held_back(proxy: Proxy, server: Server) -> Iterator[Callable[[], bool]]:
    """The node's answers stay on their way while the block runs; gives a function that says whether there is one.

    What the node sends by itself, such as news of a keyspace that another test makes, is no answer. It comes over one
    connection of the driver, which does not carry what the server asks.
    """

    def has_answered() -> bool:
        listening = server.driver.control_connection._connection
        return proxy.under_way(Way.BACK, besides=listening._socket.getsockname()) > 0

    proxy.drop([Way.BACK])
    try:
        yield has_answered
    finally:
        proxy.heal()


@pytest.mark.parametrize("write", WRITES)
def test_a_look_up_that_took_long_counts(
    server: Server, other: Server, queue: Queue, proxy: Proxy, write: Callable[[Server, Queue], None]
) -> None:
    """It was answered before the removal was decided, and the answer came after the removal was answered."""
    with held_back(proxy, server) as has_answered:
        look_up = start(server.queues.find(queue.application, queue.name))
        assert eventually(has_answered, seconds=90)
        other.remove(queue)
    found = look_up.wait(30)
    assert found is not None

    with pytest.raises(QueueNotFound):
        write(server, found)


@pytest.mark.parametrize("write", WRITES)
def test_a_request_whose_body_takes_long_counts_from_the_look_up(
    server: Server, other: Server, queue: Queue, write: Callable[[Server, Queue], None]
) -> None:
    found = server.find(queue)
    assert found is not None
    other.remove(queue)

    with pytest.raises(QueueNotFound):
        write(server, found)


def test_a_last_look_that_takes_too_long_proves_nothing(
    server: Server, queue: Queue, proxy: Proxy, clock: ManualClock
) -> None:
    found = server.find(queue)
    assert found is not None
    clock.advance(SETTLE)
    with held_back(proxy, server) as has_answered:
        append = start(server.log.append(AppendRequest(found, [draft()])))
        assert eventually(has_answered, seconds=90)
        clock.advance(SETTLE)

    with pytest.raises(OutcomeUnknown):
        append.wait(30)


def test_nobody_is_asked_while_a_look_up_is_recent(server: Server, queue: Queue, proxy: Proxy) -> None:
    found = server.find(queue)
    assert found is not None

    with held_back(proxy, server) as has_asked:
        server.append(found)
        server.clock.advance(SETTLE - STEP)
        server.append(found)
        assert not has_asked()


def test_news_that_the_node_sends_by_itself_are_no_answer(
    session: CassandraSession, server: Server, proxy: Proxy
) -> None:
    keyspace = f"news_{uuid4().hex}"
    with held_back(proxy, server) as has_answered:
        session.driver.execute(
            f"create keyspace {keyspace} with replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        try:
            assert eventually(lambda: proxy.under_way(Way.BACK) > 0, seconds=90)
            assert not has_answered()
        finally:
            session.driver.execute(f"drop keyspace {keyspace}")
