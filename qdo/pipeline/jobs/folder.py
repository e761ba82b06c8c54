"""A folder on any file system that Spark knows, for the few files that a job's driver writes itself."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queuey.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Folder"]

log = logging.getLogger("qdo.pipeline")


class Folder:
    """Names below it are relative, with ``/`` between their parts."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """:raises ConfigurationError: no file system of Spark's knows the name."""
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001 - the file systems that Spark knows
        try:
            self._root = self._jvm.org.apache.hadoop.fs.Path(path)
            self._fs = self._root.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
            self.url = str(self._fs.makeQualified(self._root))
            """With its scheme, as Spark names files in it."""
        except Exception as error:
            said = str(getattr(error, "java_exception", error))
            raise ConfigurationError(f"folder {path}: {said.partition(': ')[2] or said}") from error
        self.local: str | None = None
        """The path by which the machine's own file system knows it, if it does."""
        if self.url.startswith("file:"):
            self.local = str(self._fs.makeQualified(self._root).toUri().getPath())

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Keep other processes out that hold the same name, until the end, or until this process dies.

        Only where the machine's own file system knows the folder, and locks files: elsewhere nobody is kept out.

        :param name: of a file, which is made and stays.
        :raises ConfigurationError: somebody holds it.
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
                log.warning("%s cannot be locked (%s): see that one run at a time is under way", path, error.strerror)
            yield

    def at(self, name: str) -> str:
        """The whole path of a name."""
        return f"{self.url}/{name}"

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def is_there(self) -> bool:
        """The folder itself, or a file of its name."""
        return bool(self._fs.exists(self._root))

    def is_new(self) -> bool:
        """Nothing is there, or a folder with nothing in it."""
        if not self.is_there():
            return True
        return bool(self._fs.getFileStatus(self._root).isDirectory()) and not self._fs.listStatus(self._root)

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def names(self, below: str) -> Iterator[str]:
        """Files at any depth below a name that may not be there, each as a name of this folder."""
        if not self.exists(below):
            return
        found = self._fs.listFiles(self._path(below), True)
        while found.hasNext():
            yield str(found.next().getPath())[len(self.url) + 1 :]

    def children(self, below: str) -> list[tuple[str, float]]:
        """What lies right below a name that may not be there: names of this folder, and when each was changed, seconds since 1970."""
        if not self.exists(below):
            return []
        found = self._fs.listStatus(self._path(below))
        return [(f"{below}/{each.getPath().getName()}", each.getModificationTime() / 1000) for each in found]

    def size(self, name: str) -> int:
        """Of a file, bytes."""
        return int(self._fs.getFileStatus(self._path(name)).getLen())

    def move(self, old: str, new: str) -> None:
        """Put a file in the place of another, or where there was none.

        :raises OSError: it cannot be; if it is because the file is not there, the other one is as it was.
        """
        target = self._path(new)
        if not self.exists(old):
            raise OSError(f"{self.at(old)}, which was to become {self.at(new)}, is gone: is another run under way?")
        self._fs.mkdirs(target.getParent())
        self._fs.delete(target, False)
        if not self._fs.rename(self._path(old), target):
            raise OSError(f"{self.at(old)} cannot be moved to {self.at(new)}")

    def remove(self, name: str) -> None:
        """A file, or a folder with all that is in it, there or not."""
        self._fs.delete(self._path(name), True)

    def read(self, name: str) -> str:
        stream = self._fs.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """A file that is there whole or not at all."""
        partial = f"{name}.partial"
        stream = self._fs.create(self._path(partial), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.move(partial, name)
