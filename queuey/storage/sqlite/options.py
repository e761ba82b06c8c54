"""How an embedded store's file is opened."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SqliteOptions"]


@dataclass(frozen=True)
class SqliteOptions:
    """Settings of one file; see docs/settings.md."""

    synchronous: str = "full"
    reserve_mb: int = 64
    """Disk space that appends leave free."""
    cache_mb: int = 4
    """Pages in memory, for each connection that writes."""
    wal_mb: int = 64
    """Size of the write-ahead log above which the committer waits for readers, so that the log can start over."""
    read_cache_mb: int = 1024
    """All cached runs of packs together; 0 stores none."""
    scrub_percent: int = 0
    """Share of one core's time that the search for damage may use."""
    loop_commit_ms: int = 1
    """The event loop carries commits while 99 of 100 take no longer; 0 leaves all to a thread."""
