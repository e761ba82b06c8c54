"""Whoever waits for the result of a task hears that its message is gone, whatever removed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from qdo import Client, TaskRemoved, TaskResult
from qdo.tasks import TaskWorker
from tests.support.client import Server
from tests.support.servers import RunningServer, eventually
from tests.support.task_jobs import add, double

MODULE = "tests.support.task_jobs"
WAIT = 60


@pytest.fixture
def client(
    shipped_server: RunningServer, next_fresh: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """The client that the environment names, of an application without queues. A message that is gone counts at once."""
    monkeypatch.setattr("qdo.tasks.removal.LOOK_SECONDS", (0.0, 0.0))
    monkeypatch.setattr("qdo.tasks.removal.GONE_SECONDS", 0.0)
    monkeypatch.setattr("qdo.worker.leases.due.WAIT_SECONDS", 0.2)
    with Server(shipped_server, next_fresh()) as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        with Client() as found:
            yield found


def work() -> None:
    """Until nothing is left."""
    TaskWorker([MODULE], exit_at_end=True).run()


def purged(client: Client, _: TaskResult) -> None:
    client.purge("numbers")
    eventually(lambda: not client.task("numbers", "purge").is_open)


REMOVALS: dict[str, Callable[[Client, TaskResult], None]] = {
    "cancelled": lambda _, sent: add.cancel(sent),
    "cancelled by its id": lambda _, sent: add.cancel(sent.id),
    "purged": purged,
    "its queue deleted": lambda client, _: client.delete_queue("numbers"),
}


@pytest.mark.parametrize("how", REMOVALS)
def test_a_get_ends_when_the_message_is_gone(client: Client, how: str) -> None:
    sent = add.schedule(in_=3000).send(1, 2)
    with pytest.raises(TimeoutError):
        sent.get(timeout=0)

    REMOVALS[how](client, sent)

    with pytest.raises(
        TaskRemoved, match=f"task {sent.id} has no result, and its message is no longer in queue numbers"
    ):
        sent.get(WAIT)
    with pytest.raises(TaskRemoved):
        add.result(sent.id).get(WAIT)


def test_a_message_whose_time_to_live_ended_is_gone(client: Client) -> None:
    client.create_queue("numbers")
    appended = client.append("numbers", replace(add.message(1, 2), ttl_seconds=1))

    with pytest.raises(TaskRemoved):
        add.result(f"numbers/{appended.partition}:{appended.id.hex}").get(WAIT)


@pytest.mark.parametrize("retention", ["ttl", "acknowledged"])
def test_a_task_that_is_done_has_its_result_though_its_message_is_gone(client: Client, retention: str) -> None:
    client.create_queue("numbers", retention=retention)
    sent, other = add.send(1, 2), add.send(3, 4)
    work()
    client.delete("numbers", [one.id.rpartition("/")[2] for one in (sent, other)])

    assert sent.get(WAIT) == 3
    assert add.result(other.id).get(WAIT) == 7


def test_a_chain_goes_on_without_the_message_of_its_first_step(client: Client) -> None:
    """In a queue that lets go of what is acknowledged, nobody can tell whether that step was done."""
    client.create_queue("numbers", retention="acknowledged")
    sent = add.then(double).send(1, 2)
    assert not sent.is_ready
    client.delete("numbers", sent.id.rpartition("/")[2])

    for chain in (sent, double.result(sent.id)):
        for _ in range(3):
            assert not chain.is_ready


def test_a_chain_of_a_queue_that_keeps_messages_is_removed_with_its_first_step(client: Client) -> None:
    sent = add.then(double).schedule(in_=3000).send(1, 2)
    add.cancel(sent)

    with pytest.raises(TaskRemoved):
        sent.get(WAIT)
