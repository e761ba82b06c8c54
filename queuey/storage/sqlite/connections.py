"""Connections to an embedded store's file, and the file's format."""

from __future__ import annotations

import ctypes
import weakref
from pathlib import Path
from urllib.parse import quote

import apsw

from queuey.errors import ConfigurationError
from queuey.storage.sqlite.options import SqliteOptions
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Row

__all__ = ["BUSY_MS", "PAGE_BYTES", "Connections", "refuse_other_format"]

BUSY_MS = 5000
"""How long a write waits for another process that writes, such as ``queuey key new``."""
_FORMAT = 9
"""The file's format, in its ``user_version``."""
PAGE_BYTES = 8192
"""Page size of a new file; an existing file keeps its own.

It is twice SQLite's default. Packs are many pages long. Each page takes two system calls in the log and two in a
checkpoint. With this size bulk writes are a twelfth faster, and small ones as fast, over ten queues and over 100,000
(measured).
"""


def refuse_other_format(connection: apsw.Connection, path: Path) -> None:
    """:raises ConfigurationError: the file has another format than this version reads."""
    rows: list[Row] = connection.execute("pragma user_version").fetchall()
    ((found,),) = rows
    if found != _FORMAT:
        raise ConfigurationError(
            f"the store {path} has format {found}, and this version of queuey reads format {_FORMAT} alone: use the "
            "version that wrote it, or move the file away to begin with an empty store"
        )


class Connections:
    """Opens connections to one file, and knows all open ones."""

    def __init__(self, path: Path, options: SqliteOptions, *, read_only: bool) -> None:
        self._path = path
        self._options = options
        self._read_only = read_only
        self._cache_kib = options.cache_mb * 1024
        self._open: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()

    def writer(self) -> apsw.Connection:
        """The one connection that appends. It makes the tables of an empty file.

        :raises ConfigurationError: a write-ahead log is not possible here, or the file has another format.
        """
        if self._read_only:
            return self._connect(read_only=True)
        connection = self._connect(read_only=False)
        connection.execute(f"pragma page_size = {PAGE_BYTES}")
        if connection.execute("pragma journal_mode = wal").fetchall() != [("wal",)]:
            raise ConfigurationError(f"the store {self._path} cannot use a write-ahead log on this file system")
        connection.execute(f"pragma synchronous = {self._options.synchronous}")
        connection.execute("pragma wal_autocheckpoint = 0")
        connection.execute("pragma temp_store = memory")  # what a statement may have to undo goes to no file
        connection.execute(f"pragma journal_size_limit = {self._options.wal_mb << 20}")
        connection.execute("begin immediate")
        if not self._has_tables(connection):
            connection.execute(SQL["schema"])
            connection.execute(f"pragma user_version = {_FORMAT}")
        connection.execute("commit")
        return connection

    def beside(self) -> apsw.Connection:
        """A further connection that may write.

        It is for checkpoints, and for the search for damage.
        """
        return self._connect(read_only=False)

    def reader(self, *, often: bool) -> apsw.Connection:
        """A connection for one caller at a time, without SQLite's own mutexes.

        :param often: it reads most pages. A queue among many has each message on a page of its own. So this connection
            has a cache for the pages of some queues that are read again and again.
        """
        connection = self._connect(read_only=True, flags=apsw.SQLITE_OPEN_NOMUTEX)
        connection.execute(f"pragma cache_size = -{self._cache_kib * 2 if often else self._cache_kib // 4}")
        return connection

    def _connect(self, *, read_only: bool, flags: int = 0) -> apsw.Connection:
        if read_only:
            wal = self._path.with_name(self._path.name + "-wal")
            # On a read-only file system a store without a write-ahead log cannot change: open it as immutable.
            still = self._read_only and not (wal.exists() and wal.stat().st_size)
            uri = f"file:{quote(str(self._path))}?mode=ro" + ("&immutable=1" if still else "")
            connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | flags)
            if self._read_only:
                self._has_tables(connection)
        else:
            connection = apsw.Connection(str(self._path))
        self._open.add(connection)
        # Otherwise SQLite plans a statement again whenever a bound value changes: 28 of the 32 µs that a page's index took.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.set_busy_timeout(BUSY_MS)
        connection.execute(f"pragma cache_size = -{self._cache_kib}")
        return connection

    def _has_tables(self, connection: apsw.Connection) -> bool:
        """False if the file is still empty.

        :raises ConfigurationError: it has another format than this version reads.
        """
        if not connection.execute("select 1 from sqlite_schema limit 1").fetchall():
            return False
        refuse_other_format(connection, self._path)
        return True

    def forsake(self) -> None:
        """Keep all connections allocated for ever, in the child of a fork.

        A thread of the parent may have held one of SQLite's own locks, which then stays held in the child. Freeing a
        connection would wait for it, and so would the end of the process: it frees connections, and apsw closes all
        that it knows when it is freed itself.
        """
        for kept in (apsw, *self._open):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
