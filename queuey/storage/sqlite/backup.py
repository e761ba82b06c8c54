"""A consistent copy of an embedded store, while its server runs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from queuey.errors import ConfigurationError
from queuey.storage.sqlite.connections import refuse_other_format
from queuey.storage.sqlite.health import PRIVATE, beside
from queuey.storage.sqlite.mark import is_of_a_store, new_mark, refuse_foreign_log
from queuey.storage.sqlite.statements import SQL
from queuey.whole_files import sync

_PAGES_A_STEP = 2000


def backup(
    source: Path, target: Path, progress: Callable[[int, int], None] | None = None, *, force: bool = False
) -> None:
    """Copy the store ``source`` to the file ``target``.

    The copy is the store as it was at one moment: a read transaction stays open from the first page to the last, so it
    contains no later commits of a running server. Those go on meanwhile; only the server's write-ahead log cannot start
    over before the copy is done. Copying the file with ``cp`` looks right to every check, and misses what is still in
    the log.

    :param progress: called with (pages done, pages in all) after every step.
    :param force: also in the place of a file that is there, once the copy is whole.
    :raises ConfigurationError: there is no store at ``source``, or it has another format; ``target`` exists, is a store or cannot be written; or
        another process is making this backup. ``target`` is as it was.
    """
    refuse_taken(source, target, force=force)
    partial = target.with_name(f"{target.name}.partial")
    with copied(source, partial, progress):
        try:
            partial.replace(target)
            sync(target.parent)
        except OSError as error:
            raise ConfigurationError(f"the backup to {target} failed: {error}") from error


def refuse_taken(source: Path, target: Path, *, force: bool) -> None:
    """:raises ConfigurationError: ``target`` exists, and a backup may not take its place."""
    refuse_store_as_target(source, target)
    if target.exists() and not target.is_file():
        raise ConfigurationError(f"{target} is no file that a backup could take the place of: choose another name")
    if target.exists() and not force:
        raise ConfigurationError(f"{target} exists already: choose another name, or say --force")


def refuse_store_as_target(source: Path, target: Path) -> None:
    """:raises ConfigurationError: ``target`` is the store ``source``, or another one, also one whose server has ended."""
    if target.exists() and (target.samefile(source) or is_of_a_store(target.resolve())):
        raise ConfigurationError(f"{target} is a store and no backup: choose another name")


@contextmanager
def copied(source: Path, here: Path, progress: Callable[[int, int], None] | None) -> Iterator[None]:
    """A copy of the store in the file ``here``, as long as the block runs. A block that renames it keeps it.

    :raises ConfigurationError: there is no store of this format at ``source``, ``here`` cannot be written, or another process is
        writing it. What a process left there that was killed is written over.
    """
    if not source.is_file():
        raise ConfigurationError(f"there is no store at {source}")
    refuse_foreign_log(source.resolve())
    with _held(here):
        try:
            _copy(source, here, progress)
        except (apsw.Error, OSError) as error:
            # Of a step that fails, SQLite says "not an error".
            why = "the disk is full" if isinstance(error, apsw.FullError) else error
            raise ConfigurationError(f"the copy to {here} failed: {why}") from error
        yield


@contextmanager
def _held(partial: Path) -> Iterator[None]:
    """An empty file that only this process writes, and that ends with the block."""
    try:
        file = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    except FileNotFoundError as error:
        raise ConfigurationError(f"there is no folder {partial.parent}: make it, or name another one") from error
    except OSError as error:
        raise ConfigurationError(f"{partial} cannot be written: {error.strerror}") from error
    try:
        if not (_locks(file) and _is_at(file, partial)):
            raise ConfigurationError(f"another process is writing {partial}: wait until its backup is done")
        try:
            os.fchmod(file, PRIVATE)
            os.ftruncate(file, 0)
            _remove_logs(partial)
            yield
        finally:
            if _is_at(file, partial):
                partial.unlink()
            _remove_logs(partial)
    finally:
        os.close(file)


def _locks(file: int) -> bool:
    """Whether no other process has this lock. On a file system without locks nobody has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file still has its name: a process that has ended may have renamed or removed it."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _remove_logs(partial: Path) -> None:
    for one in (*beside(partial), partial.with_name(f"{partial.name}-journal")):
        one.unlink(missing_ok=True)


def _copy(source: Path, partial: Path, progress: Callable[[int, int], None] | None) -> None:
    reading = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
    writing = apsw.Connection(str(partial))
    try:
        reading.set_busy_timeout(5000)
        refuse_other_format(reading, source)
        reading.execute("begin")
        reading.execute("select count(*) from moment").fetchall()
        copy = writing.backup("main", reading, "main")
        try:
            while not copy.done:
                copy.step(_PAGES_A_STEP)
                if progress is not None:
                    progress(copy.page_count - copy.remaining, copy.page_count)
        finally:
            copy.close(True)  # it raises no error of its own, which would hide that of the step
        reading.execute("commit")
        writing.execute("pragma journal_mode = delete")
        writing.execute(f"pragma application_id = {new_mark()}")
        writing.execute(SQL["cached_runs_delete_all"])  # this deletes only rows; the files stay where they are
    finally:
        writing.close()
        reading.close()
    sync(partial)
