"""An application without queues, and workers that divide its queues by hash slots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qdo import Client, Worker
from qdo.groups.local import LocalCoordinator
from qdo.groups.offsets_in_queuey import OffsetsInQueuey
from qdo.worker import slots
from qdo.worker.job import Job
from tests.support.client import Server
from tests.support.servers import RunningServer
from tests.support.slots import owner_of
from tests.support.work_processes import WorkProcesses, processes_in


@pytest.fixture
def server(request: pytest.FixtureRequest, next_fresh: Callable[[], str]) -> Iterator[Server]:
    """An application without any queue, embedded; a test of :data:`both_stores` also runs over Cassandra, with its read delay."""
    running = request.getfixturevalue(f"{getattr(request, 'param', 'shipped')}_server")
    assert isinstance(running, RunningServer)
    with Server(running, next_fresh()) as found:
        yield found


@pytest.fixture(autouse=True)
def moments_are_recorded_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of workers in the process of the tests: they wait for the next record."""
    monkeypatch.setattr(slots, "RECORD_SECONDS", 0.5)


@pytest.fixture
def make_client(server: Server) -> Callable[[], Client]:
    return lambda: Client(server.url, server.application, server.key)


@pytest.fixture
def processes(tmp_path: Path, server: Server) -> Iterator[WorkProcesses]:
    with processes_in(tmp_path, server) as found:
        yield found


@pytest.fixture
def run(tmp_path: Path, make_client: Callable[[], Client]) -> Iterator[Callable[..., Worker]]:
    """A worker in a thread of its own; ended with the test."""
    started: list[tuple[Worker, threading.Thread]] = []

    def start(job: Job, *, sweeps: bool = True, **more: Any) -> Worker:
        worker = Worker(
            job,
            ["u*"],
            LocalCoordinator("g", tmp_path, session_seconds=6.0),
            make_client,
            group="g",
            slots=True,
            **more,
        )
        if not sweeps:
            owner_of(worker).sweeper.sweep = lambda client, over: None  # type: ignore[method-assign]
        thread = threading.Thread(target=worker.run)
        thread.start()
        started.append((worker, thread))
        return worker

    yield start
    for worker, thread in started:
        worker.stop(at_once=True)
        thread.join(90)


@pytest.fixture
def outside(tmp_path: Path, make_client: Callable[[], Client]) -> Iterator[OffsetsInQueuey]:
    """A member that looks at the group."""
    found = OffsetsInQueuey(LocalCoordinator("g", tmp_path), make_client(), "g")
    yield found
    found.close()
