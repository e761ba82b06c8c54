"""One service for many users: the first starts it, and it ends with the last."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.services.cassandra import Cassandra
from tests.support.services.guard import held
from tests.support.services.service import SETTINGS, Service
from tests.support.services.zookeeper import ZooKeeper

KINDS: dict[str, type[Cassandra | ZooKeeper]] = {kind.kind: kind for kind in (Cassandra, ZooKeeper)}


def found(folder: Path) -> Cassandra | ZooKeeper | None:
    """The service that was made in this folder, by whatever process; running or not."""
    settings = remembered(folder)
    return KINDS[settings.pop("kind")](folder, **settings) if settings else None


def remembered(folder: Path) -> dict[str, Any]:
    """The settings of the service that was made in this folder; none if there is none."""
    file = folder / SETTINGS
    return dict(json.loads(file.read_text())) if file.exists() else {}


@contextmanager
def shared(folder: Path, make: Callable[[Path], Service]) -> Iterator[Service]:
    """The service in this folder, running; made by the first process that asks, ended after the last.

    Whoever shares a service leaves its nodes in peace.
    """
    with held(folder):
        with (folder / "start.lock").open("a") as one_at_a_time:
            fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
            service = found(folder) or make(folder)
            service.start()
        yield service
