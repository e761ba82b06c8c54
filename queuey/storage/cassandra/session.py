"""A connection to a Cassandra cluster: statements in, promises out, and the driver's errors told as ours (G10)."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, TypeVar

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    InvalidRequest,
    OperationTimedOut,
    ProtocolVersion,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    NoSpeculativeExecutionPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.pool import Host, NoConnectionsAvailable
from cassandra.protocol import OverloadedErrorMessage, SyntaxException
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement, tuple_factory

from queuey.errors import ConfigurationError, OutcomeUnknown, QueueyError, StorageUnavailable
from queuey.future import Future, start
from queuey.locks import new_lock
from queuey.model import Consistency
from queuey.storage import Observer, Unobserved
from queuey.storage.cassandra.raw_batches import EncodedBatch, EncodedHandler
from queuey.storage.statements import load_statements

T = TypeVar("T")

log = logging.getLogger(__name__)

Rows = Sequence[tuple[Any, ...]]
Change = tuple[str, Sequence[Any]]
"""A statement's name and values."""

CONNECT_SECONDS = 10.0
"""Least that a node has to take a connection, and to tell of the cluster and its tables: a busy one took more than the driver's 2 s."""
_SPECULATIVE: Final = "speculative"
_SPECULATIVE_SECONDS = 0.25
"""After how long another replica is asked as well, if a statement may be carried out twice without harm."""
_SERIAL_TRIES, _SERIAL_PAUSE_SECONDS = 3, 0.1
_HEARTBEAT_SECONDS = 3
"""Of a connection on which nothing came for so long, a sign of life is asked for, and waited for as long."""
_LONGEST_RECONNECT_SECONDS = 10.0
"""Between two tries to reach a node that is away. The driver's own is ten minutes, and it gives up at last."""
_NOT_SENT = (Unavailable, NoConnectionsAvailable, OverloadedErrorMessage, InvalidRequest, SyntaxException, Unauthorized)
"""Errors that say that nothing was done. NoHostAvailable is looked into: see :func:`_nothing_was_sent`."""

_ONE_CENTRE = {
    Consistency.WEAK: (ConsistencyLevel.ONE, ConsistencyLevel.ONE),
    Consistency.STRONG: (ConsistencyLevel.QUORUM, ConsistencyLevel.QUORUM),
    Consistency.VERY_STRONG: (ConsistencyLevel.QUORUM, ConsistencyLevel.QUORUM),
}
_SEVERAL_CENTRES = {
    Consistency.WEAK: (ConsistencyLevel.LOCAL_ONE, ConsistencyLevel.LOCAL_ONE),
    Consistency.STRONG: (ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.LOCAL_QUORUM),
    # Cassandra has no EACH_QUORUM reads. None are needed: what a quorum of every centre has written,
    # a quorum of the reader's own centre meets.
    Consistency.VERY_STRONG: (ConsistencyLevel.EACH_QUORUM, ConsistencyLevel.LOCAL_QUORUM),
}


ALL_CENTRES: Final = int(ConsistencyLevel.QUORUM)
"""A quorum of all copies, as lightweight transactions have it: what one centre has decided, the others are to see."""


@dataclass(frozen=True)
class Options:
    """How to reach a cluster."""

    hosts: Sequence[str] = ("127.0.0.1",)
    port: int = 9042
    keyspace: str = "queuey"
    data_centre: str = ""
    multi_dc: bool = False
    username: str = ""
    password: str = field(default="", repr=False)
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_check_host: bool = True
    most_calls: int = 1024
    """Calls of one store under way at once."""
    timeout_seconds: float = 1.5
    """Of one statement; an append that takes longer would be void anyway (G3)."""


_FORKED = (
    "this process was forked from one that is connected to Cassandra, and cannot use its connections; nothing was stored: start "
    "server processes that connect themselves, such as gunicorn without --preload"
)
CQL = load_statements("queuey.storage.cassandra", "schema.cql", "statements.cql")
_ADMINISTRATIVE = ("keyspace", "table_")
_NEVER_TWICE = (
    "idempotency_claim",
    "idempotency_change",
    "idempotency_release",
    "offset_",
    "queue_",
    "key_insert",
    "key_delete",
)
"""Lightweight transactions: carried out twice, the second answers otherwise than the first."""


class CassandraSession:
    """One keyspace of one cluster, with every statement prepared. Thread-safe; connects when made.

    :raises ConfigurationError: no node answers, the credentials are refused, or the tables are not there.
    """

    def __init__(self, options: Options, observer: Observer | None = None) -> None:
        self.options = options
        self._process = os.getpid()
        self.cluster = connect(options)
        self._observer = observer or Unobserved()
        self._levels = _SEVERAL_CENTRES if options.multi_dc else _ONE_CENTRE
        try:
            self.driver: Session = self.cluster.connect()
            self.driver.client_protocol_handler = EncodedHandler
            _see_keyspace(self.cluster, options)
            self._statements = self._prepare()
        except NoHostAvailable as error:
            self.cluster.shutdown()
            raise ConfigurationError(f"[cassandra] hosts: {why_none(options, error)}") from error
        except BaseException:
            self.cluster.shutdown()
            raise
        self._closed = False

    def _prepare(self) -> dict[str, PreparedStatement]:
        names = {"keyspace": self.options.keyspace}
        prepared = {}
        for name, text in CQL.items():
            if not name.startswith(_ADMINISTRATIVE):
                statement = self.driver.prepare(text % names)
                statement.is_idempotent = not (name.startswith(_NEVER_TWICE) and name != "queue_find")
                prepared[name] = statement
        return prepared

    # Levels

    def to_write(self, consistency: Consistency) -> int:
        return int(self._levels[consistency][0])

    def to_read(self, consistency: Consistency) -> int:
        return int(self._levels[consistency][1])

    def to_read_all(self, consistency: Consistency) -> int:
        """For a read that must not miss anything that was acknowledged: a weak write may be on one node alone."""
        return int(ConsistencyLevel.ALL) if consistency is Consistency.WEAK else self.to_read(consistency)

    # Statements

    def bind(self, name: str, values: Sequence[Any]) -> BoundStatement:
        return self._statements[name].bind(values)

    def ask(self, name: str, values: Sequence[Any], level: int, *, host: Host | None = None) -> Future[Rows]:
        """Read.

        :raises StorageUnavailable: not enough nodes answered in time.
        """
        return self._send(name, self._statements[name].bind(values), level, writes=False, host=host)

    def tell(self, name: str, values: Sequence[Any], level: int) -> Future[Rows]:
        """Write one row, in a way that may be repeated.

        :raises StorageUnavailable: nothing was written.
        :raises OutcomeUnknown: it may have been, or may be yet.
        """
        return self._send(name, self._statements[name].bind(values), level, writes=True)

    def tell_together(self, name: str, rows: Sequence[Sequence[Any]], level: int) -> Future[Rows]:
        """Write rows of one Cassandra partition, all or none."""
        if len(rows) == 1:
            return self.tell(name, rows[0], level)
        statement = self._statements[name]
        batch = BatchStatement(BatchType.UNLOGGED)
        for row in rows:
            batch.add(statement, row)
        batch.is_idempotent = True
        return self._send(name, batch, level, writes=True)

    def tell_encoded(
        self, name: str, rows: Sequence[bytes], routing_key: bytes, level: int, *, seconds: float | None = None
    ) -> Future[Rows]:
        """Write rows of one Cassandra partition, all or none, that are encoded already as those of a batch.

        :param seconds: the time limit, where it is not that of all statements.
        """
        batch = EncodedBatch(rows, routing_key, self.options.keyspace)
        return self._send(name, batch, level, writes=True, seconds=seconds)

    def query_id(self, name: str) -> bytes:
        """What the nodes know a statement by."""
        return bytes(self._statements[name].query_id)

    def compare_and_set(self, name: str, values: Sequence[Any]) -> Future[Rows]:
        """A lightweight transaction: one row, whose first value tells whether it was applied.

        :raises OutcomeUnknown: it may have been applied.
        """
        return self.compare_and_set_together([(name, values)])

    def compare_and_set_together(self, changes: Sequence[Change]) -> Future[Rows]:
        """The same of several rows of one Cassandra partition: all are changed, or none is."""
        bound = [self._statements[name].bind(values) for name, values in changes]
        statement: BoundStatement | BatchStatement = bound[0]
        if len(bound) > 1:
            statement = BatchStatement(BatchType.UNLOGGED)
            for one in bound:
                statement.add(one)
        statement.serial_consistency_level = ConsistencyLevel.SERIAL
        return self._send(changes[-1][0], statement, ALL_CENTRES, writes=True)

    async def decide(
        self, name: str, values: Sequence[Any], look: str, where: Sequence[Any], ours: Callable[[Rows], bool]
    ) -> bool:
        """:meth:`decide_together` of one row."""
        return await self.decide_together([(name, values)], look, where, ours)

    async def decide_together(
        self, changes: Sequence[Change], look: str, where: Sequence[Any], ours: Callable[[Rows], bool]
    ) -> bool:
        """A lightweight transaction whose outcome is found out.

        Where it is not told, the rows tell, and a transaction that got lost is repeated, likely through another
        node. One that is only late does no harm when it comes: it must want the rows as they were before.

        :param look: reads them serially, which ends what is under way; ``ours`` tells from it.
        :returns: whether it was applied.
        :raises StorageUnavailable: it was not.
        :raises OutcomeUnknown: nobody can say.
        """
        for attempt in range(1, _SERIAL_TRIES + 1):
            refused = False
            try:
                if (await self.compare_and_set_together(changes))[0][0]:
                    return True
                refused = True
            except StorageUnavailable:
                if attempt == 1:
                    raise
            except OutcomeUnknown as error:
                log.debug("%s: %s", changes[-1][0], error)
            if refused and attempt == 1:
                return False
            try:
                if ours(await self.ask_serially(look, where)):
                    return True
                if refused:
                    return False
            except StorageUnavailable:
                await self.pause(_SERIAL_PAUSE_SECONDS * attempt)
        raise OutcomeUnknown

    def ask_serially(self, name: str, values: Sequence[Any]) -> Future[Rows]:
        """Read what lightweight transactions have decided, those under way included."""
        return self._send(name, self._statements[name].bind(values), ConsistencyLevel.SERIAL, writes=False)

    def _send(
        self,
        name: str,
        statement: Any,
        level: int,
        *,
        writes: bool,
        host: Host | None = None,
        seconds: float | None = None,
    ) -> Future[Rows]:
        if self.problems():
            return Future.failed(StorageUnavailable(_FORKED))
        promise: Future[Rows] = Future()
        began = perf_counter()
        statement.consistency_level = level
        profile = _SPECULATIVE if statement.is_idempotent else EXEC_PROFILE_DEFAULT

        def failed(error: BaseException, asked: Sequence[Host] = ()) -> None:
            if promise.done:
                return  # where two nodes were asked, the second answer changes nothing
            # What one node did not take, the other may have taken that was asked as well.
            told = _told(error, writes=writes, alone=len(asked) < 2)
            self._observer.failed(name, told.code)
            promise.set_error(told)

        def answered(rows: Rows | None) -> None:
            if not promise.done:
                self._observer.took(name, perf_counter() - began)
                promise.set_result(rows or ())

        try:
            limit = self.options.timeout_seconds if seconds is None else seconds
            future = self.driver.execute_async(statement, execution_profile=profile, host=host, timeout=limit)
        except Exception as error:  # noqa: BLE001 - whatever the driver could not send is told like what it could
            failed(error)
            return promise
        future.add_callbacks(answered, failed, errback_args=(future.attempted_hosts,))
        return promise

    def pause(self, seconds: float) -> Future[None]:
        """A promise that is kept after a while; no thread waits for it."""
        promise: Future[None] = Future()
        self.cluster.connection_class.create_timer(seconds, lambda: promise.set_result(None))
        return promise

    def hosts(self) -> list[Host]:
        """The nodes that are thought to be up."""
        return [host for host in self.cluster.metadata.all_hosts() if host.is_up]

    def problems(self) -> Sequence[str]:
        """As of a store: after a fork, in the child, the driver's threads are not there, and its sockets are the parent's."""
        return () if self._process == os.getpid() else (_FORKED,)

    def close(self) -> None:
        """End the connections. May be repeated."""
        if not self._closed:
            self._closed = True
            if not self.problems():
                self.cluster.shutdown()


class Underway:
    """The calls of one store that are under way: bounded (G17), and finished before the store closes. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._closed = False
        self._changed = threading.Condition(new_lock())

    def start(self, work: Coroutine[Future[Any], None, T]) -> Future[T]:
        """Start a call.

        :returns: its outcome; :class:`StorageUnavailable` at once if there are too many, or the store is closed.
        """
        with self._changed:
            if self._closed or self._count >= self._most:
                work.close()
                why = "the store is closed" if self._closed else f"{self._most} calls of Cassandra are under way"
                return Future.failed(StorageUnavailable(f"{why}: nothing was stored, try again"))
            self._count += 1
        return start(self._counted(work))

    async def _counted(self, work: Coroutine[Future[Any], None, T]) -> T:
        try:
            return await work
        finally:
            with self._changed:
                self._count -= 1
                if self._closed and not self._count:
                    self._changed.notify_all()

    def finish(self, seconds: float) -> None:
        """Take no more calls, and wait for those under way, but not for ever. May be repeated."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._count, seconds)


class _Connection(Cluster.connection_class):  # type: ignore[misc]
    """The driver's, which reads and writes 4 KiB at a time, with room for a page."""

    in_buffer_size = out_buffer_size = 128 << 10


def connect(options: Options) -> Cluster:
    """A cluster with our policies, not connected yet.

    :raises ConfigurationError: a file of the TLS settings cannot be used.
    """
    centre, patience = options.data_centre, max(CONNECT_SECONDS, options.timeout_seconds)
    # Shuffled: what is repeated because a node did not answer goes to another one.
    balanced = TokenAwarePolicy(
        DCAwareRoundRobinPolicy(centre) if centre else RoundRobinPolicy(), shuffle_replicas=True
    )

    def profile(speculation: Any) -> ExecutionProfile:
        return ExecutionProfile(
            load_balancing_policy=balanced,
            retry_policy=FallthroughRetryPolicy(),
            row_factory=tuple_factory,
            request_timeout=options.timeout_seconds,
            speculative_execution_policy=speculation,
        )

    return Cluster(
        contact_points=[_contact(host, options.port) for host in options.hosts],
        port=options.port,
        auth_provider=PlainTextAuthProvider(options.username, options.password) if options.username else None,
        ssl_context=_tls(options),
        execution_profiles={
            EXEC_PROFILE_DEFAULT: profile(NoSpeculativeExecutionPolicy()),
            _SPECULATIVE: profile(ConstantSpeculativeExecutionPolicy(_SPECULATIVE_SECONDS, 1)),
        },
        # Without it a batch of 100 waits 40 ms for the acknowledgement of its first half.
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        connect_timeout=patience,
        control_connection_timeout=patience,
        idle_heartbeat_interval=_HEARTBEAT_SECONDS,
        idle_heartbeat_timeout=_HEARTBEAT_SECONDS,
        reconnection_policy=ExponentialReconnectionPolicy(1.0, _LONGEST_RECONNECT_SECONDS, max_attempts=None),
        protocol_version=ProtocolVersion.V5,
        connection_class=_Connection,
        compression=False,
    )


def _see_keyspace(cluster: Cluster, options: Options) -> None:
    """:raises ConfigurationError: it or some of its tables are not there."""
    keyspace = cluster.metadata.keyspaces.get(options.keyspace)
    wanted = {name.removeprefix("table_") for name in CQL if name.startswith("table_")}
    missing = sorted(wanted - set(keyspace.tables)) if keyspace is not None else ["all of it"]
    if missing:
        raise ConfigurationError(
            f"[cassandra] keyspace = {options.keyspace} lacks {', '.join(missing)}: run 'queuey init' once, as a role "
            "that may make keyspaces"
        )


def _contact(host: str, port: int) -> str | tuple[str, int]:
    """``host`` or ``host:port``.

    >>> _contact("10.0.0.1:9043", 9042), _contact("10.0.0.1", 9042)
    (('10.0.0.1', 9043), '10.0.0.1')
    """
    name, colon, number = host.rpartition(":")
    return (name, int(number)) if colon and number.isdigit() and ":" not in name else host


def _tls(options: Options) -> ssl.SSLContext | None:
    if not options.tls_ca:
        return None
    try:
        context = ssl.create_default_context(cafile=options.tls_ca)
        context.check_hostname = (
            options.tls_check_host
        )  # by the node's address: the driver knows nodes by no other name
        if options.tls_cert:
            context.load_cert_chain(options.tls_cert, options.tls_key or None)
    except OSError as error:
        raise ConfigurationError(f"[cassandra] tls_ca, tls_cert, tls_key: {error}") from error
    return context


def why_none(options: Options, error: NoHostAvailable) -> str:
    """Why no node could be asked, for an operator."""
    reasons: Mapping[Any, Any] = error.errors if isinstance(error.errors, dict) else {}
    for reason in reasons.values():
        if isinstance(reason, AuthenticationFailed):
            return "the nodes refuse these credentials: see [cassandra] username and password"
    said = "; ".join(f"{host}: {reason}" for host, reason in reasons.items()) or str(error)
    return f"no node of {', '.join(options.hosts)} answers ({said})"


def _nothing_was_sent(error: BaseException) -> bool:
    """Whether an error tells that no node can have taken the statement."""
    if isinstance(error, NoHostAvailable):
        reasons = error.errors.values() if isinstance(error.errors, dict) else [error]
        return all(isinstance(reason, (*_NOT_SENT, ConnectionRefusedError)) for reason in reasons)
    return isinstance(error, _NOT_SENT)


def _told(error: BaseException, *, writes: bool, alone: bool = True) -> QueueyError:
    """The driver's error as ours (G10): a refusal only where nothing can have been written.

    Everything that is not known to be harmless is unknown, the server error 0x1700 included, which the
    driver raises as a bare ErrorMessage: a lightweight transaction of which nobody knows how it ended.

    :param alone: no other node was asked to do the same.
    """
    if isinstance(error, QueueyError):
        return error
    what = type(error).__name__
    if not writes or (alone and _nothing_was_sent(error)):
        if not isinstance(error, (Unavailable, ReadTimeout, ReadFailure, OperationTimedOut, NoHostAvailable)):
            log.warning("Cassandra refused a statement: %s: %s", what, error)
        return StorageUnavailable(f"Cassandra did not take the request ({what}): nothing was stored, try again")
    return OutcomeUnknown(
        f"Cassandra did not say in time whether it stored this ({what}): "
        "repeat it only with the same idempotency key or message id"
    )
