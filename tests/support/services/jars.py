"""The programs: Maven copies the jars that a pom names to a folder outside of git, once.

pip does the same for programs in Python that cannot share the environment of the tests, npm for those in JavaScript, and go
builds those in Go.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.services.process import ServiceError

ROOT = Path(__file__).parents[3]
RECIPES = ROOT / "etc" / "services"
HOME = ROOT / ".services"
"""Jars, and what a developer starts by hand."""


class FetchFailed(ServiceError):
    """Programs could not be fetched."""


def jars(service: str) -> Path:
    """The folder of a service's jars; fetched if this pom was never seen before. Several processes may ask at once.

    :raises FetchFailed: with what Maven said.
    """
    return _fetched(RECIPES / service / "pom.xml", "jars", _copy_jars)


def environment(name: str) -> Path:
    """The folder of an environment for Python with the packages of a ``requirements.txt``, as :func:`jars`.

    :raises FetchFailed: with what pip said.
    """
    return _fetched(RECIPES / name / "requirements.txt", "env", _install)


def node_modules(name: str) -> Path:
    """The folder of the JavaScript packages of a ``package.json``, as :func:`jars`.

    :raises FetchFailed: with what npm said.
    """
    return _fetched(RECIPES / name / "package.json", "node", _install_modules) / "node_modules"


def go_programs(name: str) -> Path:
    """The folder of the programs that a ``go.txt`` names, built from their source, as :func:`jars`.

    :raises FetchFailed: with what go said.
    """
    return _fetched(RECIPES / name / "go.txt", "go", _build)


def _fetched(recipe: Path, kind: str, fetch: Callable[[Path, Path], None]) -> Path:
    name = f"{kind}-{recipe.parent.name}"
    folder = HOME / f"{name}-{hashlib.sha256(recipe.read_bytes()).hexdigest()[:12]}"
    HOME.mkdir(exist_ok=True)
    with (HOME / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            # All or nothing: the folder gets its name when everything is in it.
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            fetch(recipe, partial)
            partial.rename(folder)
    return folder


def _copy_jars(pom: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise FetchFailed("Maven is missing. On Debian: apt-get install maven openjdk-17-jdk-headless")
    copy = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
    _run(pom, [*copy, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"])


def _install(requirements: Path, folder: Path) -> None:
    """The scripts of an environment name its Python by its path, so only ``python -m`` survives the renaming."""
    _run(requirements, [sys.executable, "-m", "venv", "--without-pip", str(folder)])
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    _run(requirements, [*pip, "--disable-pip-version-check", "--requirement", str(requirements)])


def _install_modules(recipe: Path, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FetchFailed("npm is missing. On Debian: apt-get install nodejs npm")
    folder.mkdir()
    shutil.copy(recipe, folder)
    _run(recipe, [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts"])


def _build(recipe: Path, folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise FetchFailed("Go is missing. On Debian: apt-get install golang")
    folder.mkdir()
    _run(recipe, ["env", f"GOBIN={folder}", go, "install", *recipe.read_text().split()])


def _run(recipe: Path, command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise FetchFailed(f"{recipe}: {Path(command[0]).name} ended with {done.returncode} and said:\n{done.stdout}")
