"""Tasks of Celery over a queue of SQS. ``python -m tests.support.celery_tasks BROKER RESULTS`` is a worker."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from botocore.credentials import Credentials
from celery import Celery

from tests.support.sqs_clients import REGION

QUEUE = "celery"
RETRY_SECONDS = 0.2


class Tasks(NamedTuple):
    app: Any
    add: Any
    """Adds two numbers."""
    stubborn: Any
    """Fails twice; then its result is how often it was retried."""
    clock: Any
    """The time at which it runs, in seconds since 1970."""


def broker_of(url: str, key: Credentials) -> str:
    """A server as Celery's users write it."""
    return f"sqs://{key.access_key}:{key.secret_key}@{url.removeprefix('http://')}"


def tasks(broker: str, results: Path) -> Tasks:
    """:param results: the folder of what tasks return."""
    app = Celery(broker=broker)
    app.conf.update(
        broker_transport_options={"region": REGION, "is_secure": False, "wait_time_seconds": 1},
        result_backend=f"file://{results}",
        task_default_queue=QUEUE,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
    )

    @app.task(name="add")  # type: ignore[untyped-decorator]
    def add(one: int, other: int) -> int:
        return one + other

    @app.task(name="stubborn", bind=True)  # type: ignore[untyped-decorator]
    def stubborn(self: Any) -> int:
        if self.request.retries < 2:
            raise self.retry(countdown=RETRY_SECONDS)
        return int(self.request.retries)

    @app.task(name="clock", acks_late=True)  # type: ignore[untyped-decorator]
    def clock() -> float:
        return time.time()

    return Tasks(app, add, stubborn, clock)


if __name__ == "__main__":
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    tasks(sys.argv[1], Path(sys.argv[2])).app.worker_main(["worker", "--concurrency", "2", *quiet])
