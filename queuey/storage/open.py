"""From settings to open stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from queuey.clock import Clock
from queuey.errors import ConfigurationError
from queuey.ids import IdGenerator
from queuey.settings import Settings
from queuey.storage import Observer, Stores

if TYPE_CHECKING:
    from queuey.storage.memory import MemoryStore
    from queuey.storage.sqlite import SqliteStore


def open_stores(
    settings: Settings, clock: Clock, ids: IdGenerator, *, serve: bool = True, observer: Observer | None = None
) -> Stores:
    """Open what ``[storage]`` and ``[metadata]`` name.

    Messages and metadata share one store when ``[metadata]`` names none of its own.

    :param serve: False opens embedded files beside a running server, for commands.
    :param observer: hears of the message store's calls.
    :raises ConfigurationError: a store cannot be opened; none is left open.
    """
    folder = Path(settings.data)
    path = Path(settings.storage_path) if settings.storage_path else folder / "queuey.db"
    messages = _open(settings, settings.storage_backend, path, clock, ids, serve=serve, observer=observer)
    if not settings.metadata_backend and not settings.metadata_path:
        return Stores(messages, messages)
    try:
        backend = settings.metadata_backend or settings.storage_backend
        own = IdGenerator(clock)  # groups of commits of one file must not end the other's
        path = Path(settings.metadata_path) if settings.metadata_path else folder / "metadata.db"
        metadata = _open(settings, backend, path, clock, own, serve=serve, observer=None)
    except Exception:
        messages.close()
        raise
    return Stores(messages, metadata)


def _open(
    settings: Settings,
    backend: str,
    path: Path,
    clock: Clock,
    ids: IdGenerator,
    *,
    serve: bool,
    observer: Observer | None,
) -> MemoryStore | SqliteStore:
    if backend == "memory":
        from queuey.storage.memory import MemoryStore

        return MemoryStore(clock, ids)
    from queuey.storage.sqlite import SqliteStore

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"cannot make the folder {path.parent}: {error.strerror}") from error
    return SqliteStore(
        path,
        clock,
        ids,
        synchronous=settings.storage_synchronous,
        reserve_mb=settings.storage_reserve_mb,
        cache_mb=settings.storage_cache_mb,
        wal_mb=settings.storage_wal_mb,
        serve=serve,
        observer=observer,
    )
