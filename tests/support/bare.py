"""Environments for Python with nothing in them but what a test installs.

:func:`lay_out` copies distributions from the environment of the tests, and asks no index.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["Bare", "packages_of", "with_requirements"]


class Bare:
    """An environment."""

    def __init__(self, folder: Path, interpreter: str | None = None) -> None:
        """:param interpreter: another one than that of the tests, whose pip may be too old for it: it gets its own."""
        self.folder = folder
        if interpreter is None:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
            self._pip = [sys.executable, "-m", "pip", "--python", self.python]
        else:
            subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
            self._pip = [self.python, "-m", "pip"]

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def lay_out(self, names: Iterable[str]) -> None:
        """Copy distributions as they are installed beside the tests, commands aside."""
        for name in names:
            for file in metadata.files(name) or ():
                if ".." not in file.parts:
                    target = packages_of(self.folder) / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(str(file.locate()), target)

    def install(self, *given: str, cwd: Path | None = None) -> None:
        """``pip install``."""
        pip = [*self._pip, "--disable-pip-version-check", "--quiet", "install"]
        done = subprocess.run([*pip, *given], cwd=cwd, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def size(self) -> int:
        """Bytes of all files that were installed."""
        return sum(path.stat().st_size for path in packages_of(self.folder).rglob("*") if path.is_file())


def packages_of(environment: Path) -> Path:
    (found,) = environment.glob("lib/python*/site-packages")
    return found


def with_requirements(names: Iterable[str]) -> set[str]:
    """Distributions, and what they require without an extra."""
    found: set[str] = set()
    left = [canonicalize_name(name) for name in names]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            needed = map(Requirement, metadata.requires(name) or ())
            left += [
                canonicalize_name(one.name)
                for one in needed
                if one.marker is None or one.marker.evaluate({"extra": ""})
            ]
    return found
