"""The embedded store: one SQLite file, durable, for one server process."""

from __future__ import annotations

from queuey.storage.sqlite.messages import SqliteMessages
from queuey.storage.sqlite.metadata import SqliteMetadata
from queuey.storage.sqlite.offsets import SqliteOffsets

__all__ = ["SqliteStore"]


class SqliteStore(SqliteOffsets, SqliteMessages, SqliteMetadata):
    """Messages, offsets and metadata in one file; how it opens is told in :mod:`queuey.storage.sqlite.file`."""
