"""What ``setup.cfg`` says, and what is built by it, from a copy of the tree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from configparser import RawConfigParser
from pathlib import Path

from tests.support.source import ROOT, SHIPPED_PACKAGES

SHIPPED = (*SHIPPED_PACKAGES, "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
BESIDE = ("MANIFEST.in", "Makefile", "tox.ini", "clients", "docs", "etc", "examples", "scripts", "tests")
"""What the source archive has besides."""


def setup_cfg() -> RawConfigParser:
    parser = RawConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def names(requirements: str) -> set[str]:
    """Distributions that a list in setup.cfg names."""
    lines = [line.strip() for line in requirements.splitlines()]
    return {re.split(r"[^\w.-]", line)[0].lower() for line in lines if line and not line.startswith("#")}


def build_wheel(folder: Path) -> Path:
    """The wheel, built from a copy of what is shipped, in this folder."""
    return _built("wheel", folder, SHIPPED)


def build_sdist(folder: Path) -> Path:
    """The source archive, built from a copy in this folder."""
    return _built("sdist", folder, (*SHIPPED, *BESIDE))


def build_client_wheel(folder: Path) -> Path:
    """The wheel of the client alone, as ``make dist`` builds it."""
    build = [sys.executable, str(ROOT / "scripts/client_wheel.py"), str(folder)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


def copy_to(folder: Path, copied: Iterable[str] = SHIPPED) -> None:
    """Copy files and folders of the tree, as they are in a clone."""
    for name in copied:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
        else:
            shutil.copy(source, folder / name)


def _built(kind: str, folder: Path, copied: Iterable[str]) -> Path:
    copy_to(folder, copied)
    build = f"from setuptools import build_meta; build_meta.build_{kind}('dist')"
    done = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = (folder / "dist").iterdir()
    return built
