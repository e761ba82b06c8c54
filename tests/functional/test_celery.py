"""Celery over Queuey's own transport: a worker with its processes, remote control, events, and kill -9."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from qdo.adapters.clients import is_done
from qdo.client import Client, Delivery
from tests.support.client import Server
from tests.support.kombu_tasks import QUEUE, SECONDS, KombuTasks, celery_client, worker
from tests.support.notes import go, kill_group, lines
from tests.support.servers import RunningServer, eventually

GROUP = "kombu"
VISIBILITY = 8
"""Seconds. A worker on a busy machine must not lose its leases."""


@pytest.fixture
def server(shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[Server]:
    """An application without queues."""
    with Server(shipped_server, next_fresh()) as found:
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, server.application, server.key) as found:
        yield found


def done(client: Client) -> bool:
    """Nothing waits, is scheduled or leased."""
    return is_done(client, QUEUE, GROUP)


def events_of(tasks: KombuTasks, wanted: set[str], found: Counter[str], listening: threading.Event) -> None:
    """Count events until these kinds were seen."""
    with tasks.app.connection() as connection:

        def count(event: dict[str, Any]) -> None:
            found[event["type"]] += 1
            receiver.should_stop = wanted <= found.keys()

        receiver = tasks.app.events.Receiver(connection, handlers={"*": count})
        receiver.queue(connection.default_channel).declare()  # what comes from now on is in the queue
        listening.set()
        receiver.capture(limit=None, timeout=SECONDS, wakeup=True)


def test_celery_runs_tasks_repeats_them_waits_with_them_answers_and_tells(
    server: Server, client: Client, tmp_path: Path
) -> None:
    found, listening = Counter[str](), threading.Event()
    wanted = {"worker-heartbeat", "task-received", "task-started", "task-succeeded", "task-retried"}
    with celery_client(server, tmp_path) as tasks, worker(server, tmp_path):
        listener = threading.Thread(target=events_of, args=(tasks, wanted, found, listening), daemon=True)
        (name,) = eventually(lambda: tasks.app.control.inspect(timeout=2).ping(), seconds=SECONDS)
        listener.start()
        assert listening.wait(SECONDS)
        due = datetime.now(UTC) + timedelta(seconds=1.5)
        tasks.note.apply_async(("late",), eta=due)
        sums = [tasks.add.delay(number, 1) for number in range(20)]
        stubborn = tasks.stubborn.delay()
        assert [one.get(timeout=SECONDS) for one in sums] == list(range(1, 21))
        assert stubborn.get(timeout=SECONDS) == 2
        inspect = tasks.app.control.inspect([name], timeout=SECONDS)
        eventually(lambda: inspect.stats()[name]["total"].get("add") == 20, seconds=SECONDS)
        eventually(lambda: lines(tmp_path / "notes"), seconds=SECONDS)
        listener.join(SECONDS)
        eventually(lambda: done(client), seconds=SECONDS)

    ((text, when),) = (line.split() for line in lines(tmp_path / "notes"))
    assert text == "late"
    assert float(when) >= due.timestamp()
    assert wanted <= found.keys()
    assert {one.name for one in client.queues() if not one.name.startswith("kombu")} == {QUEUE}


@pytest.mark.drawn
def test_the_tasks_of_a_killed_worker_come_again_once(server: Server, client: Client, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with celery_client(server, tmp_path) as tasks, worker(server, tmp_path, visibility=VISIBILITY) as first:
        for number in range(10):
            tasks.hold.delay(str(number))
        eventually(lambda: len(lines(notes)) == 2, seconds=SECONDS)
        begun = [line.split()[1] for line in lines(notes)]
        kill_group(first)
    go(notes)
    with worker(server, tmp_path, visibility=VISIBILITY):
        eventually(lambda: sum(line.startswith("end") for line in lines(notes)) == 10, seconds=SECONDS)
        eventually(lambda: done(client), seconds=SECONDS)

    seen = Counter(lines(notes))
    assert seen == {f"{what} {number}": 1 for what in ("begin", "end") for number in range(10)} | {
        f"begin {number}": 2 for number in begun
    }


@pytest.mark.drawn
def test_a_worker_that_is_told_to_end_finishes_what_it_has_begun(
    server: Server, client: Client, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    with celery_client(server, tmp_path) as tasks, worker(server, tmp_path) as process:
        for number in range(6):
            tasks.hold.delay(str(number))
        eventually(lambda: len(lines(notes)) == 2, seconds=SECONDS)
        process.terminate()
        eventually(lambda: "Warm shutdown" in (tmp_path / "worker-0.txt").read_text(), seconds=SECONDS)
        go(notes)
        assert process.wait(SECONDS) == 0

    seen = Counter(line.split()[0] for line in lines(notes))
    assert seen["begin"] == seen["end"] >= 2
    left: list[Delivery] = []
    while some := client.receive(QUEUE, GROUP, 10):
        left += some
    assert len(left) == 6 - seen["end"]
    assert {delivery.failures for delivery in left} <= {0}
