"""The embedded store: one SQLite file, durable, for one server process."""

from __future__ import annotations

from pathlib import Path

from queuey.clock import Clock
from queuey.ids import IdGenerator
from queuey.storage import Stores
from queuey.storage.observing import Observer
from queuey.storage.sqlite.file import File
from queuey.storage.sqlite.leases import SqliteLeases
from queuey.storage.sqlite.messages import SqliteMessages
from queuey.storage.sqlite.metadata import SqliteMetadata
from queuey.storage.sqlite.offsets import SqliteOffsets
from queuey.storage.sqlite.options import SqliteOptions
from queuey.storage.sqlite.tasks import SqliteTasks

__all__ = [
    "SqliteLeases",
    "SqliteMessages",
    "SqliteMetadata",
    "SqliteOffsets",
    "SqliteOptions",
    "SqliteStores",
    "SqliteTasks",
]

_USUAL = SqliteOptions()


class SqliteStores(Stores):
    """Messages, offsets and metadata in one file.

    See :mod:`queuey.storage.sqlite.file` for how it opens.
    """

    messages: SqliteMessages
    offsets: SqliteOffsets
    metadata: SqliteMetadata
    leases: SqliteLeases

    def __init__(
        self,
        path: Path,
        clock: Clock,
        ids: IdGenerator,
        options: SqliteOptions = _USUAL,
        *,
        serve: bool = True,
        observer: Observer | None = None,
    ) -> None:
        """:param serve: see :class:`~queuey.storage.sqlite.file.File`, as for what is raised."""
        self.file = File(path, clock, ids, options, serve=serve, observer=observer)
        messages = SqliteMessages(self.file)
        super().__init__(
            messages,
            SqliteOffsets(self.file),
            SqliteMetadata(self.file),
            SqliteLeases(self.file, messages),
            SqliteTasks(self.file),
        )
