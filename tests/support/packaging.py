"""The wheel, built from a copy of what is shipped."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.source import ROOT, SHIPPED_PACKAGES

SHIPPED = (*SHIPPED_PACKAGES, "setup.cfg", "pyproject.toml", "README.md", "LICENSE")


def build_wheel(folder: Path) -> Path:
    """The wheel, built from a copy of what is shipped, in this folder."""
    for name in SHIPPED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache"))
        else:
            shutil.copy(source, folder / name)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel
