"""Results of tasks whose workers record offsets apart from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qdo import Client
from qdo.groups.local import LocalCoordinator
from qdo.tasks import TaskWorker
from tests.support.client import Server
from tests.support.servers import RunningServer
from tests.support.task_jobs import NOTES, count_notes, double

WAIT = 60


@pytest.fixture
def client(
    shipped_server: RunningServer, next_fresh: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """The client that the environment names, of an application without queues."""
    NOTES.clear()
    with Server(shipped_server, next_fresh()) as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        with Client() as found:
            yield found


def test_a_task_whose_offset_was_not_recorded_keeps_the_result_that_it_stored(client: Client, tmp_path: Path) -> None:
    """Its worker died before it could commit. The task runs again, and what it returns now differs."""
    sent, chain = count_notes.send(), count_notes.then(double).send()

    for folder in ("died", "next"):
        worker = TaskWorker(
            ["tests.support.task_jobs"],
            coordinator=LocalCoordinator("default", tmp_path / folder),
            owned=True,
            exit_at_end=True,
        )
        worker.run()
        assert (worker.counts.failed, worker.counts.dead) == (0, 0)

    assert {sent.get(WAIT), chain.get(WAIT) // 2} == {1, 2}
    assert client.find_queue("numbers-dead") is None
