"""Tasks of Celery over Queuey. ``python -m tests.support.kombu_tasks BROKER NOTES VISIBILITY`` is a worker.

What a task does stands in a file of notes, a line each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from celery import Celery

import qdo.adapters.kombu  # noqa: F401 -- makes queuey:// known
from tests.support import notes
from tests.support.client import Server
from tests.support.loaded import Program
from tests.support.notes import kill_group

QUEUE = "celery"
SECONDS = 90
"""For what hangs."""


class KombuTasks(NamedTuple):
    app: Any
    add: Any
    """Adds two numbers."""
    stubborn: Any
    """Fails twice; then its result is how often it was retried."""
    note: Any
    """Notes a text, and the time."""
    hold: Any
    """As :func:`tests.support.notes.hold`. It is acknowledged late."""


def broker_of(server: Server) -> str:
    """A server as Celery's users write it."""
    return f"queuey://:{server.key}@{urlsplit(server.url).netloc}/{server.application}"


def kombu_tasks(broker: str, file: Path, visibility: float = 30) -> KombuTasks:
    app = Celery(broker=broker, backend="rpc://")
    app.conf.update(
        broker_transport_options={"visibility": visibility},
        broker_connection_retry_on_startup=True,
        task_default_queue=QUEUE,
        worker_hijack_root_logger=False,
        worker_send_task_events=True,
        worker_prefetch_multiplier=2,
    )

    @app.task(name="add")  # type: ignore[untyped-decorator]
    def add(one: int, other: int) -> int:
        return one + other

    @app.task(name="stubborn", bind=True)  # type: ignore[untyped-decorator]
    def stubborn(self: Any) -> int:
        if self.request.retries < 2:
            raise self.retry(countdown=0.2)
        return int(self.request.retries)

    @app.task(name="note")  # type: ignore[untyped-decorator]
    def note(text: str) -> None:
        notes.write(file, text, time.time())

    @app.task(name="hold", acks_late=True)  # type: ignore[untyped-decorator]
    def hold(text: str) -> None:
        notes.hold(file, text)

    return KombuTasks(app, add, stubborn, note, hold)


@contextmanager
def celery_client(server: Server, folder: Path) -> Iterator[KombuTasks]:
    """The tasks, as a program sends them. Its connections end with the block."""
    tasks = kombu_tasks(broker_of(server), folder / "notes")
    try:
        yield tasks
    finally:
        if tasks.app.backend.result_consumer._consumer is not None:
            tasks.app.backend.result_consumer.stop()
        tasks.app.pool.force_close_all()


@contextmanager
def worker(server: Server, folder: Path, *, visibility: float = 30) -> Iterator[subprocess.Popen[bytes]]:
    """A worker with two processes, as an operator starts and ends it. It may be dead when the block ends."""
    said = folder / f"worker-{len(list(folder.glob('worker-*')))}.txt"
    command = [sys.executable, "-m", "tests.support.kombu_tasks", broker_of(server), str(folder / "notes")]
    with said.open("wb") as output:
        process = Program([*command, str(visibility)], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
    except BaseException:
        kill_group(process)
        raise
    if process.poll() is None:
        process.terminate()
        code = process.wait(SECONDS)
        assert code == 0, said.read_text()


if __name__ == "__main__":
    os.setpgrp()  # its processes can be killed with it
    quiet = ["--without-gossip", "--without-mingle"]
    tasks = kombu_tasks(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
    tasks.app.worker_main(["worker", "--concurrency", "2", "--loglevel", "INFO", *quiet])
