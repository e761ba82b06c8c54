"""Who may import whom (style, section 1), read from the imports themselves.

Two deployables talk over HTTP alone, yet share the leaves; a view cannot reach around the rules; only
``service`` sees the storage interface, so every backend can be exchanged.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHIPPED_PACKAGES = ("queuey", "qdo", "pyspark_queuey")
PACKAGES = (*SHIPPED_PACKAGES, "examples")
LEAVES = tuple(
    f"queuey.{name}"
    for name in (
        "errors",
        "ids",
        "clock",
        "file_system",
        "ini",
        "issuers",
        "locks",
        "model",
        "old_ini",
        "promise",
        "setting",
        "settings",
        "tracebacks",
    )
)


@dataclass(frozen=True)
class Layer:
    """What the modules under one prefix may import besides the standard library and each other."""

    ours: tuple[str, ...] = ()
    """Modules of the project; a trailing dot allows what lies under a package as well."""
    others: tuple[str, ...] = ()
    """Distributions' top-level modules."""
    not_standard: tuple[str, ...] = ()
    """Modules of the standard library that have no place here."""


LAYERS = {
    **dict.fromkeys(LEAVES, Layer(ours=LEAVES)),
    "queuey": Layer(ours=("queuey.doors.",)),
    "queuey.wsgi": Layer(ours=("queuey", "queuey.settings")),
    "queuey.storage": Layer(ours=LEAVES, others=("apsw", "cassandra", "google_crc32c")),
    "queuey.storage.contract": Layer(ours=(*LEAVES, "queuey.storage"), others=("hypothesis", "pytest")),
    "queuey.logs": Layer(ours=("queuey.tracebacks",), others=("orjson",)),
    "queuey.monitor": Layer(ours=("queuey", "queuey.locks"), others=("prometheus_client",)),
    "queuey.service": Layer(
        ours=(*LEAVES, "queuey.storage", "queuey.storage.open", "queuey.security.", "queuey.monitor"),
        others=("google_crc32c",),
        not_standard=("asyncio",),
    ),
    "queuey.security": Layer(ours=LEAVES, others=("cryptography", "jwt", "urllib3"), not_standard=("asyncio",)),
    "queuey.api": Layer(
        ours=(*LEAVES, "queuey", "queuey.service.", "queuey.security."),
        others=("google_crc32c", "multipart", "numpy", "orjson", "pyarrow"),
        not_standard=("asyncio", "threading"),
    ),
    "queuey.doors": Layer(
        ours=(*LEAVES, "queuey", "queuey.logs", "queuey.service.", "queuey.security.", "queuey.api."),
        others=("httptools", "orjson", "pyramid", "uvloop", "webob"),
    ),
    "queuey.cli": Layer(
        ours=(
            *LEAVES,
            "queuey",
            "queuey.service.",
            "queuey.security.",
            "queuey.storage.",
            "queuey.doors.",
            "qdo.client",
        ),
        others=("apsw", "click"),
    ),
    # What an application would use, and the issuer that only examples have.
    "examples": Layer(
        ours=(
            "qdo",
            "qdo.client",
            "qdo.pipeline.",
            *LEAVES,
            "queuey.security.dev_issuer",
            "queuey.security.principals",
        ),
        others=("click", "pyarrow", "pyspark"),
    ),
    "qdo.metrics": Layer(ours=(*LEAVES, "qdo."), others=("prometheus_client",)),
    # What both command lines have in common lies in queuey.cli: one look, one set of exit codes.
    "qdo.cli": Layer(
        ours=(
            *LEAVES,
            "qdo.",
            "queuey",
            "queuey.logs",
            "queuey.cli.commands",
            "queuey.cli.options",
            "queuey.cli.output",
            "queuey.cli.times",
        ),
        others=("click",),
    ),
    "qdo": Layer(ours=LEAVES, others=("apsw", "kazoo", "pyarrow", "requests", "urllib3")),
    # What runs in Spark's tasks, and the jobs on it.
    "qdo.pipeline": Layer(ours=(*LEAVES, "qdo."), others=("numpy", "pyarrow", "pyspark", "requests", "urllib3")),
    "qdo.pipeline.jobs": Layer(
        ours=(*LEAVES, "qdo."), others=("matplotlib", "numpy", "pyarrow", "pyspark", "requests", "urllib3")
    ),
    # Spark looks for this name by itself.
    "pyspark_queuey": Layer(ours=("qdo.pipeline.",)),
}


def name_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path = ROOT, packages: Sequence[str] = PACKAGES) -> Iterator[tuple[str, Path]]:
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            yield name_of(path, root), path


def imports(module: str, path: Path, known: frozenset[str]) -> Iterator[str]:
    """Every module that is imported, anywhere in the file; a name taken from a package may be a module itself."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                yield deeper if deeper in known else base


def layer_of(module: str) -> str:
    """The longest prefix in the table."""
    return max((prefix for prefix in LAYERS if f"{module}.".startswith(f"{prefix}.")), key=len)


def allowed(module: str, target: str) -> bool:
    prefix = layer_of(module)
    layer = LAYERS[prefix]
    top = target.partition(".")[0]
    if top in PACKAGES:
        inside = prefix not in ("queuey", *LEAVES) and f"{target}.".startswith(f"{prefix}.")
        beside = target in layer.ours or any(f"{target}.".startswith(ours) for ours in layer.ours if ours.endswith("."))
        return inside or beside
    return top in layer.others or (top in sys.stdlib_module_names and top not in layer.not_standard)


def violations(root: Path = ROOT) -> list[str]:
    found = list(modules(root))
    known = frozenset(module for module, _ in found)
    return [
        f"{module} imports {target}"
        for module, path in found
        for target in sorted(set(imports(module, path, known)))
        if not allowed(module, target)
    ]


def test_no_module_imports_what_its_layer_may_not() -> None:
    assert violations() == []


def test_every_module_stands_in_a_layer() -> None:
    only_itself = {"queuey", "queuey.wsgi", *LEAVES}

    strays = [module for module, _ in modules() if layer_of(module) == "queuey" and module not in only_itself]

    assert strays == []


@pytest.mark.parametrize(
    ("path", "line", "said"),
    [
        ("queuey/ids.py", "import orjson", "queuey.ids imports orjson"),
        ("queuey/model.py", "import queuey.service", "queuey.model imports queuey.service"),
        ("queuey/api/read.py", "from queuey.storage import MessageStore", "queuey.api.read imports queuey.storage"),
        ("queuey/api/read.py", "import asyncio", "queuey.api.read imports asyncio"),
        ("queuey/api/read.py", "from webob import Request", "queuey.api.read imports webob"),
        (
            "queuey/service/log.py",
            "from queuey.storage import sqlite",
            "queuey.service.log imports queuey.storage.sqlite",
        ),
        ("queuey/service/log.py", "def f():\n    import queuey.api", "queuey.service.log imports queuey.api"),
        ("queuey/doors/loop.py", "import queuey.storage", "queuey.doors.loop imports queuey.storage"),
        ("queuey/storage/memory.py", "from ..service import log", "queuey.storage.memory imports queuey.service.log"),
        ("queuey/security/app_keys.py", "import pyramid", "queuey.security.app_keys imports pyramid"),
        ("queuey/doors/loop.py", "import qdo.client", "queuey.doors.loop imports qdo.client"),
        ("qdo/client.py", "import queuey.service", "qdo.client imports queuey.service"),
        ("qdo/client.py", "import pyramid", "qdo.client imports pyramid"),
        ("qdo/worker.py", "import click", "qdo.worker imports click"),
        ("qdo/cli/work.py", "from queuey.cli.serve import announce", "qdo.cli.work imports queuey.cli.serve"),
        ("examples/app.py", "from qdo.transport import Transport", "examples.app imports qdo.transport"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, path: str, line: str, said: str) -> None:
    for package in ("storage", "service"):
        (tmp_path / "queuey" / package).mkdir(parents=True)
        (tmp_path / "queuey" / package / "__init__.py").touch()
    (tmp_path / "queuey/storage/sqlite.py").touch()
    (tmp_path / "queuey/service/log.py").touch()
    planted = tmp_path / path
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(f"{line}\n")

    assert violations(tmp_path) == [said]


def test_what_the_layers_allow_passes(tmp_path: Path) -> None:
    fine = {
        "queuey/ids.py": "import uuid",
        "queuey/service/log.py": "from queuey.storage import MessageStore\nfrom queuey.ids import MessageId",
        "queuey/storage/__init__.py": "from queuey.promise import Promise",
        "queuey/storage/sqlite.py": "import apsw\nfrom queuey.storage import MessageStore",
        "queuey/service/__init__.py": "def open():\n    from queuey.storage.open import open_stores",
        "queuey/doors/server.py": "import uvloop\nfrom queuey.doors.loop import LoopDoor",
        "queuey/cli/messages.py": "import click\nfrom qdo.client import Client",
        "qdo/client.py": "import requests\nfrom queuey.errors import QueueyError",
    }
    for path, text in fine.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    assert violations(tmp_path) == []
