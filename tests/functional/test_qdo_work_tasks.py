"""``qdo work --tasks``: workers on tasks as processes, and what the command line refuses."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from qdo.cli import main
from qdo.client import Client, NewMessage
from tests.support.client import Server
from tests.support.servers import RunningServer, eventually
from tests.support.work_processes import WAIT_SECONDS, WorkProcesses, processes_in

TASKS = """
import os
from pathlib import Path

from qdo import task

def _note(text):
    with open("done.txt", "a") as file:
        file.write(text + "\\n")

@task(queue="mail", retries=1, backoff=0)
def note(text: str, times: int = 1) -> None:
    _note(text)
    if text == "bad":
        raise ValueError("this one is bad")
    if text == "kill":
        os.kill(os.getpid(), 9)
    if text == "fork":
        child = os.fork()
        if child:
            _note(f"ended {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
    if text == "again":
        follow.send("sent by a task")

@task(queue="other")
def follow(text: str) -> None:
    _note(text)
"""


@pytest.fixture
def processes(tmp_path: Path, shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[WorkProcesses]:
    with Server(shipped_server, next_fresh()) as server, processes_in(tmp_path, server) as found:
        (tmp_path / "chores.py").write_text(TASKS)
        yield found


@pytest.fixture
def client(processes: WorkProcesses) -> Iterator[Client]:
    with processes.client() as found:
        yield found


def sent(client: Client, *texts: str) -> None:
    if client.find_queue("mail") is None:
        client.create_queue("mail")
    for text in texts:
        client.append("mail", NewMessage.of_json({"text": text}, headers={"queuey-task": "chores.note"}))


def test_tasks_run_and_send_others_at_the_server_of_their_worker(processes: WorkProcesses, client: Client) -> None:
    """The options name the server, and the environment does not."""
    sent(client, "good", "again")
    server = processes.server
    where = ("--url", server.url, "--application", server.application, "--app-key", server.key or "")
    silent = {name: "" for name in processes.environment if name.startswith("QUEUEY_")}

    ended = processes.run("work", "--tasks", "chores", *where, "--exit-at-end", **silent)

    assert (ended.code, "2 tasks: chores.note, chores.follow" in ended.err) == (0, True), ended.err
    assert ended.err.endswith("0 given up\n")
    assert {"good", "again"} <= {*processes.notes}
    assert [one.text for one in client.iterate("other")] == ['{"text":"sent by a task"}']


def test_what_is_given_up_is_told_by_the_exit_code_and_in_json_logs(processes: WorkProcesses, client: Client) -> None:
    sent(client, "bad", "good")

    ended = processes.run("work", "--tasks", "chores", "--exit-at-end", "--log-json")

    assert (ended.code, sorted(processes.notes)) == (7, ["bad", "bad", "good"])
    assert "Traceback (most recent call last)" in ended.err
    events = [json.loads(line)["event"] for line in ended.err.splitlines()]
    assert (events[0], events[-1]) == ("2 tasks: chores.note, chores.follow", "1 done, 1 attempt failed, 1 given up")
    (letter,) = processes.run("dead", "ls", "mail").rows
    (shown,) = processes.run("dead", "show", "mail", str(letter["letter"])).rows
    assert (shown["reason"], "chores.py" in str(shown["traceback"])) == ("ValueError: this one is bad", True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--tasks", "nowhere"), "ConfigurationError: module nowhere cannot be imported"),
        (("--tasks", "chores", "--metrics", "x"), "ConfigurationError: metrics at 'x': expected HOST:PORT"),
        (("--tasks", "chores", "--queue", "mail=x"), "--queue mail=x: expected NAME=WEIGHT"),
    ],
)
def test_what_ends_a_worker_before_it_begins_is_a_line_of_its_json_log(
    processes: WorkProcesses, given: tuple[str, ...], said: str
) -> None:
    ended = processes.run("work", *given, "--log-json")

    last = [json.loads(line) for line in ended.err.splitlines()][-1]
    assert (ended.code, last["level"], said in last["event"]) == (2, "error", True)


def test_a_task_that_kills_its_worker_is_given_up_after_its_attempts(processes: WorkProcesses, client: Client) -> None:
    client.create_queue("mail")
    client.set_lease_group("mail", "default", visibility=1)
    sent(client, "kill")
    for _ in range(2):
        worker = processes.start("work", "--tasks", "chores")
        assert worker.wait(WAIT_SECONDS) == -signal.SIGKILL

    ended = processes.run("work", "--tasks", "chores", "--exit-at-end")

    assert (ended.code, processes.notes) == (7, ["kill", "kill"])
    (letter,) = processes.run("dead", "ls", "mail").rows
    assert letter["reason"] == "attempt 2 did not end: its worker died, or lost its lease"


@pytest.mark.parametrize("options", [(), ("--owned",)])
def test_a_process_that_a_task_forks_stores_nothing(
    processes: WorkProcesses, client: Client, options: tuple[str, ...]
) -> None:
    client.create_queue("mail")
    headers = {"queuey-task": "chores.note", "queuey-task-results": "heard"}
    client.append("mail", NewMessage.of_json({"text": "fork"}, headers=headers))

    ended = processes.run("work", "--tasks", "chores", "--exit-at-end", *options)

    assert (ended.code, processes.notes) == (0, ["fork", "ended 0"]), ended.err
    assert [one.text for one in client.iterate("heard")] == ["null"]


def test_owned_partitions_are_those_of_the_group(processes: WorkProcesses, client: Client) -> None:
    sent(client, "good", "bad")

    ended = processes.run("work", "--tasks", "chores", "--owned", "--exit-at-end")

    assert (ended.code, sorted(processes.notes)) == (7, ["bad", "bad", "good"])
    assert "default of" in processes.run("status").text


def test_a_changed_file_starts_the_worker_again(processes: WorkProcesses, client: Client) -> None:
    worker = processes.start("work", "--tasks", "chores", "--reload")
    sent(client, "before")
    processes.until_noted("before")

    code = (processes.folder / "chores.py").read_text()
    (processes.folder / "chores.py").write_text(code.replace("_note(text)\n    if", '_note("new " + text)\n    if'))
    eventually(lambda: "chores.py changed" in processes.said(worker), seconds=WAIT_SECONDS)
    sent(client, "after")
    processes.until_noted("new after")

    assert processes.end(worker) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say what to run: MODULE:FUNCTION, or --tasks MODULE"),
        (("json:loads", "--tasks", "json", "--queue", "q"), "say what to run"),
        (("json:loads",), "Missing option '-q' / '--queue'"),
        (("--tasks", "no.such"), "module no.such cannot be imported"),
        (("--tasks", "json"), "module json has no task"),
        (("--tasks", "json", "--lease"), "tasks are leased anyway"),
        (("--tasks", "json", "--retries", "3"), "--retries has no meaning with --tasks: each task has its own"),
        (("--tasks", "json", "--batch", "3"), "--batch has no meaning with --tasks"),
        (("--tasks", "json", "--slots"), "--slots has no meaning with leases"),
        (("--tasks", "json", "--session-seconds", "5"), "--session-seconds has no meaning with leases"),
        (("--tasks", "json", "--owned", "--in-order"), "--in-order and weights of queues have no meaning with --owned"),
        (("json:loads", "--queue", "q", "--owned"), "--owned is for --tasks"),
        (("json:loads", "--queue", "q=x", "--lease"), "expected NAME=WEIGHT, such as mail=3"),
        (("json:loads", "--queue", "q=3"), "in_order and weights are for queues that workers lease from"),
        (("--tasks", ""), "say what to run"),
        (("json:loads", "--queue", "", "--lease"), "queue '': expected 1 to 80 letters"),
        (("json:loads", "--queue", "a b=3", "--lease"), "queue 'a b': expected 1 to 80 letters"),
        (("json:loads", "--queue", "q=3", "--queue", "q", "--lease"), "--queue q: it is named twice"),
        (("json:loads", "--queue", "q", "--group", "a b", "--lease"), "group 'a b': expected 1 to 100 letters"),
        (("json:loads", "--queue", "q", "--session-seconds", "nan"), "'nan' is not a number"),
        (("json:loads", "--queue", "q=0", "--lease"), "weight of queue q is 0: expected 1 to 1000"),
    ],
)
def test_what_is_wrong_on_the_line_is_refused(arguments: tuple[str, ...], said: str) -> None:
    ended = CliRunner().invoke(main, ["work", *arguments])

    assert (ended.exit_code, said in ended.output) == (2, True), ended.output
