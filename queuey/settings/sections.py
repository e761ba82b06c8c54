"""The settings: one frozen dataclass for each section of the ini file.

``settings.limits.max_body_bytes`` is an ``int`` to mypy. The table of all settings, :data:`SETTINGS`, is read from the
fields, so that names, types, defaults, help and bounds stand in one place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from queuey.settings.issuers import Issuer
from queuey.settings.setting import Setting, rows_of, setting

__all__ = [
    "SECTIONS",
    "SETTINGS",
    "CassandraSettings",
    "ConsoleSettings",
    "LimitSettings",
    "LogSettings",
    "MetadataSettings",
    "MetricSettings",
    "ServerSettings",
    "Settings",
    "SqsSettings",
    "StorageSettings",
    "TelemetrySettings",
    "TokenSettings",
]


# fmt: off
@dataclass(frozen=True, slots=True)
class ServerSettings:
    """``[server]``."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(5000, "Port to listen on; 0 takes a free one and prints it.", low=0, high=65535)
    data: str = setting("./queuey-data", "Folder of the embedded store; made if it is missing.")
    threads: int = setting(4, "Threads for what the event loop does not serve itself.", low=1, high=64)
    connections: int = setting(25_000, "Connections open at once; more get 503 with Retry-After.", low=16, high=1_000_000)
    client_timeout_seconds: int = setting(15, "How long a client may take to send its body, or to take the next piece of an answer.", low=1, high=600)
    idle_timeout_seconds: int = setting(75, "How long a connection may rest between two requests.", low=1, high=3600)
    cors_origins: tuple[str, ...] = setting((), "Origins whose pages may ask this server in a browser, such as https://app.example.org, or * for all; none: no such page may.")
    tls_cert: str = setting("", "PEM file of this server's certificate and those of its issuers; turns TLS on. It is read anew when it changes.")
    tls_key: str = setting("", "PEM file of its key, which only its owner, and perhaps a group, may read.")
    trusted_proxies: tuple[str, ...] = setting((), "Proxies whose X-Forwarded-For names the client, for the log and where each client has a share, such as 127.0.0.1 or 10.0.0.0/8; none: it is the other end of the connection.")
    drain_seconds: int = setting(15, "How long a stop waits for requests under way.", low=0, high=600)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """``[storage]``."""

    backend: str = setting("sqlite", "Where messages are kept: sqlite (durable, one server), cassandra (any number of servers) or memory (lost at stop).", words=("sqlite", "cassandra", "memory"))
    path: str = setting("", "File of the sqlite store; empty means queuey.db in the data folder.")
    synchronous: str = setting("full", "full: acknowledged survives power loss; normal: it survives kill -9 only.", words=("full", "normal"))
    reserve_mb: int = setting(64, "Free space in MiB below which appends are refused, so that deletes still work. With 0 nothing is kept free, and a full disk refuses deletes and commits as well.", low=0, high=1_000_000)
    cache_mb: int = setting(4, "SQLite page cache of the writer, MiB; the event loop's reader may take twice as much, each other a quarter.", low=1, high=65_536)
    scrub_percent: int = setting(5, "Share of one core's time that the search for damage in the sqlite store's indexes may take; 0 turns it off.", low=0, high=100)
    loop_commit_ms: int = setting(1, "The event loop itself commits small writes to the sqlite store while 99 of 100 commits take no longer than this many ms; otherwise a thread does. 0: always a thread.", low=0, high=1000)
    wal_mb: int = setting(64, "Size in MiB that the write-ahead log is kept under.", low=4, high=65_536)
    read_cache_mb: int = setting(1024, "Disk in MiB for copies of what is read in bulk more than once, beside the sqlite store's file; 0 keeps none.", low=0, high=1_000_000)


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """``[metadata]``."""

    backend: str = setting("", "Where queues and keys are kept; empty means with the messages.", words=("", "sqlite", "cassandra", "memory"))
    path: str = setting("", "File of the sqlite metadata store; empty means with the messages.")


@dataclass(frozen=True, slots=True)
class CassandraSettings:
    """``[cassandra]``."""

    hosts: str = setting("127.0.0.1", "Nodes to ask for the others: addresses, or address:port, with commas between.")
    port: int = setting(9042, "Their native port, where hosts names none.", low=1, high=65535)
    keyspace: str = setting("queuey", "Keyspace of the messages; 'queuey init' makes it.")
    metadata_keyspace: str = setting("", "Keyspace of queues and keys; empty means that of the messages.")
    replication: str = setting("3", "Copies 'queuey init' asks for: a number, or one for each data centre as in eu:3,us:3.")
    data_centre: str = setting("", "The data centre this server is in; needed where there are several.")
    multi_dc: bool = setting(False, "Messages need only the local data centre to answer (LOCAL_ONE, LOCAL_QUORUM); very_strong writes to all, and settings of queues need a quorum of all copies.")
    username: str = setting("", "Role to log in as; empty means none is asked for.")
    password: str = setting("", "Its password.", secret=True)
    tls_ca: str = setting("", "File of the CA that signed the nodes' certificates; turns TLS on.")
    tls_cert: str = setting("", "File of this server's certificate, where nodes ask for one.")
    tls_key: str = setting("", "File of its key.")
    tls_check_host: bool = setting(True, "A node's certificate must name the address that the node is reached at; false takes any certificate of the CA.")
    peer_address: str = setting("auto", "Where the other servers of the keyspace hand steps of lease groups over to this one, unencrypted: an address of this machine, or address:port (each server of a machine needs its own); auto: that from which it reaches the nodes, or off if these use TLS; off: nowhere.")
    write_budget_ms: int = setting(1500, "How long an append may take from its id to its acknowledgement (W); 0 switches the check off, and readers and lease groups may skip messages.", low=0, high=60_000)
    clock_error_ms: int = setting(250, "How far this server's clock may be off those of the nodes (E); beyond it appends and reads are refused.", low=1, high=60_000)
    read_delay_ms: int = setting(2000, "How far behind the clock readers stay (D): at least the write budget and twice the clock error.", low=0, high=600_000)
    request_seconds: int = setting(10, "How long an append tries again before the answer says that its outcome is unknown.", low=1, high=60)
    cache_ms: int = setting(1000, "How long a server uses what it read of a queue; a change made on another is seen within this time.", low=0, high=60_000)
    max_calls: int = setting(1024, "Calls of the store under way at once; more get 503.", low=1, high=100_000)
    strict_durability: bool = setting(False, "Do not start on a cluster that is weaker than a strong queue promises; otherwise readiness says so.")


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """``[limits]``."""

    max_body_bytes: int = setting(1 << 20, "Largest message body, bytes.", low=1, high=64 << 20)
    max_request_bytes: int = setting(8 << 20, "Largest request body, a batch included, bytes.", low=1, high=256 << 20)
    max_answer_bytes: int = setting(4 << 20, "Messages in one JSON answer, bytes as they are sent, escapes and base64 included; the answer ends early and says so. One message always comes.", low=1 << 10, high=256 << 20)
    max_batch_messages: int = setting(10_000, "Messages in one append.", low=1, high=100_000)
    max_in_flight: int = setting(2_000, "Requests under way at once; more get 429 with Retry-After.", low=1, high=1_000_000)
    max_in_flight_mb: int = setting(256, "MiB of request bodies and large answers under way at once; more get 429 with Retry-After.", low=1, high=1_000_000)
    max_waiters: int = setting(20_000, "Readers that wait for messages at once, long polls and streams; beyond it they are answered at once.", low=0, high=1_000_000)
    max_waiters_per_application: int = setting(15_000, "Of these, those of one application's keys; more get 429 with Retry-After.", low=0, high=1_000_000)
    max_waiters_strangers_percent: int = setting(25, "Percent of max_waiters for all readers of public queues without a credential, together; more get 429 with Retry-After.", low=0, high=100)
    max_waiters_per_user: int = setting(100, "Of these, those of one bid: or oidc: principal; more get 429 with Retry-After.", low=0, high=1_000_000)
    bad_credentials_per_second: int = setting(1000, "Bad assertions and tokens looked at in a second, a quarter of them from one address; beyond it those that are not known yet get 429 with Retry-After.", low=1, high=1_000_000)


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """``[tokens]``."""

    keys: tuple[str, ...] = setting((), "Keys of this server's own tokens: the first signs, all verify, without any there are none.", secret=True)
    audience: str = setting("queuey", "What this server's tokens are for; another server with the same keys but another audience refuses them.")
    life_seconds: int = setting(3600, "Longest life of a token.", low=60, high=86_400)


@dataclass(frozen=True, slots=True)
class SqsSettings:
    """``[sqs]``."""

    auth: str = setting("signature", "signature: SQS requests need a valid signature (V4); open: no signature is checked, for development only.", words=("signature", "open"))
    open_to_network: bool = setting(False, "With auth = open, also start on an address that other machines can reach: each of them may then do everything.")
    secrets: tuple[str, ...] = setting((), "Master secrets that the secrets of access keys are derived from: the first is for new keys, all verify. Without any, the embedded store's server keeps one in sqs.secret in the data folder; on Cassandra all servers need the same.", secret=True)
    host: str = setting("", "Host of queue URLs, such as sqs.example.org:5000 or https://sqs.example.org; empty means the Host header of the request.")
    purge_wait_seconds: int = setting(0, "How long after a purge a second one of the same queue is refused to SQS clients; Amazon's service waits 60.", low=0, high=3600)


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """``[console]``."""

    enabled: bool = setting(True, "Serve the console at /console; false: there is none, and / is no page.")
    secrets: tuple[str, ...] = setting((), "Secrets that sign the sessions of browsers: the first signs, all verify. Without any the server makes one at each start, so that everybody has to sign in again; several servers behind one address need the same.", secret=True)
    url: str = setting("", "Under which address browsers reach this server, such as https://queuey.example.com. A sign-in at an issuer comes back there.")


@dataclass(frozen=True, slots=True)
class MetricSettings:
    """``[metrics]``."""

    token: str = setting("", "What /metrics asks for, as Authorization: Bearer TOKEN; without it only requests from this machine itself are answered, if no proxy passed them on.", secret=True)
    queues: tuple[str, ...] = setting((), "Queues that /metrics shows one by one, as application/queue, 100 at most: depth, bytes, ages, and how far their groups are.")


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """``[telemetry]``."""

    endpoint: str = setting("", "Collector of OpenTelemetry that gets spans of appends and all metrics, by OTLP over HTTP, such as http://127.0.0.1:4318; none: nothing is sent. Needs the extra telemetry. All else is as the OTEL_* variables of its SDK say.")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """``[log]``."""

    level: str = setting("info", "Least level that is logged.", words=("debug", "info", "warning", "error"))
    format: str = setting("auto", "json, text, or auto: text on a terminal, else json.", words=("auto", "json", "text"))
    requests: bool = setting(False, "Log a line for every request. Refusals of the server's own making are always logged: of each kind the first, and then one a second with the number of those in between.")
# fmt: on


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force."""

    server: ServerSettings = field(default_factory=ServerSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    metadata: MetadataSettings = field(default_factory=MetadataSettings)
    cassandra: CassandraSettings = field(default_factory=CassandraSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    tokens: TokenSettings = field(default_factory=TokenSettings)
    sqs: SqsSettings = field(default_factory=SqsSettings)
    console: ConsoleSettings = field(default_factory=ConsoleSettings)
    metrics: MetricSettings = field(default_factory=MetricSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    log: LogSettings = field(default_factory=LogSettings)
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where a value that is not the default came from, by :attr:`Setting.name`."""
    application_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Keys given in the ini file, by application."""
    issuers: tuple[Issuer, ...] = ()
    """The issuers whose credentials the server accepts."""
    notices: tuple[str, ...] = ()
    """What is worth a line at start: keys of the first Queuey, and what they mean now."""

    def value(self, row: Setting) -> Any:
        """The value of one row of :data:`SETTINGS`."""
        return getattr(getattr(self, row.section), row.key)


_FACTORIES: Mapping[str, Any] = {declared.name: declared.default_factory for declared in dataclasses.fields(Settings)}
SECTIONS: Mapping[str, Any] = {
    name: declared for name, declared in _FACTORIES.items() if dataclasses.is_dataclass(declared)
}
"""The dataclass of each section of the ini file, by the section's name."""
SETTINGS: tuple[Setting, ...] = tuple(row for name, declared in SECTIONS.items() for row in rows_of(name, declared))
"""Every setting there is, in the order of the docs."""
