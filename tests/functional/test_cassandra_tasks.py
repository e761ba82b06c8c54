"""Tasks over Cassandra: sent at one server, run at the other, with the read delay that they have without any setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qdo import Client, TaskFailed
from qdo.groups.local import LocalCoordinator
from qdo.tasks import TaskWorker
from qdo.worker.dead_letters import letters
from tests.support.client import Server
from tests.support.on_cassandra import Delayed
from tests.support.schedules import EVERY_MINUTE, MINUTE, occurrences, on_alarms, overdue
from tests.support.servers import APPLICATIONS, eventually
from tests.support.task_jobs import NOTES, add, double, fail, note, note_number, pass_on, refuse
from tests.support.worker_threads import at_work

pytestmark = pytest.mark.drawn

WAIT = 90
MINUTES = 20


@pytest.fixture
def application(next_fresh: Callable[[], str]) -> str:
    return next_fresh()


@pytest.fixture
def client(delayed: Delayed, application: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Of the first server, which the environment names for tasks."""
    NOTES.clear()
    with Server(delayed.first, application) as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        with Client() as found:
            yield found


def at_the_other_server(delayed: Delayed, application: str, **options: Any) -> TaskWorker:
    def client() -> Client:
        return Client(delayed.second.url, application, APPLICATIONS[application][0])

    return TaskWorker(["tests.support.task_jobs"], make_client=client, drain_seconds=2, **options)


def test_results_chains_and_dead_letters(delayed: Delayed, application: str, client: Client) -> None:
    numbers = add.send_many([{"x": number, "y": 1} for number in range(20)])
    chain = add.then(double).then(add, y=100).send(1, 2)
    stubborn, refused = fail.send("this", until=2), refuse.send("that")
    note.send("done")

    with at_work(at_the_other_server(delayed, application)):
        assert [one.get(WAIT) for one in numbers] == [*range(1, 21)]
        assert chain.get(WAIT) == 106
        assert stubborn.get(WAIT) == "this"
        with pytest.raises(TaskFailed, match="that is none"):
            refused.get(WAIT)
        eventually(lambda: "done" in NOTES)
        eventually(lambda: len(list(letters(client, "mail-dead"))) == 1)

    assert sorted(NOTES) == ["1 this", "2 this", "done", "that"]
    assert len(list(client.iterate("numbers-results"))) == 21


@pytest.mark.parametrize("owned", [False, True], ids=["leased", "owned"])
def test_a_worker_that_ends_when_all_is_done_waits_for_what_is_not_shown_yet(
    owned: bool, delayed: Delayed, application: str, client: Client, tmp_path: Path
) -> None:
    """A message that was sent just before, each step of a chain, and what a task sends."""
    coordinator = LocalCoordinator("default", tmp_path) if owned else None
    worker = at_the_other_server(delayed, application, owned=owned, coordinator=coordinator, exit_at_end=True)
    add.then(double).then(note_number).send(1, 2)
    pass_on.send("on", 1)

    worker.run()

    assert sorted(NOTES) == ["0 on", "1 on", "6"]
    assert worker.all_done


def test_all_occurrences_that_were_missed_are_sent_once(client: Client) -> None:
    first = overdue(client, replace(EVERY_MINUTE, missed="all"), MINUTES)

    with on_alarms(3):
        eventually(lambda: len(occurrences(client)) >= MINUTES, seconds=WAIT)

    found = occurrences(client)
    assert sorted(found) == [first + number * MINUTE for number in range(len(found))]
