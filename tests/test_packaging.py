"""What is shipped: everything that runs needs, and nothing that only tests need."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from queuey._version import __version__
from queuey.terminal.commands import OF_THE_SERVER
from tests.support.packaging import build_sdist, build_wheel, names, setup_cfg
from tests.support.source import ROOT, SHIPPED_PACKAGES, imports, modules


@pytest.fixture(scope="module")
def config() -> configparser.RawConfigParser:
    return setup_cfg()


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """Other people's modules that the packages import, the suite for stores aside: the distributions they come from."""
    found = {
        target.partition(".")[0]
        for module, path in modules(packages=SHIPPED_PACKAGES)
        if not module.startswith("queuey.storage.contract")
        for target in imports(module, path, frozenset())
    }
    known = packages_distributions()
    theirs = found - set(sys.stdlib_module_names) - set(SHIPPED_PACKAGES)
    return {module: {name.lower().replace("_", "-") for name in known.get(module, [module])} for module in theirs}


def test_every_import_is_a_dependency(config: configparser.RawConfigParser, imported: dict[str, set[str]]) -> None:
    declared = names(config["options"]["install_requires"])
    for extra in set(config["options.extras_require"]) - {"dev", "docs"}:
        declared |= names(config["options.extras_require"][extra])

    assert {module for module, found in imported.items() if not found & declared} == set()


def test_every_dependency_is_imported(config: configparser.RawConfigParser, imported: dict[str, set[str]]) -> None:
    used = set().union(*imported.values())
    needed = names(config["options"]["install_requires"]) | names(config["options.extras_require"]["server"])

    # Two are Pyramid's, in versions that it works with; one is data, which zoneinfo of the standard library finds.
    assert needed - used == {"setuptools", "tzdata", "webob"}


def test_a_command_knows_what_belongs_to_the_server(
    config: configparser.RawConfigParser, imported: dict[str, set[str]]
) -> None:
    of_the_server = names(config["options.extras_require"]["server"])

    assert {module for module, found in imported.items() if found & of_the_server} == OF_THE_SERVER


def test_every_extra_that_a_text_installs_exists(config: configparser.RawConfigParser) -> None:
    """pip only warns of one that does not."""
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "etc").rglob("*")]
    sources = [path for _, path in modules(packages=SHIPPED_PACKAGES)]
    named = {
        extra
        for path in (*texts, *sources)
        if path.is_file()
        for found in re.findall(r"install[^\n]*?(?:queuey|/src)\[([\w,-]+)\]", path.read_text())
        for extra in found.split(",")
    }

    named.discard("EXTRA")  # the head of a table
    assert "server" in named
    assert named <= set(config["options.extras_require"])


def test_dependencies_are_ranges(config: configparser.RawConfigParser) -> None:
    lists = [config["options"]["install_requires"], *config["options.extras_require"].values()]

    assert [line for text in lists for line in text.splitlines() if "==" in line] == []


def test_the_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)

    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())

    assert wheel.name.startswith(f"queuey-{__version__}-")
    wanted = {str(path.relative_to(tmp_path)) for name in ("queuey", "qdo") for path in (tmp_path / name).rglob("*.*")}
    assert wanted - held == set()
    assert {"queuey/storage/sqlite/statements.sql", "queuey/api/openapi.json", "queuey/py.typed"} <= held


def test_the_source_archive_holds_what_makes_test_and_documentation(tmp_path: Path) -> None:
    """In whose folder the wheel of ``make dist`` is built."""
    with tarfile.open(build_sdist(tmp_path)) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}

    wanted = {
        "docs/changelog.md",
        "docs/images",
        "examples/web/flask_shop.py",
        "etc/queuey.service",
        "tests/conftest.py",
    }
    wanted |= {"clients/javascript/queuey.js", "scripts/env.sh", "Makefile", "tox.ini", "qdo/client/__init__.py"}
    assert wanted - held == set()
    assert [name for name in held if name.endswith(".pyc") or ".services" in name] == []


class TestNeed:
    """``scripts/need.sh``, which installs what is missing or says so."""

    @staticmethod
    def need(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """As a user that is not root."""
        identity = folder / "id"
        identity.write_text("#!/bin/sh\necho 1000\n")
        identity.chmod(0o755)
        environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        return subprocess.run(
            ["sh", str(ROOT / "scripts/need.sh"), program], env=environment, capture_output=True, text=True, check=False
        )

    def test_what_is_there_is_not_mentioned(self, tmp_path: Path) -> None:
        done = self.need("sh", tmp_path)

        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def test_what_is_missing_gets_a_sentence(self, tmp_path: Path) -> None:
        done = self.need("no-such-program", tmp_path)

        assert done.returncode == 1
        assert done.stderr == "Missing: no-such-program. Install it as root first: apt-get install no-such-program\n"


def test_no_text_tells_to_install_by_name() -> None:
    """On the public index these names are still those of 2012."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    told = [
        path.relative_to(ROOT).as_posix()
        for path in [*pages, *(path for _, path in modules())]
        if re.search(r"pip install ['\"]?(queuey|qdo)\b", path.read_text())
    ]
    assert told == []
