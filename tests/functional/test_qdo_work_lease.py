"""``qdo work --lease``: workers as processes on a lease group of a real server."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qdo.client import Client, Delivery
from tests.support.client import Server
from tests.support.servers import RunningServer, eventually
from tests.support.work_processes import WAIT_SECONDS, WorkProcesses, fill, processes_in

GROUP = "workers"


@pytest.fixture
def processes(tmp_path: Path, shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[WorkProcesses]:
    with Server(shipped_server, next_fresh()) as server, processes_in(tmp_path, server) as found:
        found.environment["QDO_GROUP"] = GROUP
        yield found


@pytest.fixture
def client(processes: WorkProcesses) -> Iterator[Client]:
    with processes.client() as found:
        yield found


def held(client: Client, queue: str) -> int:
    return sum(part.held for part in client.lease_group(queue, GROUP).partitions)


def test_workers_that_come_and_go_do_everything_once(processes: WorkProcesses, client: Client) -> None:
    queue, notes = fill(processes, 60)
    staying, leaving = (processes.start("work", "jobs:whose", "--lease", "--queue", queue) for _ in range(2))
    eventually(lambda: len({note.split()[0] for note in processes.notes}) == 2, seconds=WAIT_SECONDS)

    assert processes.end(leaving) == 0
    eventually(lambda: len(processes.notes) == 60, seconds=WAIT_SECONDS)
    eventually(lambda: held(client, queue) == 0, seconds=WAIT_SECONDS)

    assert processes.end(staying) == 0
    assert sorted(note.split()[1] for note in processes.notes) == sorted(note.split()[1] for note in notes)
    assert f"works on {queue}" in processes.said(staying)
    assert f"see 'qdo status --lease --group {GROUP}'" in processes.said(staying)
    assert not (processes.folder / "state").exists()
    told = processes.run("status", "--lease", "--queue", queue)
    assert told.text.startswith(
        f"lease group {GROUP} of {processes.server.application}: 1 queue; 0 messages held, 0 of"
    )
    (first, *_) = json.loads(processes.run("status", "--lease", "--json").text)["partitions"]
    assert {name: first[name] for name in ("queue", "partition", "held", "dead")} == {
        "queue": queue,
        "partition": 1,
        "held": 0,
        "dead": 0,
    }
    ended = processes.work("note", queue, "--lease")
    assert (ended.code, ended.err.endswith("qdo: 0 done, 0 attempts failed, 0 given up\n")) == (0, True)


def test_a_signal_lets_the_job_end_and_gives_the_rest_back(processes: WorkProcesses, client: Client) -> None:
    queue, _ = fill(processes, 3, partitions=1)
    client.set_lease_group(queue, GROUP, visibility=600)
    worker = processes.start("work", "jobs:wait", "--lease", "--queue", queue, "--threads", "2")
    processes.until_noted("begun 1-0", "begun 1-1")

    worker.send_signal(signal.SIGTERM)
    eventually(lambda: "a second signal ends it at once" in processes.said(worker), seconds=WAIT_SECONDS)
    (processes.folder / "go").touch()

    assert worker.wait(WAIT_SECONDS) == 0
    assert sorted(processes.notes[2:]) == ["1 1-0", "1 1-1"]
    (left,) = client.receive(queue, GROUP, 10)
    assert (left.text, left.failures) == ("1-2", 0)


def test_a_second_signal_ends_at_once(processes: WorkProcesses) -> None:
    queue, _ = fill(processes, 1, partitions=1)
    worker = processes.start("work", "jobs:wait", "--lease", "--queue", queue)
    processes.until_noted("begun 1-0")
    worker.send_signal(signal.SIGTERM)
    eventually(lambda: "a second signal ends it at once" in processes.said(worker), seconds=WAIT_SECONDS)

    assert processes.end(worker) == 143


def test_a_worker_that_is_killed_costs_one_more_delivery(processes: WorkProcesses, client: Client) -> None:
    queue, _ = fill(processes, 1, partitions=1)
    client.set_lease_group(queue, GROUP, visibility=3)
    worker = processes.start("work", "jobs:wait", "--lease", "--queue", queue)
    processes.until_noted("begun 1-0")

    worker.kill()
    worker.wait()

    def again() -> list[Delivery]:
        return client.receive(queue, GROUP, wait=20)

    (found,) = again()
    assert (found.deliveries, found.failures) == (2, 1)


def test_what_is_given_up_is_told_by_the_exit_code(processes: WorkProcesses, client: Client) -> None:
    queue = processes.server.queue(partitions=1)
    processes.server.fill(queue, "bad", "good")
    client.set_lease_group(queue, GROUP, max_failures=2, backoff={"first": 0})

    ended = processes.work("fail", queue, "--lease")

    assert (ended.code, sorted(processes.notes)) == (7, ["1 bad", "1 good", "2 bad"])
    assert 'raise ValueError("this one is bad' in ended.err
    assert ended.err.endswith("1 done, 2 attempts failed, 1 given up\n")
    (letter,) = processes.run("dead", "ls", queue).rows
    assert (letter["group"], letter["failures"]) == (GROUP, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--retries", "3"), "--retries has no meaning with --lease: the group's max_failures and backoff"),
        (("--by-key", "2"), "--by-key has no meaning with --lease"),
        (("--dead-letters", "none"), "--dead-letters has no meaning with --lease"),
        (("--at-most-once",), "--at-most-once has no meaning with --lease"),
        (("--from-end",), "--from-end has no meaning with --lease"),
        (("--strategy", "range"), "--strategy has no meaning with --lease"),
        (("--slots",), "--slots has no meaning with --lease"),
        (("--session-seconds", "5"), "--session-seconds has no meaning with --lease: the group's visibility"),
        (("--zookeeper", "127.0.0.1:1"), "--zookeeper has no meaning with --lease"),
        (("--state", "here"), "--state has no meaning with --lease"),
        (("--offsets", "queuey"), "--offsets has no meaning with --lease"),
    ],
)
def test_an_option_without_meaning_is_refused(options: tuple[str, ...], said: str) -> None:
    from click.testing import CliRunner

    from qdo.cli import main

    ended = CliRunner().invoke(main, ["work", "json:loads", "--lease", "--queue", "q", *options])

    assert (ended.exit_code, said in ended.output) == (2, True)
