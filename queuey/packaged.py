"""Files that are installed beside the modules: statements, the description of the API."""

from __future__ import annotations

from pkgutil import get_data

__all__ = ["packaged"]


def packaged(package: str, name: str) -> bytes:
    """The bytes of a file of a package.

    :mod:`importlib.resources` would take half a megabyte of each server at rest.

    :raises OSError: there is no such file.
    """
    data = get_data(package, name)
    if data is None:
        raise FileNotFoundError(f"{package} was not loaded from a folder, so {name} cannot be read")
    return data
