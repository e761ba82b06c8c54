"""What jobs print goes to a reader that has had enough, as in ``qdo work ... | head``."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qdo.client import Client, NewMessage
from tests.support.client import Server
from tests.support.commands import command
from tests.support.loaded import Program
from tests.support.servers import RunningServer
from tests.support.work_processes import WAIT_SECONDS, WorkProcesses, fill, processes_in

GROUP = "workers"
TASKS = """
from qdo import task

@task(queue="told", retries=0)
def tell(text: str) -> None:
    print(text, flush=True)

@task(queue="told", retries=0)
async def tell_later(text: str) -> None:
    print(text, flush=True)
"""


@pytest.fixture
def processes(tmp_path: Path, shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[WorkProcesses]:
    with Server(shipped_server, next_fresh()) as server, processes_in(tmp_path, server) as found:
        found.environment["QDO_GROUP"] = GROUP
        (tmp_path / "chores.py").write_text(TASKS)
        yield found


@pytest.fixture
def client(processes: WorkProcesses) -> Iterator[Client]:
    with processes.client() as found:
        yield found


@contextmanager
def unread() -> Iterator[int]:
    """The end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    ("job", "options"),
    [
        ("tell", ("--lease",)),
        ("tell", ()),
        ("tell", ("--lease", "--processes", "1")),
        ("tell_in_other_words", ("--lease",)),
        ("tell_in_other_words", ()),
        ("tell_later", ("--lease",)),
        ("run_one_that_tells", ("--lease",)),
    ],
)
def test_a_worker_ends_and_no_message_is_to_blame(
    processes: WorkProcesses, client: Client, job: str, options: tuple[str, ...]
) -> None:
    queue, notes = fill(processes, 3, partitions=1)
    if "--lease" in options:
        client.set_lease_group(queue, GROUP, visibility=600)

    with unread() as out:
        worker = processes.start("work", f"jobs:{job}", "--queue", queue, *options, stdout=out)
        assert worker.wait(WAIT_SECONDS) == 1

    said = processes.said(worker)
    assert said.endswith(
        "qdo: nobody reads what the jobs print any more: what is not done is given back\n"
        "qdo: 0 done, 0 attempts failed, 0 given up\n"
    )
    assert "Traceback" not in said
    if "--lease" in options:
        left = sorted((one.text, one.failures) for one in client.receive(queue, GROUP, 10))
        assert left == [(note.split()[1], 0) for note in notes]
    else:
        assert processes.work("note", queue).code == 0
        assert processes.notes == notes


@pytest.mark.parametrize("task", ["tell", "tell_later"])
def test_a_task_that_cannot_print_is_left_for_another_worker(
    processes: WorkProcesses, client: Client, task: str
) -> None:
    """It has no second attempt, and nobody hears that it failed."""
    client.create_queue("told")
    headers = {"queuey-task": f"chores.{task}", "queuey-task-results": "heard"}
    client.append("told", NewMessage.of_json({"text": "hello"}, headers=headers))

    with unread() as out:
        assert processes.start("work", "--tasks", "chores", stdout=out).wait(WAIT_SECONDS) == 1
    assert processes.run("work", "--tasks", "chores", "--exit-at-end").code == 0

    assert [one.text for one in client.iterate("heard")] == ["null"]


@pytest.mark.parametrize("program", ["cat", "sh -c 'cat; exit $?'"])
def test_a_program_for_each_message_ends_the_command(processes: WorkProcesses, client: Client, program: str) -> None:
    """Its exit code is none of those with which a loop of the shell goes on."""
    queue, _ = fill(processes, 3, partitions=1)
    with unread() as out:
        ended = Program(
            command("receive", queue, "--max", "3", "--exec", program),
            stdin=subprocess.DEVNULL,
            stdout=out,
            env=os.environ | processes.environment,
        ).wait(WAIT_SECONDS)

    assert ended == 128 + signal.SIGPIPE
    assert [one.failures for one in client.receive(queue, "default", 10)] == [0, 0, 0]


@pytest.mark.parametrize("options", [("--lease",), ()])
def test_a_signal_for_all_processes_lets_the_job_end(
    processes: WorkProcesses, client: Client, options: tuple[str, ...]
) -> None:
    """As systemd and ``timeout`` send it."""
    queue, _ = fill(processes, 1, partitions=1)
    worker = processes.start("work", "jobs:wait_in_a_process", "--queue", queue, "--processes", "1", *options)
    processes.until_noted("begun 1-0")

    os.kill(int(processes.notes[0].split()[1]), signal.SIGTERM)
    worker.send_signal(signal.SIGTERM)
    (processes.folder / "go").touch()

    assert worker.wait(WAIT_SECONDS) == 0
    assert processes.said(worker).endswith("qdo: 1 done, 0 attempts failed, 0 given up\n")
