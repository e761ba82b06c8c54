"""How an embedded store's file is opened."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SqliteOptions"]


@dataclass(frozen=True)
class SqliteOptions:
    """Settings of one file; see docs/settings.md."""

    synchronous: str = "full"
    reserve_mb: int = 64
    """Disk that stays free of appends."""
    cache_mb: int = 4
    """Pages in memory, of each connection that writes."""
    wal_mb: int = 64
    """Size of the write-ahead log past which the committer waits for readers to start it over."""
    read_cache_mb: int = 1024
    """Cached runs of packs, all together; 0 keeps none."""
    scrub_percent: int = 0
    """Share of one core's time for the search for damage."""
