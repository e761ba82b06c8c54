"""Cassandra 5.0: one cluster, its nodes on 127.0.0.1, 127.0.0.2, ...

Where the time of a start goes, on two shared cores: 7.2 s with what production uses. Without waiting for other nodes
to be heard of (``ring_delay_ms``) and without measuring the memory of a row (``row_overhead_size``) 6.2 s; with the
quick one of Java's two compilers alone 5.2 s, and half the processor time. An archive of loaded classes (AppCDS) would
save another 0.7 s; it wants options that Java keeps for its own tests, and a file for each version, so it is not used.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any, Literal

from tests.support.services.jars import RECIPES, jars
from tests.support.services.java import BRIEF
from tests.support.services.process import ServiceError
from tests.support.services.service import UP_SECONDS, Node, NotUp, Service, eventually, free_ports_for

Commitlog = Literal["batch", "group", "periodic"]
WINDOW_MS = 10
"""With ``group``, how long a write waits for others to reach the disk with it."""
RECIPE = RECIPES / "cassandra"
HEAP_MB = 512
TOKENS = 4
RING_DELAY_MS = 2000
"""How long a joining node listens to the others: with 500 the third one sometimes does not get in. A single node has none."""
BUSY_RING_DELAY_MS = 12_000
"""The same where the others have much to do meanwhile."""
_RING_DELAY = "-Dcassandra.ring_delay_ms="
WRITERS, TUNED_WRITERS = 16, 128
"""Writes at once on one node: with ``group`` each waits for the next window, so 16 make 1,600 a second and no more."""
TOMBSTONES = 100_000
"""Cassandra's own limit of a read."""
CONNECT_SECONDS = 60
ANSWER_SECONDS = 8
"""A node that takes longer to let somebody in is asked again: see :meth:`CassandraNode.answers`."""
JOIN_TRIES = 3
"""Starts of a new node."""
ROLE = "cassandra"
"""The role that may do everything, where clients log in; Cassandra makes it."""
PROTOCOL = 5
RACKDC = "cassandra-rackdc.properties"
"""Cassandra's name for the file that tells a node's data centre, and for the setting that leads there."""


@contextmanager
def session(address: str, port: int, *, seconds: float = CONNECT_SECONDS) -> Iterator[Any]:
    """A driver's session with one node and no other.

    :param seconds: how long it may take to open.
    """
    # Not at the top: the driver belongs to an extra, and takes its time to import.
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import WhiteListRoundRobinPolicy

    here = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([address]))
    cluster = Cluster(
        [address],
        port=port,
        protocol_version=PROTOCOL,
        auth_provider=PlainTextAuthProvider(ROLE, ROLE),  # not looked at by nodes that ask for no role
        execution_profiles={EXEC_PROFILE_DEFAULT: here},
        connect_timeout=seconds,
        control_connection_timeout=seconds,
        schema_metadata_enabled=False,  # of a keyspace for each process and suite
        schema_event_refresh_window=-1,
        token_metadata_enabled=False,
    )
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


class CassandraNode(Node):
    """One node of a cluster."""

    def __init__(self, folder: Path, number: int, address: str, port: int, jmx_port: int, command: list[str]) -> None:
        super().__init__(folder, number, address, port, command)
        self._jmx_port = jmx_port
        self._joined = folder / "joined"

    @property
    def has_joined(self) -> bool:
        """Has it served as part of its cluster before?"""
        return self._joined.exists()

    def wait_until_up(self, *, seconds: float = UP_SECONDS) -> None:
        super().wait_until_up(seconds=seconds)
        self._joined.touch()

    def answers(self) -> bool:
        """Does a driver's session open, and a query come back? The port alone opens too early."""
        return self._replies("SELECT release_version FROM system.local")

    def sees_all(self) -> bool:
        """Are all nodes alive in this one's eyes? A read that wants three replicas says so."""
        return self._replies("SELECT parent_id FROM system_distributed.parent_repair_history LIMIT 1")

    def forget(self) -> None:
        """It starts as a new node next time, without what it had."""
        for part in ("data", "commitlog", "saved_caches", "hints"):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        self._joined.unlink(missing_ok=True)

    @contextmanager
    def joining(self, *, replaces: bool = False) -> Iterator[None]:
        """Started while the block runs, or later where it does not join before, it takes its time to come into a busy cluster.

        :param replaces: it takes the place of the node that had its address and is gone.
        """
        before = self._command
        more = [f"-Dcassandra.replace_address_first_boot={self.address}"] if replaces else []
        rest = [word for word in before[1:] if not word.startswith(_RING_DELAY)]
        self._command = [before[0], f"{_RING_DELAY}{BUSY_RING_DELAY_MS}", *more, *rest]
        try:
            yield
        finally:
            if self.has_joined:
                self._command = before

    def _replies(self, statement: str) -> bool:
        from cassandra import ConsistencyLevel, DriverException, OperationTimedOut
        from cassandra.cluster import NoHostAvailable
        from cassandra.query import SimpleStatement

        try:
            with session(self.address, self.port, seconds=ANSWER_SECONDS) as node:
                node.execute(SimpleStatement(statement, consistency_level=ConsistencyLevel.ALL))
        except (NoHostAvailable, DriverException, OperationTimedOut):
            return False
        return True

    def tool(self, *arguments: str) -> str:
        """``nodetool``, for instance ``tool("flush")``; what it said."""
        command = ["java", "-Xmx64m", *BRIEF, f"@{RECIPE / 'jvm.options'}"]
        command += [f"-Dlogback.configurationFile={RECIPES / 'logback.xml'}", "-cp", f"{jars('cassandra')}/*"]
        command += ["org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", str(self._jmx_port), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServiceError(
                f"nodetool {' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}"
            )
        return done.stdout


PATIENCE_MS = 4500
"""Less than a server waits for what it asks of queues and keys, so that it is still the node that tells."""
_TIMEOUTS = f"write_request_timeout: {PATIENCE_MS}ms\ncas_contention_timeout: {PATIENCE_MS}ms"


def _let_join(node: CassandraNode) -> None:
    """Wait until a new node serves. One whose seed is too busy to answer it ends, and is started again."""
    for _ in range(JOIN_TRIES - 1):
        try:
            node.wait_until_up()
        except NotUp:
            if node.pid is not None:
                raise
            node.start()
        else:
            return
    node.wait_until_up()


class Cassandra(Service):
    """A cluster. A client on this machine needs ``contact_points`` and ``port``."""

    kind = "cassandra"
    nodes: list[CassandraNode]

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        *,
        commitlog: Commitlog = "batch",
        heap_mb: int = HEAP_MB,
        proxied: bool = False,
        tuned: bool = False,
        brittle: bool = False,
        patient: bool = False,
        roles: bool = False,
        centres: Sequence[str] = (),
        shows: Path | None = None,
        trusts: Path | None = None,
        tombstones: int = TOMBSTONES,
        port: int | None = None,
        storage_port: int | None = None,
        jmx_port: int | None = None,
    ) -> None:
        """:param folder: for the cluster's data, which stay when it is stopped.
        :param nodes: 1 or 3.
        :param commitlog: ``batch`` acknowledges what is on disk, and has each write brought there at once: tests mostly
            wait for one alone, and a lightweight transaction takes a third to a half of the time of ``group``, where a
            write waits for others. ``periodic``, as shipped, loses up to 10 s of acknowledged writes when the node is killed.
        :param heap_mb: of each node, which takes up to 350 MB beside it.
        :param proxied: clients reach each node through a proxy, on 127.0.1.1, ...: see ``proxies``.
        :param tuned: Java as production runs it, for benchmarks; otherwise it is set up for quick starts.
        :param brittle: makes tables in a quarter of the time, and may forget them when it is killed.
        :param patient: a write may take :data:`PATIENCE_MS`, on a machine where several runs of tests starve each other; as
            shipped it has 2 s.
        :param roles: clients log in, at first as :data:`ROLE` with that as its password, and may what they were granted.
        :param centres: the data centre of each node, where they are not all in one.
        :param shows: a key and its certificate, by which nodes prove their identity to clients that speak TLS; those
            have to show one themselves that ``trusts``, an authority's, has signed. Clients that do not speak TLS are let in, too.
        :param tombstones: a node gives up a read that meets more of them.
        :param port: where clients connect, the same on each node's address. Free ports are found for those not given.
        """
        free_port, free_storage, *free_jmx = free_ports_for(nodes, 2 + nodes)
        self._storage_port = storage_port or free_storage
        self._jmx_port = jmx_port or free_jmx[0]
        self._commitlog = commitlog
        self._heap_mb = heap_mb
        self._tuned = tuned
        self._brittle = brittle
        self._patient = patient
        self._roles = roles
        self._centres = list(centres)
        self._tombstones = tombstones
        self._encryption = _encryption(shows, trusts) if shows and trusts else ""
        super().__init__(
            folder,
            nodes=nodes,
            port=port or free_port,
            proxied=proxied,
            commitlog=commitlog,
            heap_mb=heap_mb,
            tuned=tuned,
            brittle=brittle,
            patient=patient,
            roles=roles,
            storage_port=self._storage_port,
            jmx_port=self._jmx_port,
            **({"centres": self._centres} if centres else {}),
            **({"tombstones": tombstones} if tombstones != TOMBSTONES else {}),
            **({"shows": str(shows), "trusts": str(trusts)} if shows else {}),
        )
        self.nodes = [self._node(number) for number in range(1, nodes + 1)]

    @property
    def contact_points(self) -> list[str]:
        """The addresses that clients connect to."""
        return self.reached_at

    @property
    def for_queuey(self) -> str:
        hosts = ",".join(self.contact_points)
        return (
            f"export QUEUEY_STORAGE_BACKEND=cassandra QUEUEY_CASSANDRA_HOSTS={hosts} QUEUEY_CASSANDRA_PORT={self.port} "
            f"QUEUEY_CASSANDRA_REPLICATION={len(self.nodes)}"
        )

    def start(self) -> None:
        """Start the nodes that do not run; each of them sees the others when this returns.

        A cluster takes in one new node after the other. Those that belong to it start together.
        """
        for node in self.nodes:
            if node.pid is None:
                node.start()
            if not node.has_joined:
                _let_join(node)
        for node in self.nodes:
            node.wait_until_up()
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Return when each node sees all the others alive: from here on, writes to all replicas succeed."""
        if len(self.nodes) > 1:
            for node in self.nodes:
                eventually(node.sees_all, f"{node.name} does not see all other nodes")

    def _node(self, number: int) -> CassandraNode:
        address = self.addresses[number - 1]
        home = self.folder / f"cassandra-{number}"
        home.mkdir(exist_ok=True)
        settings = Template((RECIPE / "cassandra.yaml").read_text()).substitute(
            home=home,
            tokens=", ".join(str(token) for token in _tokens(number, len(self.addresses))),
            address=address,
            known_as=self.reached_at[number - 1],
            port=self.port,
            storage_port=self._storage_port,
            seed=f"127.0.0.1:{self._storage_port}",
            commitlog_sync=self._commitlog,
            commitlog_window=self._window(),
            snitch="GossipingPropertyFileSnitch" if self._centres else "SimpleSnitch",
            authenticator="PasswordAuthenticator" if self._roles else "AllowAllAuthenticator",
            authorizer="CassandraAuthorizer" if self._roles else "AllowAllAuthorizer",
            client_encryption=self._encryption,
            timeouts=_TIMEOUTS if self._patient else "",
            tombstones=self._tombstones,
            writers=TUNED_WRITERS if self._tuned else WRITERS,
        )
        (home / "cassandra.yaml").write_text(settings)
        (home / RACKDC).write_text(f"dc={self._centres[number - 1] if self._centres else 'datacenter1'}\nrack=rack1\n")
        jmx_port = self._jmx_port + number - 1
        return CassandraNode(home, number, address, self.port, jmx_port, self._command(home, jmx_port))

    def _window(self) -> str:
        if self._commitlog == "batch":
            return ""
        if self._commitlog == "periodic":
            return "commitlog_sync_period: 10000ms"
        return f"commitlog_sync_group_window: {WINDOW_MS}ms"

    def _command(self, home: Path, jmx_port: int) -> list[str]:
        programs = jars("cassandra")
        (jamm,) = programs.glob("jamm-*.jar")
        as_in_production = ["-XX:+UseG1GC", f"-Xms{self._heap_mb}m"]
        return [
            "java",
            f"-Xmx{self._heap_mb}m",
            *(as_in_production if self._tuned else BRIEF),
            f"-XX:ErrorFile={home}/java-error.txt",
            f"@{RECIPE / 'jvm.options'}",
            f"-javaagent:{jamm}",
            f"-Dcassandra.config=file://{home}/cassandra.yaml",
            f"-Dcassandra.storagedir={home}",
            f"-D{RACKDC}=file://{home}/{RACKDC}",
            f"-Dcassandra.test.flush_local_schema_changes={str(not self._brittle).lower()}",
            f"{_RING_DELAY}{RING_DELAY_MS if len(self.addresses) > 1 else 0}",
            f"-Dcassandra.jmx.local.port={jmx_port}",
            f"-Dlogback.configurationFile={RECIPES / 'logback.xml'}",
            "-cp",
            f"{programs}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]


def _encryption(shows: Path, trusts: Path) -> str:
    """:source: PEMBasedSslContextFactory of Cassandra 4.1, which reads what others have in Java's own stores."""
    return (
        "client_encryption_options: {enabled: true, optional: true, require_client_auth: true, "
        f'keystore: "{shows}", truststore: "{trusts}", '
        "ssl_context_factory: {class_name: org.apache.cassandra.security.PEMBasedSslContextFactory}}"
    )


def _tokens(number: int, count: int) -> list[int]:
    """Where a node's shares of the ring end: all nodes' shares are equal, and take turns.

    >>> _tokens(1, 1)
    [-6917529027641081856, -2305843009213693952, 2305843009213693952, 6917529027641081856]
    """
    share = 2**64 // (TOKENS * count)
    first = -(2**63) + share // 2 + share * (number - 1)
    return [first + share * count * turn for turn in range(TOKENS)]


def make_table(node: Any, keyspace: str, replicas: int = 1) -> None:
    replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
    node.execute(f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}")
    node.execute(f"CREATE TABLE IF NOT EXISTS {keyspace}.kept (id int PRIMARY KEY, body text)")
