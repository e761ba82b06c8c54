"""Other versions of Python than the one that runs the tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

__all__ = ["python"]


def python(version: str) -> str:
    """The interpreter of a version such as ``3.12``: of the path, or else the newest one of pyenv. Without one the test fails."""
    if (found := _on_the_path(version)) is not None:
        return found
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    several = sorted(versions.glob(f"{version}.*/bin/python"), key=lambda path: int(path.parts[-3].split(".")[2]))
    if not several:
        pytest.fail(
            f"this test needs Python {version}: put python{version} on the path, or type 'pyenv install {version}'",
            pytrace=False,
        )
    return str(several[-1])


def _on_the_path(version: str) -> str | None:
    """A shim of pyenv does not count: it may only say which versions there are."""
    found = shutil.which(f"python{version}")
    return None if found is None or "shims" in Path(found).parts else found
