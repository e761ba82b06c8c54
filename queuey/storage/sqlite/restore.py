"""Replaces the files of a store by those of a backup: ``queuey restore``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, count
from pathlib import Path

from queuey.errors import ConfigurationError
from queuey.storage.sqlite.health import PRIVATE, PRIVATE_FOLDER, FolderLock, beside, has_content, restoring
from queuey.storage.sqlite.mark import refuse_log_elsewhere
from queuey.whole_files import sync

__all__ = ["restore"]

_STEP_BYTES = 8 << 20


def restore(
    files: Sequence[tuple[Path, Path]], progress: Callable[[int, int], None] | None = None
) -> Sequence[Path | None]:
    """Copy each backup to its file of the store, all or none.

    A former file stays beside the new one with its write-ahead log, under a name of its own. If this ends between the
    renames, as the machine goes down, the next start refuses, and the restore can be repeated.

    :param files: undamaged backups, and what they replace; the caller checks that.
    :param progress: called with (bytes copied, bytes in all) after every step.
    :returns: where the former files lie; None for one that there was not.
    :raises StoreInUse: a server runs on one of them.
    :raises ConfigurationError: one is no backup, or cannot be copied; what is to be replaced is unchanged, or put aside.
    """
    copies = [_Copy(source, target) for source, target in files]
    try:
        size, done = sum(copy.source.stat().st_size for copy in copies), 0
        with ExitStack() as stack:
            for copy in copies:
                for step in stack.enter_context(copy.made()):
                    done += step
                    if progress is not None:
                        progress(done, size)
            # Until the last has its place, one of them is missing, so no server begins with some of the new files.
            kept = [_put_aside(copy.target) for copy in copies]
            for copy in copies:
                copy.partial.replace(copy.target)
                for other in copies:
                    other.is_needed = True
                sync(copy.target.parent)
    except OSError as error:
        raise ConfigurationError(f"the restore to {files[0][1]} failed: {error}") from error
    return kept


class _Copy:
    """A backup, and the file that it is to replace."""

    def __init__(self, source: Path, target: Path) -> None:
        """:raises ConfigurationError: it is no backup."""
        self.source, self.target = source.resolve(), target.resolve()
        self.partial = restoring(self.target)
        self.is_needed = False
        """Another file has its place already, so no server may begin without this one."""
        refuse_log_elsewhere(self.source)
        log, _ = beside(self.source)
        if has_content(log):
            raise ConfigurationError(
                f"{self.source} has a write-ahead log, so it is a store and no backup: copy it with 'queuey backup' first"
            )
        if _is_same(self.source, self.target):
            raise ConfigurationError(f"{self.source} is the store itself")
        if _is_same(self.source, self.partial):
            raise ConfigurationError(
                f"{self.source} is what an interrupted restore left: name the backup, or rename it first"
            )

    @contextmanager
    def made(self) -> Iterator[Iterator[int]]:
        """The copy lies beside the store, and no server may use that, as long as the block runs.

        It gives the steps that make the copy, see :meth:`_steps`.

        :raises StoreInUse, ConfigurationError: as :func:`restore`.
        """
        target, partial = self.target, self.partial
        target.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        is_new, is_first = not target.exists(), not (has_content(target) or partial.exists())
        lock = FolderLock(target)
        try:
            yield self._steps()
        finally:
            is_there = has_content(target)
            if is_new and not is_there:
                target.unlink(missing_ok=True)  # the lock made this empty file
            lock.close()
            if is_there or (is_first and not self.is_needed):
                partial.unlink(missing_ok=True)  # else the former store is put aside, and no server begins an empty one

    def _steps(self) -> Iterator[int]:
        """Make the copy, and say of each step how many bytes it had."""
        self.partial.unlink(missing_ok=True)
        self.partial.touch(PRIVATE)
        with self.source.open("rb") as reading, self.partial.open("wb") as writing:
            while piece := reading.read(_STEP_BYTES):
                writing.write(piece)
                yield len(piece)
            writing.flush()
            os.fsync(writing.fileno())


def _is_same(source: Path, other: Path) -> bool:
    return source.exists() and other.exists() and source.samefile(other)


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
