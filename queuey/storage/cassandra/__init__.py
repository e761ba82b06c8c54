"""The production store: any number of servers over one Cassandra cluster.

The parts: :mod:`~queuey.storage.cassandra.session` calls the driver, :mod:`~queuey.storage.cassandra.appending`
appends, :mod:`~queuey.storage.cassandra.pages` reads, :mod:`~queuey.storage.cassandra.buckets` locates messages,
:mod:`~queuey.storage.cassandra.idempotency` stores idempotency keys, :mod:`~queuey.storage.cassandra.metadata` queues
and application keys, :mod:`~queuey.storage.cassandra.leases` hands messages out, and :mod:`~queuey.storage.cassandra.clock` watches the time. docs/decisions/009.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from cassandra import ConsistencyLevel
from cassandra.pool import Host

from queuey.clock import Clock
from queuey.errors import ConfigurationError, QueueyError
from queuey.future import Future
from queuey.ids import IdGenerator, MessageId
from queuey.storage.cassandra.clock import SAMPLE_SECONDS, ClockGuard
from queuey.storage.cassandra.cluster import AUTO, OFF, Options, contact
from queuey.storage.cassandra.leases import CassandraLeases
from queuey.storage.cassandra.links import Links, towards
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.metadata import CassandraMetadata
from queuey.storage.cassandra.offsets import CassandraOffsets
from queuey.storage.cassandra.peers import CassandraPeers
from queuey.storage.cassandra.schema import check_tables
from queuey.storage.cassandra.server import CassandraServer, Timing
from queuey.storage.cassandra.session import CassandraSession, Rows
from queuey.storage.cassandra.tasks import CassandraTasks
from queuey.storage.observing import Observer

__all__ = [
    "CassandraLeases",
    "CassandraMessages",
    "CassandraMetadata",
    "CassandraOffsets",
    "CassandraServer",
    "CassandraTasks",
    "Options",
    "Timing",
    "open_messages",
    "open_metadata",
]

log = logging.getLogger(__name__)

_FIRST_SAMPLES = 3
"""Readings of each node's clock before the server starts: the fastest round trip is the most exact."""
_SILENT_SAMPLE_SECONDS = 0.5
"""Seconds between two readings while no node answers. Where that took half a minute, all calls are refused until one does."""


def open_messages(
    options: Options,
    timing: Timing,
    clock: Clock,
    ids: IdGenerator,
    *,
    strict_durability: bool = False,
    observer: Observer | None = None,
) -> tuple[CassandraMessages, CassandraOffsets, CassandraLeases, CassandraTasks]:
    """Connect, check the cluster, and start to watch the clock.

    :raises StorageUnavailable: no node answers, or too few.
    :raises ConfigurationError: the tables are missing or of another version, ``peer_address`` cannot be
        used, or, with ``strict_durability``, the cluster is weaker than a strong queue promises.
    """
    session = CassandraSession(options, observer)
    links = None
    try:
        check_tables(session.driver, options.keyspace)
        weak = session.replication.weaknesses()
        if weak and strict_durability:
            raise ConfigurationError(f"[cassandra] strict_durability = true: {weak[0]}")
        links = _links(options, [(node.address, options.port) for node in session.driver.cluster.metadata.all_hosts()])
        guard = ClockGuard(clock, timing.clock_error_seconds)
        watch = NodeClocks(session, clock, guard)
        watch.start()
    except BaseException:
        if links is not None:
            links.stop(0.0)
        session.close()
        raise

    def close() -> None:
        leases.close()
        watch.stop()
        session.close()

    peers = CassandraPeers(session, clock, timing.clock_error_seconds, None if links is None else links.contact)
    server = CassandraServer(session, clock, ids, timing, guard, observer)
    offsets = CassandraOffsets(server)
    messages = CassandraMessages(
        server, offsets, peers=peers, weaknesses=session.replication.weaknesses, on_close=close
    )
    leases = CassandraLeases(server, messages, links)
    leases.homes.start()
    leases.left.start()
    return messages, offsets, leases, CassandraTasks(server)


def _links(options: Options, nodes: Sequence[tuple[str, int]] = ()) -> Links | None:
    """Where other servers of the keyspace reach this one; None if they are not to.

    :param nodes: those of the cluster, beside the ones that the options name.
    :raises ConfigurationError: the address cannot be used.
    """
    asked = options.peer_address
    if asked == OFF or (asked == AUTO and options.tls_ca):
        return None
    if asked == AUTO:
        host, port = towards([*[_pair(contact(one, options.port), options.port) for one in options.hosts], *nodes]), 0
    else:
        host, port = _pair(contact(asked, 0), 0)
    try:
        return None if host is None else Links(host, port)
    except (OSError, UnicodeError) as error:
        if asked == AUTO:
            log.info("other servers cannot hand steps of lease groups over to this one: %s", error)
            return None
        raise ConfigurationError(
            f"[cassandra] peer_address: cannot listen at {asked!r}: {error}; give an address of this machine at which the "
            "other servers reach it, with a free port or without one, or auto, or off"
        ) from error


def _pair(address: str | tuple[str, int], port: int) -> tuple[str, int]:
    return (address, port) if isinstance(address, str) else address


def open_metadata(
    options: Options, timing: Timing, clock: Clock, *, trusted_seconds: float, observer: Observer | None = None
) -> CassandraMetadata:
    """Connect and check.

    :raises ConfigurationError: see :func:`open_messages`.
    """
    session = CassandraSession(options, observer)
    try:
        check_tables(session.driver, options.keyspace)
    except BaseException:
        session.close()
        raise
    settle = trusted_seconds + timing.write_budget_seconds
    return CassandraMetadata(
        session, clock, trusted_seconds=trusted_seconds, settle_seconds=settle, on_close=session.close
    )


class NodeClocks:
    """Asks every node for its time, every :data:`SAMPLE_SECONDS`.

    It passes the answers to the clock guard.
    """

    def __init__(self, session: CassandraSession, clock: Clock, guard: ClockGuard) -> None:
        self._session = session
        self._clock = clock
        self._guard = guard
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-clocks", daemon=True)

    def start(self) -> None:
        """Ask a few times, then go on in a thread."""
        for _ in range(_FIRST_SAMPLES):
            self._look()
        problem = self._guard.problem()
        if problem:
            log.warning("%s", problem)
        self._thread.start()

    def stop(self) -> None:
        """Stop asking. May be called again."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = SAMPLE_SECONDS
        while not self._stopped.wait(pause):
            pause = SAMPLE_SECONDS
            try:
                if not self._look():
                    pause = _SILENT_SAMPLE_SECONDS
            except Exception:  # if this thread ended, every later append would be refused
                log.exception("the clocks of the nodes are not known, and are asked for again")

    def _look(self) -> bool:
        """:returns: whether a node has answered."""
        has_answered = False
        for host in self._session.hosts():
            try:
                self._ask(host).wait(SAMPLE_SECONDS)
            except (QueueyError, TimeoutError) as error:
                log.debug("the clock of %s is not known: %s", host.endpoint, error)
            else:
                has_answered = True
        return has_answered

    def _ask(self, host: Host) -> Future[Rows]:
        asked = self._clock.elapsed()
        future = self._session.ask("node_clock", (), ConsistencyLevel.ONE, host=host)
        told: Future[Rows] = Future()

        def answered(answer: Future[Rows]) -> None:
            try:
                node = MessageId.from_uuid(answer.result()[0][0])
                self._guard.learn(host.endpoint, node.ticks, asked, self._clock.elapsed())
            except Exception as error:  # noqa: BLE001 - it goes to the future's owner
                told.set_error(error)
            else:
                told.set_result(())

        future.add_done_callback(answered)
        return told
