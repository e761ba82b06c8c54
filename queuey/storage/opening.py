"""Opens the stores that the settings name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from queuey.clock import Clock
from queuey.errors import ConfigurationError
from queuey.ids import IdGenerator
from queuey.settings import Settings
from queuey.storage import LeaseStore, MessageStore, MetadataStore, OffsetStore, Stores, TaskStore
from queuey.storage.observing import Observer

USUAL_BUDGET_MS = 1500
"""The time limit of a statement without a write budget."""
METADATA_SECONDS = 5.0
"""The time limit of a statement about queues and keys. A node waits less for the others, so its own error arrives
first."""

if TYPE_CHECKING:
    from queuey.storage.cassandra import Options, Timing


def open_stores(
    settings: Settings, clock: Clock, ids: IdGenerator, *, serve: bool = True, observer: Observer | None = None
) -> Stores:
    """Open the stores that ``[storage]`` and ``[metadata]`` name.

    Messages and metadata share one store if ``[metadata]`` names none of its own.

    :param serve: False opens the stores beside a running server, for commands.
    :param observer: receives figures on the message store's calls.
    :raises ConfigurationError: a store cannot be opened; none is left open.
    """
    backend = settings.metadata.backend or settings.storage.backend
    if backend != "cassandra" and not (settings.metadata.backend or settings.metadata.path):
        stores = _open_here(settings, _messages_here(settings), clock, ids, serve=serve, observer=observer)
        return _whole(stores) if serve and settings.storage.backend == "sqlite" else stores
    messages, offsets, leases, tasks = _open_messages(settings, clock, ids, serve=serve, observer=observer)
    try:
        stores = Stores(messages, offsets, _open_metadata(settings, backend, clock, serve=serve), leases, tasks)
    except Exception:
        messages.close()
        raise
    return _whole(stores) if serve and settings.storage.backend == "sqlite" else stores


def _whole(stores: Stores) -> Stores:
    """:raises ConfigurationError: the queues of the messages are in another file; the stores are closed."""
    from queuey.storage.sqlite import SqliteMessages, SqliteMetadata
    from queuey.storage.sqlite.parting import refuse_parted

    if isinstance(stores.messages, SqliteMessages) and isinstance(stores.metadata, SqliteMetadata):
        try:
            refuse_parted(stores.messages, stores.metadata)
        except BaseException:
            stores.close()
            raise
    return stores


class _Here(NamedTuple):
    """A store of this process."""

    backend: str
    path: Path
    """The file of a store that has one."""


def _messages_here(settings: Settings) -> _Here:
    path = Path(settings.storage.path) if settings.storage.path else Path(settings.server.data) / "queuey.db"
    return _Here(settings.storage.backend, path)


def _open_messages(
    settings: Settings, clock: Clock, ids: IdGenerator, *, serve: bool, observer: Observer | None
) -> tuple[MessageStore, OffsetStore, LeaseStore, TaskStore]:
    if settings.storage.backend != "cassandra":
        stores = _open_here(settings, _messages_here(settings), clock, ids, serve=serve, observer=observer)
        return stores.messages, stores.offsets, stores.leases, stores.tasks
    with _driver():
        from queuey.storage.cassandra import open_messages
        from queuey.storage.cassandra.cluster import OFF

    options, timing = cassandra_options(settings), cassandra_timing(settings)
    if not serve:
        options = replace(options, peer_address=OFF)
    strict = settings.cassandra.strict_durability
    return open_messages(options, timing, clock, ids, strict_durability=strict, observer=observer)


def _open_metadata(settings: Settings, backend: str, clock: Clock, *, serve: bool) -> MetadataStore:
    if backend != "cassandra":
        path = Path(settings.metadata.path) if settings.metadata.path else Path(settings.server.data) / "metadata.db"
        own = IdGenerator(clock)  # commits of one file must not end the id groups of the other
        return _open_here(settings, _Here(backend, path), clock, own, serve=serve, observer=None).metadata
    with _driver():
        from queuey.storage.cassandra import open_metadata

    options = cassandra_options(settings, metadata=True)
    trusted_seconds = settings.cassandra.cache_ms / 1000
    return open_metadata(options, cassandra_timing(settings), clock, trusted_seconds=trusted_seconds)


def cassandra_options(settings: Settings, *, metadata: bool = False) -> Options:
    """How to reach the keyspace of the messages, or that of the metadata."""
    with _driver():
        from queuey.storage.cassandra import Options

    keyspace = settings.cassandra.keyspace
    return Options(
        hosts=[host.strip() for host in settings.cassandra.hosts.split(",") if host.strip()],
        port=settings.cassandra.port,
        keyspace=(settings.cassandra.metadata_keyspace or keyspace) if metadata else keyspace,
        data_centre=settings.cassandra.data_centre,
        multi_dc=settings.cassandra.multi_dc,
        username=settings.cassandra.username,
        password=settings.cassandra.password,
        tls_ca=settings.cassandra.tls_ca,
        tls_cert=settings.cassandra.tls_cert,
        tls_key=settings.cassandra.tls_key,
        tls_check_host=settings.cassandra.tls_check_host,
        peer_address=settings.cassandra.peer_address,
        most_calls=settings.cassandra.max_calls,
        timeout_seconds=METADATA_SECONDS
        if metadata
        else (settings.cassandra.write_budget_ms or USUAL_BUDGET_MS) / 1000,
    )


def cassandra_timing(settings: Settings) -> Timing:
    """W, E, D and the time of a request."""
    with _driver():
        from queuey.storage.cassandra import Timing

    return Timing(
        write_budget_seconds=settings.cassandra.write_budget_ms / 1000,
        clock_error_seconds=settings.cassandra.clock_error_ms / 1000,
        read_delay_seconds=settings.cassandra.read_delay_ms / 1000,
        request_seconds=float(settings.cassandra.request_seconds),
    )


@contextmanager
def _driver() -> Iterator[None]:
    """If the driver is missing, name the extra that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "cassandra":
            raise
        raise ConfigurationError(
            "backend = cassandra needs the driver: pip install '/path/to/queuey[cassandra]'"
        ) from error


def _open_here(
    settings: Settings, here: _Here, clock: Clock, ids: IdGenerator, *, serve: bool, observer: Observer | None
) -> Stores:
    if here.backend == "memory":
        from queuey.storage.memory import MemoryStores

        return MemoryStores(clock, ids)
    from queuey.storage.sqlite import SqliteOptions, SqliteStores
    from queuey.storage.sqlite.health import PRIVATE_FOLDER

    try:
        here.path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"cannot make the folder {here.path.parent}: {error.strerror}") from error
    options = SqliteOptions(
        synchronous=settings.storage.synchronous,
        reserve_mb=settings.storage.reserve_mb,
        cache_mb=settings.storage.cache_mb,
        wal_mb=settings.storage.wal_mb,
        read_cache_mb=settings.storage.read_cache_mb,
        scrub_percent=settings.storage.scrub_percent,
        loop_commit_ms=settings.storage.loop_commit_ms,
    )
    return SqliteStores(here.path, clock, ids, options, serve=serve, observer=observer)
