#!/usr/bin/env python3
"""Build the wheel of the client alone: ``python scripts/client_wheel.py FOLDER`` puts it into that folder.

It is the whole package without the modules of the server. It has the same name, and a version with a mark, so one takes the
place of the other.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import build_meta

ROOT = Path(__file__).parent.parent
TAKEN = ("queuey", "qdo", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
LEFT_OUT = ("api", "console", "http", "server", "service", "sqs", "storage")
"""Packages of ``queuey`` that run in a server alone."""
MARK = "\n[egg_info]\ntag_build = +client\n"


def build(folder: Path) -> Path:
    """:returns: the wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as copied:
        for name in TAKEN:
            source, target = ROOT / name, Path(copied, name)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        for name in LEFT_OUT:
            shutil.rmtree(Path(copied, "queuey", name))
        with Path(copied, "setup.cfg").open("a") as settings:
            settings.write(MARK)
        os.chdir(copied)
        made = folder / build_meta.build_wheel(str(folder))
        os.chdir(ROOT)
        return made


if __name__ == "__main__":
    print(build(Path(sys.argv[1]).resolve()))  # noqa: T201 -- the last line is for whoever built it
