"""Which module may import which (style, section 1), read from the imports themselves.

Two deployables talk over HTTP alone, yet share the leaves; a view cannot reach around the rules; only
``service`` sees the storage interface, so every backend can be exchanged.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.source import PACKAGES, ROOT, imports, modules

LEAVES = tuple(
    f"queuey.{name}"
    for name in (
        "_version",
        "background",
        "clock",
        "contexts",
        "errors",
        "file_limit",
        "file_system",
        "future",
        "ids",
        "interpreter",
        "locks",
        "model.",
        "moments",
        "packaged",
        "recent",
        "settings.",
        "sparing",
        "tracebacks",
        "unread",
        "visible",
        "whole_files",
    )
)
STORES = tuple(
    f"queuey.storage{name}" for name in ("", ".checksums", ".leasing.", ".observing", ".peers", ".statements", ".tasks")
)
"""What backends share. No backend imports another."""


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
    **{name.removesuffix("."): Layer(ours=LEAVES) for name in LEAVES},
    "queuey": Layer(ours=("queuey._version", "queuey.server.")),
    "queuey.wsgi": Layer(ours=("queuey", "queuey.settings")),
    "queuey.storage": Layer(ours=LEAVES, others=("google_crc32c", "orjson")),
    "queuey.storage.memory": Layer(ours=(*LEAVES, *STORES)),
    "queuey.storage.sqlite": Layer(ours=(*LEAVES, *STORES), others=("apsw", "google_crc32c")),
    "queuey.storage.cassandra": Layer(
        ours=(*LEAVES, *STORES), others=("cassandra", "google_crc32c", "greenlet", "msgspec", "uvloop")
    ),
    "queuey.storage.contract": Layer(
        ours=(*LEAVES, "queuey.storage", "queuey.storage.leasing."), others=("hypothesis", "pytest")
    ),
    "queuey.monitor": Layer(
        ours=(
            "queuey._version",
            "queuey.background",
            "queuey.errors",
            "queuey.future",
            "queuey.locks",
            "queuey.model.trace_context",
            "queuey.tracebacks",
            "queuey.visible",
        ),
        others=("opentelemetry", "orjson", "prometheus_client"),
    ),
    "queuey.service": Layer(
        ours=(
            *LEAVES,
            "queuey.storage",
            "queuey.storage.opening",
            "queuey.security.",
            "queuey.monitor.",
            "queuey.http.admission",
        ),
        others=("google_crc32c",),
        not_standard=("asyncio",),
    ),
    "queuey.security": Layer(ours=LEAVES, others=("cryptography", "jwt"), not_standard=("asyncio",)),
    "queuey.http": Layer(
        ours=(
            *LEAVES,
            "queuey.monitor.metrics",
            "queuey.monitor.notable",
            "queuey.monitor.telemetry",
            "queuey.service.",
            "queuey.security.",
        ),
        others=("orjson",),
        not_standard=("asyncio", "threading"),
    ),
    "queuey.api": Layer(
        ours=(
            *LEAVES,
            "queuey.monitor.history",
            "queuey.monitor.loading",
            "queuey.monitor.metrics",
            "queuey.monitor.notable",
            "queuey.service.",
            "queuey.security.",
            "queuey.http.",
        ),
        others=("google_crc32c", "msgspec", "multipart", "numpy", "orjson", "pyarrow"),
        not_standard=("asyncio", "threading"),
    ),
    "queuey.sqs": Layer(
        ours=(*LEAVES, "queuey.monitor.", "queuey.service.", "queuey.security.", "queuey.http."),
        others=("orjson",),
        not_standard=("asyncio", "threading"),
    ),
    "queuey.console": Layer(
        ours=(*LEAVES, "queuey.monitor.", "queuey.service.", "queuey.security.", "queuey.http."),
        others=("jinja2", "markupsafe", "orjson", "pyramid"),
        not_standard=("asyncio", "threading"),
    ),
    "queuey.server": Layer(
        ours=(
            *LEAVES,
            "queuey.monitor.",
            "queuey.service.",
            "queuey.security.",
            "queuey.http.",
            "queuey.api.",
            "queuey.console.calls",
            "queuey.console.face",
            "queuey.sqs.calls",
            "queuey.sqs.face",
        ),
        others=("httptools", "orjson", "pyramid", "uvloop", "webob"),
    ),
    # What both command lines have in common: one look, one set of exit codes.
    "queuey.terminal": Layer(ours=(*LEAVES, "qdo.client", "queuey.monitor.logs"), others=("apsw", "click")),
    "queuey.cli": Layer(
        ours=(
            *LEAVES,
            "queuey.terminal.",
            "queuey.service.",
            "queuey.security.",
            "queuey.storage.",
            "queuey.server.",
            "qdo.bench.",
            "qdo.client",
            "qdo.client.surroundings",
            "qdo.client.wire",
            "qdo.groups.subscription",
            "qdo.groups.assign",
            "qdo.groups.coordination",
            "qdo.groups.lag",
            "qdo.tasks.schedules",
        ),
        others=("apsw", "click", "fsspec"),
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
    # The load harness speaks to servers over networks, as any client does.
    "qdo.bench": Layer(
        ours=(*LEAVES, "qdo.client."),
        others=(
            "boto3",
            "botocore",
            "confluent_kafka",
            "mfusepy",
            "msgspec",
            "nats",
            "pika",
            "pyspark",
            "redis",
            "requests",
            "simpy",
            "yaml",
        ),
    ),
    "examples.web": Layer(
        ours=("qdo", "qdo.aio", "qdo.adapters.django.", "qdo.adapters.outbox.sqlalchemy"),
        others=("django", "django_tasks", "fastapi", "flask", "pydantic", "sqlalchemy"),
    ),
    # The client side: client < groups < worker < compat, tasks, pipeline < cli.
    "qdo": Layer(ours=(*LEAVES, "qdo.client", "qdo.worker.", "qdo.tasks")),
    "qdo.measure": Layer(),
    "qdo.client": Layer(
        ours=LEAVES, others=("opentelemetry", "pyarrow", "requests", "urllib3"), not_standard=("asyncio",)
    ),
    "qdo.aio": Layer(ours=(*LEAVES, "qdo.client."), others=("aiohttp", "requests", "yarl")),
    "qdo.groups": Layer(ours=(*LEAVES, "qdo.client."), others=("apsw", "kazoo")),
    "qdo.worker": Layer(
        ours=(*LEAVES, "qdo.client.", "qdo.groups.", "queuey.monitor."), others=("opentelemetry", "prometheus_client")
    ),
    "qdo.tasks": Layer(ours=(*LEAVES, "qdo.client.", "qdo.groups.", "qdo.worker."), others=("cronsim", "msgspec")),
    # Beneath other people's frameworks.
    "qdo.adapters": Layer(ours=(*LEAVES, "qdo.client.")),
    "qdo.adapters.kombu": Layer(
        ours=(*LEAVES, "qdo.client.", "qdo.adapters.clients", "qdo.adapters.settling"), others=("kombu",)
    ),
    "qdo.adapters.dramatiq": Layer(
        ours=(*LEAVES, "qdo.client.", "qdo.adapters.clients", "qdo.adapters.settling"), others=("dramatiq",)
    ),
    "qdo.adapters.outbox": Layer(
        ours=(*LEAVES, "qdo.client.", "qdo.adapters.stopping", "qdo.groups.waking"), others=("click", "sqlalchemy")
    ),
    "qdo.adapters.django": Layer(
        ours=(
            *LEAVES,
            "qdo.client.",
            "qdo.worker.",
            "qdo.adapters.clients",
            "qdo.adapters.outbox.",
            "qdo.adapters.stopping",
        ),
        others=("django", "django_tasks"),
    ),
    "qdo.compat": Layer(
        ours=(
            *LEAVES,
            "qdo.client.",
            "qdo.groups.",
            "qdo.worker.",
            "queuey.monitor.logs",
            "queuey.terminal.",
        ),
        others=("click",),
    ),
    # What runs in Spark's tasks, and the jobs on it.
    "qdo.pipeline": Layer(
        ours=(*LEAVES, "qdo.client.", "qdo.groups.names", "queuey.monitor.declared", "queuey.monitor.exposition"),
        others=("numpy", "pyarrow", "pyspark", "requests"),
    ),
    "qdo.pipeline.jobs": Layer(
        ours=(*LEAVES, "qdo.client.", "qdo.groups.dead_letter_names", "qdo.measure", "qdo.pipeline."),
        others=("matplotlib", "numpy", "pyarrow", "pyspark"),
    ),
    "qdo.cli": Layer(
        ours=(
            *LEAVES,
            "qdo.client.",
            "qdo.groups.",
            "qdo.worker.",
            "qdo.compat.",
            "qdo.pipeline.",
            "qdo.tasks.",
            "queuey.monitor.logs",
            "queuey.monitor.telemetry",
            "queuey.terminal.",
        ),
        others=("click",),
    ),
    # Spark looks for this name by itself.
    "pyspark_queuey": Layer(ours=("qdo.pipeline.",)),
}


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
        ("queuey/model/__init__.py", "import queuey.service", "queuey.model imports queuey.service"),
        ("queuey/api/read.py", "from queuey.storage import MessageStore", "queuey.api.read imports queuey.storage"),
        ("queuey/api/read.py", "import asyncio", "queuey.api.read imports asyncio"),
        ("queuey/sqs/face.py", "import queuey.api", "queuey.sqs.face imports queuey.api"),
        ("queuey/api/read.py", "from webob import Request", "queuey.api.read imports webob"),
        (
            "queuey/service/log.py",
            "from queuey.storage import sqlite",
            "queuey.service.log imports queuey.storage.sqlite",
        ),
        ("queuey/service/log.py", "def f():\n    import queuey.api", "queuey.service.log imports queuey.api"),
        ("queuey/server/loop.py", "import queuey.storage", "queuey.server.loop imports queuey.storage"),
        (
            "queuey/storage/memory/rows.py",
            "from ...service import log",
            "queuey.storage.memory.rows imports queuey.service.log",
        ),
        ("queuey/security/app_keys.py", "import pyramid", "queuey.security.app_keys imports pyramid"),
        ("queuey/server/loop.py", "import qdo.client", "queuey.server.loop imports qdo.client"),
        ("qdo/client/__init__.py", "import queuey.service", "qdo.client imports queuey.service"),
        ("qdo/client/__init__.py", "import pyramid", "qdo.client imports pyramid"),
        ("qdo/worker/__init__.py", "import click", "qdo.worker imports click"),
        ("qdo/worker/work.py", "import qdo.tasks.wire", "qdo.worker.work imports qdo.tasks.wire"),
        ("qdo/client/wire.py", "import qdo.groups.assign", "qdo.client.wire imports qdo.groups.assign"),
        ("qdo/adapters/dramatiq.py", "import qdo.adapters.kombu", "qdo.adapters.dramatiq imports qdo.adapters.kombu"),
        ("qdo/worker/slots.py", "import qdo.adapters.kombu", "qdo.worker.slots imports qdo.adapters.kombu"),
        ("qdo/groups/view.py", "from qdo.worker import job", "qdo.groups.view imports qdo.worker"),
        ("qdo/worker/slots.py", "def f():\n    import qdo.compat.cli", "qdo.worker.slots imports qdo.compat.cli"),
        ("qdo/pipeline/rows.py", "import qdo.cli.work", "qdo.pipeline.rows imports qdo.cli.work"),
        ("qdo/cli/work.py", "from queuey.cli.serve import announce", "qdo.cli.work imports queuey.cli.serve"),
        ("examples/app.py", "from qdo.client.transport import Transport", "examples.app imports qdo.client.transport"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, path: str, line: str, said: str) -> None:
    for package in ("storage", "storage/sqlite", "service"):
        (tmp_path / "queuey" / package).mkdir(parents=True)
        (tmp_path / "queuey" / package / "__init__.py").touch()
    (tmp_path / "queuey/service/log.py").touch()
    planted = tmp_path / path
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(f"{line}\n")

    assert violations(tmp_path) == [said]


def test_what_the_layers_allow_passes(tmp_path: Path) -> None:
    fine = {
        "queuey/ids.py": "import uuid",
        "queuey/service/log.py": "from queuey.storage import MessageStore\nfrom queuey.ids import MessageId",
        "queuey/storage/__init__.py": "from queuey.future import Future",
        "queuey/storage/sqlite/__init__.py": "import apsw\nfrom queuey.storage import MessageStore",
        "queuey/service/__init__.py": "def open():\n    from queuey.storage.opening import open_stores",
        "queuey/server/run.py": "import uvloop\nfrom queuey.server.loop import LoopServer",
        "queuey/cli/messages.py": "import click\nfrom qdo.client import Client",
        "qdo/client/__init__.py": "import requests\nfrom queuey.errors import QueueyError",
    }
    for path, text in fine.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    assert violations(tmp_path) == []
