"""The examples of the README and of the quick start, run as they stand against a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from qdo.client import Client
from tests.support.loaded import Program
from tests.support.servers import FIRST_KEY, RunningServer, eventually

ROOT = Path(__file__).parent.parent.parent
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


NO_WAITS: Mapping[str, str] = {}


def blocks(path: Path, language: str) -> str:
    return "\n".join(block for found, block in _FENCE.findall(path.read_text()) if found == language)


@pytest.fixture
def surroundings(shipped_server: RunningServer) -> dict[str, str]:
    """The environment that the examples ask for."""
    programs = Path(sys.executable).parent
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "QUEUEY_URL": shipped_server.url,
        "QUEUEY_KEY": FIRST_KEY,
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
    }


def run(program: list[str], text: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        program, input=text, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell(path: Path, folder: Path, environment: dict[str, str], waits: Mapping[str, str] = NO_WAITS) -> str:
    """Every line must succeed; curl fails on a refusal.

    :param waits: by the beginning of a line, what must succeed before it is typed: a person looks first.
    """
    (folder / ".curlrc").write_text("fail-with-body\n")
    script = "set -euo pipefail\n" + blocks(path, "sh")
    for line, look in waits.items():
        assert script.count(f"\n{line}") == 1
        script = script.replace(f"\n{line}", f"\nuntil {look} > looked.txt 2>&1; do sleep 0.1; done\n{line}")
    return run(["bash"], script, folder, {**environment, "CURL_HOME": str(folder)})


def python(path: Path, folder: Path, environment: dict[str, str]) -> str:
    return run([sys.executable, "-W", "error", "-"], blocks(path, "python"), folder, environment)


def test_the_tour_of_the_readme(tmp_path: Path, surroundings: dict[str, str]) -> None:
    said = shell(ROOT / "README.md", tmp_path, surroundings)

    assert "good morning" in said
    assert said.count('"two chairs"') == 2
    assert '"end"' in said
    assert '"scheduled":1' in said
    assert "not before a minute has passed" not in said


def test_the_shell_of_the_quick_start(tmp_path: Path, surroundings: dict[str, str]) -> None:
    said = shell(ROOT / "docs/quickstart.md", tmp_path, surroundings)

    for body in ("good morning", "good afternoon", "good evening", "two chairs", "a table", "a lamp"):
        assert body in said, said
    assert '"message_id"' in (tmp_path / "first.json").read_text()


def test_the_python_of_the_quick_start(tmp_path: Path, surroundings: dict[str, str]) -> None:
    said = python(ROOT / "docs/quickstart.md", tmp_path, surroundings)

    assert said.rstrip().endswith("sweep the floor")


def test_the_python_of_the_client_page(tmp_path: Path, surroundings: dict[str, str]) -> None:
    said = python(ROOT / "docs/client.md", tmp_path, surroundings)

    assert "b'a text or bytes'" in said
    assert "any bytes" in said
    assert "sweep the floor 1" in said
    assert "ring the bell" in said
    assert "not before an hour has passed" not in said


def test_the_python_of_the_outbox_page(tmp_path: Path, surroundings: dict[str, str]) -> None:
    assert python(ROOT / "docs/outbox.md", tmp_path, surroundings) == "1 sent\n"


def test_the_python_of_the_page_about_dramatiq(tmp_path: Path, surroundings: dict[str, str]) -> None:
    python(ROOT / "docs/dramatiq.md", tmp_path, surroundings)

    with Client(surroundings["QUEUEY_URL"], "demo", FIRST_KEY) as client:
        assert b"bob@example.org" not in b"".join(message.body for message in client.iterate("dramatiq-mails"))
        assert b"ann@example.org" in b"".join(message.body for message in client.iterate("dramatiq-mails"))


def test_the_page_of_those_who_come_from_celery(tmp_path: Path, surroundings: dict[str, str]) -> None:
    said = shell(ROOT / "docs/coming-from-celery.md", tmp_path, surroundings)
    path = tmp_path / "celery.txt"
    command = [str(Path(sys.executable).parent / "celery"), "-A", "mails_celery", "worker", "--pool", "solo"]
    with path.open("wb") as output:
        worker = subprocess.Popen(command, cwd=tmp_path, env=surroundings, stdout=output, stderr=subprocess.STDOUT)
        try:
            eventually(lambda: "Celery: mail to ann@example.org: hello" in path.read_text(), seconds=90)
        finally:
            worker.kill()
            worker.wait(60)

    assert said == "mail to bob@example.org: hello\n"


def test_the_workers_page(tmp_path: Path, surroundings: dict[str, str]) -> None:
    environment = {**surroundings, "QDO_STATE": str(tmp_path / "state"), "PYTHONUNBUFFERED": "1"}

    said = shell(
        ROOT / "docs/workers.md", tmp_path, environment, waits={"until qdo check": "qdo status | grep '3 workers'"}
    )

    done = re.findall(r"report (\d+)", said)  # lines of three processes at once, and those of the worker on leases
    assert sorted(map(int, done)) == sorted([*range(1, 301)] * 2)
    assert "default of demo: 3 workers, 6 partitions; lag 0 messages" in said
    assert python(ROOT / "docs/workers.md", tmp_path, environment).endswith("300 done\n")
    told = run(["qdo", "status", "--group", "reports"], "", tmp_path, environment)
    assert "reports of demo: 0 workers, 6 partitions, 6 without an owner; lag 0 messages" in told


def test_the_tasks_page(tmp_path: Path, surroundings: dict[str, str]) -> None:
    environment = {**surroundings, "PYTHONUNBUFFERED": "1"}
    page = ROOT / "docs/tasks.md"

    said = shell(page, tmp_path, environment)
    assert "mail to ann@example.org: hello" in said
    command = [sys.executable, "-m", "qdo.cli", "work", "--tasks", "shop"]
    path = tmp_path / "done.txt"
    with path.open("wb") as output, Program(command, cwd=tmp_path, env=environment, stdout=output) as worker:
        try:
            told = python(page, tmp_path, environment)
            eventually(lambda: all(f"mail to {name}@" in path.read_text() for name in ("ann", "bob", "cleo", "hans")))
        finally:
            worker.terminate()
            worker.wait(60)
    done = path.read_text()

    assert "mail to gina@example.org: hello" in told
    assert "task shop.send_mail: Expected `str`, got `int` - at `$.to`" in told
    assert told.endswith("order 7 leaves on 2026-11-26\n106\n")
    for name in ("ann", "bob", "cleo", "hans"):
        assert f"mail to {name}@example.org" in done
    for name in ("dora", "emil", "fred"):
        assert name not in done
