"""The embedded store: one SQLite file, durable, for one server process."""

from __future__ import annotations

from queuey.storage.sqlite_messages import SqliteMessages
from queuey.storage.sqlite_metadata import SqliteMetadata

__all__ = ["SqliteStore"]


class SqliteStore(SqliteMessages, SqliteMetadata):
    """Messages and metadata in one file; how it opens is told in :mod:`queuey.storage.sqlite_file`."""
