"""From settings to open stores."""

from __future__ import annotations

from pathlib import Path

from queuey.clock import Clock
from queuey.errors import ConfigurationError
from queuey.ids import IdGenerator
from queuey.settings import Settings
from queuey.storage import MessageStore, MetadataStore, Stores


def open_stores(settings: Settings, clock: Clock, ids: IdGenerator, *, serve: bool = True) -> Stores:
    """Open what ``[storage]`` and ``[metadata]`` name.

    Messages and metadata share one store when ``[metadata]`` names none of its own.

    :param serve: False opens embedded files beside a running server, for commands.
    :raises ConfigurationError: a store cannot be opened; none is left open.
    """
    messages = _open(settings, settings.storage_backend, settings.storage_path, clock, ids, serve=serve)
    if not settings.metadata_backend and not settings.metadata_path:
        return Stores(messages, messages)
    try:
        backend = settings.metadata_backend or settings.storage_backend
        own = IdGenerator(clock)  # groups of commits of one file must not end the other's
        metadata = _open(settings, backend, settings.metadata_path, clock, own, serve=serve, name="metadata.db")
    except Exception:
        messages.close()
        raise
    return Stores(messages, metadata)


class _Both(MessageStore, MetadataStore):
    """What the embedded stores are."""


def _open(
    settings: Settings, backend: str, path: str, clock: Clock, ids: IdGenerator, *, serve: bool, name: str = "queuey.db"
) -> _Both:
    if backend == "memory":
        from queuey.storage.memory import MemoryStore

        return MemoryStore(clock, ids)  # type: ignore[return-value]
    from queuey.storage.sqlite import SqliteStore

    file = Path(path) if path else Path(settings.data) / name
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"cannot make the folder {file.parent}: {error.strerror}") from error
    return SqliteStore(  # type: ignore[return-value]
        file,
        clock,
        ids,
        synchronous=settings.storage_synchronous,
        reserve_mb=settings.storage_reserve_mb,
        cache_mb=settings.storage_cache_mb,
        wal_mb=settings.storage_wal_mb,
        serve=serve,
    )
