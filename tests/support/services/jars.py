"""The programs: Maven copies the jars that a pom names to a folder outside of git, once."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.support.services.process import ServiceError

ROOT = Path(__file__).parents[3]
RECIPES = ROOT / "etc" / "services"
HOME = ROOT / ".services"
"""Jars, and what a developer starts by hand."""


class MavenFailed(ServiceError):
    """The jars could not be fetched."""


def jars(service: str) -> Path:
    """The folder of a service's jars; fetched if this pom was never seen before. Several processes may ask at once.

    :raises MavenFailed: with what Maven said.
    """
    pom = RECIPES / service / "pom.xml"
    folder = HOME / f"jars-{service}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    HOME.mkdir(exist_ok=True)
    with (HOME / f"jars-{service}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(pom, folder)
    return folder


def _fetch(pom: Path, folder: Path) -> None:
    """All or nothing: the folder gets its name when everything is in it."""
    maven = shutil.which("mvn")
    if maven is None:
        raise MavenFailed("Maven is missing. On Debian: apt-get install maven openjdk-17-jdk-headless")
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    copy = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
    done = subprocess.run(
        [*copy, "-DincludeScope=runtime", f"-DoutputDirectory={partial}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MavenFailed(f"{pom}: Maven ended with {done.returncode} and said:\n{done.stdout}")
    partial.rename(folder)
