"""Each line of the documentation that installs something, typed in an environment with nothing in it."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.bare import Bare
from tests.support.packaging import build_wheel, copy_to
from tests.support.source import ROOT

pytestmark = pytest.mark.long

PLACE = re.compile(r"/path/to/queuey|/src(?=\[)")
SAYS = re.compile(r"pip install ((?:--\S+ )*'?(?:/path/to/queuey|/src)(?:\[[\w,-]+\])?'?(?: [a-z][\w-]*)*)")
WHEEL = re.compile(r"pip install 'dist/([^'\[]+)(\[[\w,-]+\])'")
ESCAPED = re.compile(r"\\(?=[\[\]])")
"""As generated pages write a bracket."""
MODULES = {
    "": "qdo.client, qdo.tasks",
    "aio": "qdo.aio",
    "arrow": "pyarrow",
    "backup": "fsspec",
    "bench": "queuey.server.run, qdo.bench.workload",
    "bench-kafka": "confluent_kafka",
    "bench-nats": "nats",
    "bench-power": "mfusepy",
    "bench-rabbitmq": "pika",
    "bench-redis": "redis",
    "bench-sqs": "boto3",
    "browserid": "queuey.server.run, cryptography",
    "cassandra": "queuey.storage.cassandra",
    "django": "django, qdo.adapters.django",
    "dramatiq": "qdo.adapters.dramatiq",
    "groups": "qdo.groups.local",
    "kombu": "qdo.adapters.kombu",
    "oidc": "queuey.server.run, jwt, cryptography",
    "outbox": "qdo.adapters.outbox.sqlalchemy",
    "server": "queuey.server.run, queuey.storage.sqlite",
    "telemetry": "opentelemetry.sdk",
    "spark": "qdo.pipeline.source, pyspark, matplotlib",
    "zookeeper": "qdo.groups.zookeeper",
}
"""What each extra is for."""


def said() -> list[str]:
    texts = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "etc").glob("*.service"),
        ROOT / "etc/Dockerfile",
    ]
    found = {line for path in texts for line in SAYS.findall(ESCAPED.sub("", path.read_text()))}
    assert len(found) > 10
    return sorted(line for line in found if "[EXTRA]" not in line)  # the head of a table


def extras_of(line: str) -> list[str]:
    named = re.search(r"\[([\w,-]+)\]", line)
    return ["", *(named[1].split(",") if named else [])]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip needs of one. It builds there."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_to(folder)
    return folder


@pytest.mark.parametrize("line", said())
def test_a_line_installs_what_it_names(line: str, checkout: Path, tmp_path: Path) -> None:
    environment = Bare(tmp_path / "env")

    environment.install(*shlex.split(PLACE.sub(str(checkout), line)))

    for extra in extras_of(line):
        subprocess.run([environment.python, "-c", f"import {MODULES[extra]}"], cwd=tmp_path, check=True)
    for program in ("queuey", "qdo"):
        subprocess.run([environment.folder / "bin" / program, "--help"], check=True, stdout=subprocess.DEVNULL)


def test_the_wheel_installs_as_the_quick_start_says(tmp_path: Path) -> None:
    ((named, extras),) = WHEEL.findall((ROOT / "docs/quickstart.md").read_text())
    (folder := tmp_path / "tree").mkdir()
    wheel, environment = build_wheel(folder), Bare(tmp_path / "env")
    assert wheel.name == named

    environment.install(f"{wheel}{extras}")

    subprocess.run([environment.python, "-c", f"import {MODULES['server']}"], cwd=tmp_path, check=True)


def test_each_extra_is_in_a_line_or_the_table_of_the_quick_start() -> None:
    table = (ROOT / "docs/quickstart.md").read_text()

    assert [extra for extra in MODULES if extra and f"`{extra}`" not in table] == []
