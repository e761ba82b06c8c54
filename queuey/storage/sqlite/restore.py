"""Replaces a store by a backup: ``queuey restore``."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path

from queuey.errors import ConfigurationError
from queuey.storage.sqlite.health import PRIVATE, PRIVATE_FOLDER, FolderLock, beside, has_content, restoring
from queuey.storage.sqlite.mark import refuse_log_elsewhere
from queuey.whole_files import sync

__all__ = ["restore"]

_STEP_BYTES = 8 << 20


def restore(source: Path, target: Path, progress: Callable[[int, int], None] | None = None) -> Path | None:
    """Copy the backup ``source`` to the store ``target``.

    A former store stays beside it with its write-ahead log, under a name of its own. If this ends between the renames,
    as the machine goes down, the next start refuses, and the restore can be repeated.

    :param source: an undamaged backup; the caller checks that.
    :param progress: called with (bytes copied, bytes in all) after every step.
    :returns: where the former store lies; None if there was none.
    :raises StoreInUse: a server runs on ``target``.
    :raises ConfigurationError: ``source`` is no backup, or cannot be copied; ``target`` is unchanged, or put aside.
    """
    source = source.resolve()
    refuse_log_elsewhere(source)
    log, _ = beside(source)
    if log.exists() and log.stat().st_size:
        raise ConfigurationError(
            f"{source} has a write-ahead log, so it is a store and no backup: copy it with 'queuey backup' first"
        )
    target = target.resolve()
    if target.exists() and target.samefile(source):
        raise ConfigurationError(f"{source} is the store itself")
    partial = restoring(target)
    try:
        target.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        is_new, is_first = not target.exists(), not (has_content(target) or partial.exists())
        lock = FolderLock(target)
        try:
            _copy(source, partial, progress)
            kept = _put_aside(target)
            partial.replace(target)
            sync(target.parent)
        finally:
            is_there = has_content(target)
            if is_new and not is_there:
                target.unlink(missing_ok=True)  # the lock made this empty file
            lock.close()
            if is_there or is_first:
                partial.unlink(missing_ok=True)  # else the former store is put aside, and no server begins an empty one
    except OSError as error:
        raise ConfigurationError(f"the restore to {target} failed: {error}") from error
    return kept


def _copy(source: Path, partial: Path, progress: Callable[[int, int], None] | None) -> None:
    partial.unlink(missing_ok=True)
    partial.touch(PRIVATE)
    size, done = source.stat().st_size, 0
    with source.open("rb") as reading, partial.open("wb") as writing:
        while piece := reading.read(_STEP_BYTES):
            writing.write(piece)
            done += len(piece)
            if progress is not None:
                progress(done, size)
        writing.flush()
        os.fsync(writing.fileno())


def _put_aside(target: Path) -> Path | None:
    """Rename the former store and its log, which stays valid under the new name."""
    log, index = beside(target)
    index.unlink(missing_ok=True)
    if target.stat().st_size:
        kept = _name_beside(target, _is_free)
        target.rename(kept)
    elif log.exists():
        kept = _name_beside(target, _lacks_log)  # an interrupted restore renamed the file, but not its log
    else:
        return None
    if log.exists():
        log.rename(beside(kept)[0])
    sync(target.parent)
    return kept


def _name_beside(target: Path, fits: Callable[[Path], bool]) -> Path:
    """The first name for a former store that fits, or that is free."""
    name = f"{target.name}.before-restore"
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(kept for kept in map(target.with_name, names) if fits(kept) or _is_free(kept))


def _is_free(kept: Path) -> bool:
    return not kept.exists() and not beside(kept)[0].exists()


def _lacks_log(kept: Path) -> bool:
    return kept.exists() and not beside(kept)[0].exists()
