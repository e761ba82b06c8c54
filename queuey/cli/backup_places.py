"""Where backups go: a file, a folder, or an object store that fsspec knows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from queuey.errors import ConfigurationError

__all__ = ["METADATA", "fetched", "is_elsewhere", "local_path", "named", "send"]

METADATA = ".metadata"
"""Ends the name of a backup of metadata in a file of their own."""
_STEP_BYTES = 8 << 20
_FETCHED = ".fetched"

Progress = Callable[[int, int], None]


def is_elsewhere(dest: str) -> bool:
    """Whether this is an address for fsspec, such as ``s3://bucket/queuey.db``, and no path of this machine."""
    return "://" in dest


def named(dest: str, now: datetime) -> str:
    """The backup's own address: in a folder it gets a name with its moment.

    >>> named("s3://bucket/queuey/", datetime(2026, 11, 26, 4, 30, tzinfo=UTC))
    's3://bucket/queuey/queuey-20261126T043000Z.db'

    :raises ConfigurationError: it is empty, as a variable is that was never set.
    """
    if not dest:
        raise ConfigurationError("the backup needs a place: a file, a folder or an address, and not an empty text")
    is_folder = dest.endswith("/") or (not is_elsewhere(dest) and Path(dest).is_dir())
    if not is_folder:
        return dest
    return f"{dest.rstrip('/')}/queuey-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}.db"


def local_path(address: str) -> Path | None:
    """The file of this machine that an address such as ``file:///backups/queuey.db`` names; None for any other.

    :raises ConfigurationError: fsspec or its library for this protocol is missing.
    """
    system, path = _found(address)
    return Path(path) if "file" in system.protocol else None


def send(source: Path, address: str, progress: Progress, *, force: bool) -> None:
    """Copy a file to an address, and check that all of it arrived.

    :param force: also in the place of a file that is there.
    :raises ConfigurationError: fsspec or its library for this protocol is missing, or the copy failed. A part of it may be
        there then.
    """
    system, path = _found(address)
    size = source.stat().st_size
    try:
        if not force and system.exists(path):
            raise ConfigurationError(f"{address} exists already: choose another name, or say --force")
        system.makedirs(system._parent(path), exist_ok=True)  # noqa: SLF001 - fsspec's interface for file systems
        with source.open("rb") as reading, system.open(path, "wb") as writing:
            done = 0
            while piece := reading.read(_STEP_BYTES):
                writing.write(piece)
                done += len(piece)
                progress(done, size)
        arrived = system.info(path)["size"]
    except ConfigurationError:
        raise
    except Exception as error:  # each protocol has errors of its own
        raise ConfigurationError(f"the backup to {address} failed: {type(error).__name__}: {error}") from error
    if arrived != size:
        raise ConfigurationError(f"{address} has {arrived} bytes of {size}: try again")


@contextmanager
def fetched(address: str, beside: Path, progress: Progress) -> Iterator[Path]:
    """A copy of a backup on this machine, as long as the block runs.

    :param beside: where there is room for it: the store's file.
    :raises ConfigurationError: as :func:`send`; nothing is left here.
    """
    system, path = _found(address)
    beside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    here = beside.with_name(f"{beside.name}{_FETCHED}")
    try:
        here.unlink(missing_ok=True)
        here.touch(0o600)
        try:
            size = system.info(path)["size"]
            if size > shutil.disk_usage(here.parent).free:
                raise ConfigurationError(f"{here.parent} has no room for the {size} bytes of {address}")
            with system.open(path, "rb") as reading, here.open("wb") as writing:
                while piece := reading.read(_STEP_BYTES):
                    writing.write(piece)
                    progress(writing.tell(), size)
        except ConfigurationError:
            raise
        except Exception as error:  # as above
            raise ConfigurationError(f"{address} cannot be read: {type(error).__name__}: {error}") from error
        yield here
    finally:
        here.unlink(missing_ok=True)


def _found(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{address} needs fsspec: pip install '/path/to/queuey[backup]', and the library of its protocol, such as s3fs"
        ) from error
    try:
        system, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"{address}: {error}") from error
    return system, str(path)
