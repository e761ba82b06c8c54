"""Celery over kombu's transport for SQS, as they are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.celery_tasks import QUEUE, Tasks, broker_of, tasks
from tests.support.servers import eventually
from tests.support.sqs_clients import SqsServer, sqs_client

SECONDS = 60
"""For what hangs."""


@contextmanager
def working(sqs: SqsServer, folder: Path) -> Iterator[Tasks]:
    """A worker with two processes. It ends as an operator ends it: what it has begun it finishes."""
    broker, results = broker_of(sqs.url, sqs.keys["queuey"]), folder / "results"
    results.mkdir()
    command = [sys.executable, "-m", "tests.support.celery_tasks", broker, str(results)]
    with (folder / "worker.txt").open("wb") as said:
        worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=dict(os.environ))
    try:
        yield tasks(broker, results)
    finally:
        worker.terminate()
        code = worker.wait(SECONDS)
    assert code == 0, (folder / "worker.txt").read_text()


def counts(sqs: SqsServer) -> list[str]:
    client = sqs_client(sqs.url, sqs.keys["queuey"])
    url = client.get_queue_url(QueueName=QUEUE)["QueueUrl"]
    names = ["", "Delayed", "NotVisible"]
    found = client.get_queue_attributes(
        QueueUrl=url, AttributeNames=[f"ApproximateNumberOfMessages{name}" for name in names]
    )
    return list(found["Attributes"].values())


def test_celery_runs_tasks_repeats_them_and_waits_with_them(sqs: SqsServer, tmp_path: Path) -> None:
    with working(sqs, tmp_path) as task:
        sums = [task.add.delay(number, 1) for number in range(20)]
        stubborn = task.stubborn.delay()
        due = datetime.now(UTC) + timedelta(seconds=1)
        late = task.clock.apply_async(eta=due)
        assert [one.get(timeout=SECONDS) for one in sums] == list(range(1, 21))
        assert stubborn.get(timeout=SECONDS) == 2
        assert late.get(timeout=SECONDS) >= due.timestamp()
        eventually(lambda: counts(sqs) == ["0", "0", "0"], seconds=SECONDS)
