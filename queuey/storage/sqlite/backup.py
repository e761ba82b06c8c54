"""A consistent copy of an embedded store, while its server runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import apsw

from queuey.errors import ConfigurationError
from queuey.storage.sqlite.health import PRIVATE
from queuey.storage.sqlite.mark import new_mark, refuse_foreign_log
from queuey.storage.sqlite.statements import SQL

_PAGES_A_STEP = 2000


def backup(source: Path, target: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Copy the store ``source`` to the new file ``target``.

    The copy is the store as it was at one moment: a read transaction stays open from the first page to the last, so it
    contains no later commits of a running server. Those go on meanwhile; only the server's write-ahead log cannot start
    over before the copy is done. Copying the file with ``cp`` looks right to every check, and misses what is still in
    the log.

    :param progress: called with (pages done, pages in all) after every step.
    :raises ConfigurationError: there is no store at ``source``, or ``target`` exists or cannot be
        written; nothing is left at ``target``.
    """
    if not source.is_file():
        raise ConfigurationError(f"there is no store at {source}")
    refuse_foreign_log(source.resolve())
    if target.exists():
        raise ConfigurationError(f"{target} exists already: a backup is never written over a file")
    partial = target.with_name(target.name + ".partial")
    try:
        _copy(source, partial, progress)
        partial.replace(target)
        sync_folder(target.parent)
    except (apsw.Error, OSError) as error:
        raise ConfigurationError(f"the backup to {target} failed: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _copy(source: Path, partial: Path, progress: Callable[[int, int], None] | None) -> None:
    partial.unlink(missing_ok=True)
    partial.touch(PRIVATE)
    reading = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
    writing = apsw.Connection(str(partial))
    try:
        reading.set_busy_timeout(5000)
        reading.execute("begin")
        reading.execute("select count(*) from moment").fetchall()
        with writing.backup("main", reading, "main") as copy:
            while not copy.done:
                copy.step(_PAGES_A_STEP)
                if progress is not None:
                    progress(copy.page_count - copy.remaining, copy.page_count)
        reading.execute("commit")
        writing.execute("pragma journal_mode = delete")
        writing.execute(f"pragma application_id = {new_mark()}")
        writing.execute(SQL["cached_runs_delete_all"])  # this deletes only rows; the files stay where they are
    finally:
        writing.close()
        reading.close()
    with partial.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
