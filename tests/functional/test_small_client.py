"""The client alone, in an environment with nothing else: small, and everything of it works."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from queuey._version import __version__
from tests.support.bare import Bare, with_requirements
from tests.support.client import Server
from tests.support.packaging import build_client_wheel, names, setup_cfg
from tests.support.servers import RunningServer

MOST_BYTES = 15_000_000
TASKS = """
from qdo import task


@task(queue="small", results=True)
def double(number: int) -> int:
    return 2 * number
"""
SEND = """
from qdo import Client
from shop import double

result = double.send(21)
with Client() as client:
    print(client.queue_info("small").depth)
"""


VERSION = "from importlib.metadata import version; print(version('queuey'))"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """The wheel and what it requires. pip finds all of it there, or it fails."""
    environment = Bare(tmp_path_factory.mktemp("small"))
    environment.lay_out(with_requirements(names(setup_cfg()["options"]["install_requires"])))
    environment.install("--no-index", str(build_client_wheel(tmp_path_factory.mktemp("wheel"))))
    return environment


class EmptyFolder:
    """An empty folder, where somebody types commands of that environment."""

    def __init__(self, folder: Path, environment: Bare, server: Server) -> None:
        self.folder = folder
        named = {"QUEUEY_URL": server.url, "QUEUEY_APPLICATION": server.application, "QUEUEY_KEY": server.key or ""}
        path = f"{environment.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self._variables = {**named, "PATH": path, "HOME": str(folder), "LANG": "C.UTF-8"}

    def type(self, *command: str, code: int = 0) -> str:
        """What a command says on its standard output, or on both if it is to fail."""
        done = subprocess.run(
            command, cwd=self.folder, env=self._variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + (done.stderr if code else "")


@pytest.fixture
def place(small: Bare, application: Server, tmp_path: Path) -> EmptyFolder:
    return EmptyFolder(tmp_path, small, application)


def test_the_client_is_small_and_brings_no_server(
    small: Bare, shipped_server: RunningServer, place: EmptyFolder
) -> None:
    assert small.size < MOST_BYTES, f"{small.size / 1e6:.1f} MB"
    assert f"{__version__}+client" in place.type("python", "-c", VERSION)
    assert "the client alone" in place.type("queuey", "version", "-o", "table")
    place.type("python", "-c", "import qdo, qdo.client, qdo.tasks, qdo.worker, qdo.adapters.outbox.relay")
    for command in ("serve", "verify", "key ls"):
        refused = place.type("queuey", *command.split(), code=2)
        assert "here is only the client, and this needs the server" in refused
        assert "pip install '/path/to/queuey[server]'" in refused
    assert "queuey[aio]" in place.type("python", "-c", "import qdo.aio", code=1)
    assert "queuey[groups]" in place.type("qdo", "work", "os.path:join", "--queue", "small", code=2)


def test_tasks_and_commands_work_with_the_client_alone(place: EmptyFolder, application: Server) -> None:
    (place.folder / "shop.py").write_text(TASKS)
    assert place.type("python", "-c", SEND).split() == ["1"]

    place.type("qdo", "work", "--tasks", "shop", "--exit-at-end", "--metrics", "127.0.0.1:0")

    assert place.type("queuey", "get", "small-results", "--format", "{body}") == "42\n"
    place.type("queuey", "put", "small-results", "by hand")
    assert "by hand" in place.type("queuey", "get", "small-results", "-o", "jsonl")
    assert "small-results" in place.type("queuey", "queue", "ls")
    assert "small" in place.type("qdo", "status", "--lease", "--queue", "small")


def test_with_aiohttp_it_has_the_client_for_asyncio(small: Bare, place: EmptyFolder) -> None:
    small.lay_out(with_requirements(["aiohttp", "yarl"]))

    place.type("python", "-c", "import qdo.aio")
