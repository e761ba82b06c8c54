"""A folder on any file system that Spark knows.

It is for the few files that the driver of a job writes itself.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from queuey.errors import ConfigurationError
from queuey.whole_files import sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Folder"]

log = logging.getLogger("qdo.pipeline")


class Folder:
    """A folder. Names below it are relative, with ``/`` between their parts."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """:raises ConfigurationError: none of Spark's file systems knows the path."""
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001 - the file systems that Spark knows
        try:
            self._root = self._jvm.org.apache.hadoop.fs.Path(path)
            self._fs = self._root.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
            self.url = str(self._fs.makeQualified(self._root))
            """The path with its scheme, as Spark names files in it."""
        except Exception as error:
            said = str(getattr(error, "java_exception", error))
            raise ConfigurationError(f"folder {path}: {said.partition(': ')[2] or said}") from error
        self.local: str | None = None
        """The path on this machine's own file system; None if the folder is elsewhere."""
        if self.url.startswith("file:"):
            self.local = str(self._fs.makeQualified(self._root).toUri().getPath())

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Hold a name until the end of the block, or until this process dies.

        Other processes cannot hold it meanwhile.

        This works only if the machine's own file system knows the folder and locks files. Elsewhere it keeps nobody out.

        :param name: of a file, which is made and stays.
        :raises ConfigurationError: another process holds it.
        """
        if self.local is None:
            yield
            return
        path = Path(self.local, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
        except OSError as error:
            raise ConfigurationError(f"folder {self.local}: {path}: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigurationError(
                    f"another run is under way in {self.local} (it holds {path}): begin this one again when that has ended"
                ) from error
            except OSError as error:
                log.warning("%s cannot be locked (%s): make sure that only one run is under way", path, error.strerror)
            yield

    def at(self, name: str) -> str:
        """The full path of a name."""
        return f"{self.url}/{name}"

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def is_there(self) -> bool:
        """Whether the folder exists, or a file of its name."""
        return bool(self._fs.exists(self._root))

    def is_new(self) -> bool:
        """Whether nothing exists there, or an empty folder."""
        if not self.is_there():
            return True
        return bool(self._fs.getFileStatus(self._root).isDirectory()) and not self._fs.listStatus(self._root)

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def names(self, below: str) -> Iterator[str]:
        """Files at any depth below a name, as names of this folder.

        The name need not exist.
        """
        if not self.exists(below):
            return
        found = self._fs.listFiles(self._path(below), True)
        while found.hasNext():
            yield str(found.next().getPath())[len(self.url) + 1 :]

    def children(self, below: str) -> list[tuple[str, float]]:
        """What lies directly below a name that need not exist.

        It returns names of this folder, and seconds since 1970 of each change.
        """
        if not self.exists(below):
            return []
        found = self._fs.listStatus(self._path(below))
        return [(f"{below}/{each.getPath().getName()}", each.getModificationTime() / 1000) for each in found]

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return int(self._fs.getFileStatus(self._path(name)).getLen())

    def move(self, old: str, new: str) -> None:
        """Move a file to a name, and replace a file of that name.

        On the machine's own file system its contents are on disk then, and its name after :meth:`sync_names`.

        :raises OSError: it cannot be moved. If it does not exist, the other file is unchanged.
        """
        target = self._path(new)
        if not self.exists(old):
            raise OSError(f"{self.at(old)}, which was to become {self.at(new)}, is gone: is another run under way?")
        self.sync(old)
        self._fs.mkdirs(target.getParent())
        self._fs.delete(target, False)
        if not self._fs.rename(self._path(old), target):
            raise OSError(f"{self.at(old)} cannot be moved to {self.at(new)}")

    def sync(self, name: str) -> None:
        """Have what a file contains on disk. Other file systems than the machine's own see to it in their own way.

        :raises OSError: it does not exist, or the disk fails.
        """
        if self.local is not None:
            path = Path(self.local, name)
            sync(path)
            with suppress(FileNotFoundError):
                sync(path.with_name(f".{path.name}.crc"))  # where Spark wrote the file

    def sync_names(self, names: Iterable[str]) -> None:
        """Have names of files on disk, as :meth:`sync`, and those of the folders above them."""
        if self.local is not None:
            for parent in {parent for name in names for parent in PurePosixPath(name).parents}:
                sync(Path(self.local, parent))

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with everything in it. It need not exist."""
        self._fs.delete(self._path(name), True)

    def read(self, name: str) -> str:
        stream = self._fs.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file as a whole: it never exists in part. It is on disk then, as after :meth:`sync`."""
        partial = f"{name}.partial"
        stream = self._fs.create(self._path(partial), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.move(partial, name)
        self.sync_names([name])
