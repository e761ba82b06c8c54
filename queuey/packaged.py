"""Files that are installed beside the modules: statements, the description of the API."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

__all__ = ["packaged"]


def packaged(package: str, name: str) -> bytes:
    """The bytes of a file of a package.

    :mod:`importlib.resources` would take half a megabyte of each server at rest.

    :raises OSError: there is no such file.
    """
    (folder,) = import_module(package).__path__
    return Path(folder, name).read_bytes()
