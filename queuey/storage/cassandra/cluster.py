"""How to reach a cluster: addresses, credentials, the driver's policies."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from cassandra import (
    AuthenticationFailed,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    ProtocolVersion,
    ReadFailure,
    ReadTimeout,
    Unavailable,
    WriteFailure,
    WriteTimeout,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.connection import ConnectionException
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    NoSpeculativeExecutionPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.query import PreparedStatement, tuple_factory

from queuey.errors import ConfigurationError, StorageUnavailable
from queuey.storage.cassandra.driver_errors import is_of_tables
from queuey.storage.cassandra.driver_loop import DriverLoop
from queuey.storage.peers import NodeState

__all__ = [
    "AUTO",
    "LARGE",
    "OFF",
    "SPECULATIVE",
    "Options",
    "agree",
    "asked",
    "connect",
    "contact",
    "know_replicas",
    "nodes_of",
    "none_reached",
    "prepared",
    "repeated",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_SECONDS = 10.0
"""The shortest time limit to connect to a node and to learn the cluster. A busy node took more than the driver's 2 s."""
_ATTEMPTS = 3
"""The number of times that a start asks for something; each may take ten seconds."""
_AWAY = (NoHostAvailable, OperationTimedOut, ReadTimeout, WriteTimeout, Unavailable)
"""Errors over nodes that are away."""
AUTO, OFF = "auto", "off"
"""Values of ``peer_address``."""
SPECULATIVE: Final = "speculative"
_SPECULATIVE_SECONDS = 0.25
"""After this time another replica is asked as well, if a statement may safely be carried out twice."""
LARGE: Final = "large"
_LARGE_SPECULATIVE_SECONDS = 1.0
"""The same for a large answer: a node that is still sending it is not helped by a second one."""
_HEARTBEAT_SECONDS = 3
"""After this time without data, a connection is probed; the answer has as much time."""
_LONGEST_RECONNECT_SECONDS = 3.0
"""Seconds between two attempts to reach a node that is away. Where no other node tells that it is back, the server learns of
it this much later. An attempt costs a connection. The driver's own limit is ten minutes, and it gives up in the end."""


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
    peer_address: str = OFF
    """At which other servers reach this one: :data:`AUTO`, :data:`OFF`, an address, or ``address:port``."""
    most_calls: int = 1024
    """Calls of one store that may be under way at once."""
    timeout_seconds: float = 1.5
    """The time limit of one statement. An append that takes longer would be void anyway (G3)."""


class LoopedCluster(Cluster):  # type: ignore[misc]
    """A cluster whose connections live on a loop of ours, which ends with it."""

    def __init__(self, **options: Any) -> None:
        self.loop = DriverLoop()
        super().__init__(connection_class=self.loop.connection_class(), **options)

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.close()


def connect(options: Options) -> LoopedCluster:
    """A cluster with our policies, not connected yet.

    :raises ConfigurationError: a file of the TLS settings cannot be used.
    """
    centre, patience = options.data_centre, max(CONNECT_SECONDS, options.timeout_seconds)
    # Shuffled, so that a statement that a node did not answer is repeated on another node.
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

    return LoopedCluster(
        contact_points=[contact(host, options.port) for host in options.hosts],
        port=options.port,
        auth_provider=PlainTextAuthProvider(options.username, options.password) if options.username else None,
        ssl_context=_tls(options),
        execution_profiles={
            EXEC_PROFILE_DEFAULT: profile(NoSpeculativeExecutionPolicy()),
            SPECULATIVE: profile(ConstantSpeculativeExecutionPolicy(_SPECULATIVE_SECONDS, 1)),
            LARGE: profile(ConstantSpeculativeExecutionPolicy(_LARGE_SPECULATIVE_SECONDS, 1)),
        },
        # Without it a batch of 100 waits 40 ms for the acknowledgement of its first half.
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        connect_timeout=patience,
        control_connection_timeout=patience,
        idle_heartbeat_interval=_HEARTBEAT_SECONDS,
        idle_heartbeat_timeout=_HEARTBEAT_SECONDS,
        reconnection_policy=ExponentialReconnectionPolicy(1.0, _LONGEST_RECONNECT_SECONDS, max_attempts=None),
        protocol_version=ProtocolVersion.V5,
        compression=False,
        # Or the driver reads the tables of all keyspaces when it connects, and again whenever one of them is changed.
        schema_metadata_enabled=False,
        schema_event_refresh_window=-1,
    )


def nodes_of(cluster: Cluster) -> list[NodeState]:
    """The nodes of a cluster as the driver sees them, by address."""
    states = {True: "up", False: "down", None: "unknown"}
    found = [
        NodeState(
            f"{host.address}:{host.endpoint.port}",
            host.datacenter or "",
            host.rack or "",
            host.release_version or "",
            states[host.is_up],
        )
        for host in cluster.metadata.all_hosts()
    ]
    return sorted(found)


def know_replicas(cluster: Cluster, keyspace: str) -> bool:
    """Let statements go to nodes that have the rows they ask for.

    Without it they go to any node, which asks those.

    :returns: whether these are known.
    """
    for _ in range(_ATTEMPTS):
        try:
            cluster.refresh_keyspace_metadata(keyspace, max_schema_agreement_wait=0)
        except DriverException as error:
            last = error
        else:
            return True
    log.warning("the replicas of keyspace %s are not known: %s", keyspace, last)
    return False


def repeated(session: Session, ask: Callable[[], T], refusal: str) -> T:
    """Ask, and ask again while the driver still asks a node that has just died, or one that does not know the tables yet.

    Once the driver has noticed, another node answers.

    :param ask: may be called again, whatever came of it.
    :param refusal: what the error says.
    :raises StorageUnavailable: too few nodes answer.
    :source: servers that were started in the moment a node was killed, or came back after the tables were made, ended with
        the driver's error.
    """
    for _ in range(_ATTEMPTS):
        try:
            return ask()
        except _AWAY as error:
            last: Exception = error
        except (InvalidRequest, ReadFailure, WriteFailure) as error:
            if isinstance(error, InvalidRequest) and not is_of_tables(error):
                raise
            last = error
            agree(session)  # a copy that does not know the table fails
    raise StorageUnavailable(f"[cassandra] {refusal}: {last}") from last


def asked(session: Session, statement: Any, values: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
    """The answer to a statement that may be repeated.

    :raises StorageUnavailable: too few nodes answer.
    """
    return repeated(
        session, lambda: list(session.execute(statement, values)), "the tables cannot be read, too few nodes answer"
    )


def agree(session: Session) -> None:
    """Wait until the nodes know the same tables, for ten seconds at most."""
    try:
        session.cluster.control_connection.wait_for_schema_agreement()
    except (ConnectionException, DriverException) as error:
        log.debug("whether the nodes know the same tables is not known: %s", error)


def prepared(session: Session, text: str) -> PreparedStatement:
    """A prepared statement.

    :raises StorageUnavailable: none of some nodes knows the tables, or they do not answer.
    """
    return repeated(session, lambda: session.prepare(text), "nodes do not know the tables yet, or do not answer")


def contact(host: str, port: int) -> str | tuple[str, int]:
    """``host`` or ``host:port``; of an IPv6 address with a port ``[host]:port``.

    >>> contact("10.0.0.1:9043", 9042), contact("10.0.0.1", 9042), contact("[fe80::1]:9043", 9042)
    (('10.0.0.1', 9043), '10.0.0.1', ('fe80::1', 9043))
    """
    name, colon, number = host.rpartition(":")
    is_in_brackets = name.startswith("[") and name.endswith("]")
    if colon and number.isdigit() and (is_in_brackets or ":" not in name):
        return (name[1:-1] if is_in_brackets else name, int(number))
    return host


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


def none_reached(options: Options, error: NoHostAvailable) -> ConfigurationError | StorageUnavailable:
    """Why no node could be reached: the settings are wrong, or the nodes are away and may come back."""
    reasons: Mapping[Any, Any] = error.errors if isinstance(error.errors, dict) else {}
    if any(isinstance(reason, AuthenticationFailed) for reason in reasons.values()):
        return ConfigurationError(
            "[cassandra] hosts: the nodes refuse these credentials: see [cassandra] username and password"
        )
    said = "; ".join(f"{host}: {reason}" for host, reason in reasons.items()) or str(error)
    return StorageUnavailable(f"[cassandra] hosts: no node of {', '.join(options.hosts)} answers ({said})")
