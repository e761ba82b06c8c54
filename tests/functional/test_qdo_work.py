"""``qdo``: workers as processes on a real server, and the commands that look at them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.client import Server
from tests.support.servers import RunningServer, eventually
from tests.support.services.fixtures import Reached
from tests.support.work_processes import WAIT_SECONDS, WorkProcesses, fill, in_order, processes_in


@pytest.fixture
def processes(tmp_path: Path, shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[WorkProcesses]:
    with Server(shipped_server, next_fresh()) as server, processes_in(tmp_path, server) as found:
        yield found


def test_a_backlog_is_done_once_and_in_order(processes: WorkProcesses) -> None:
    queue, notes = fill(processes, 200)

    ended = processes.work("note", queue)

    assert ended.code == 0
    assert sorted(processes.notes) == sorted(notes)
    assert in_order(processes.notes)
    assert f"works on {queue}" in ended.err
    assert "see 'qdo status'" in ended.err
    assert "qdo: 200 done, 0 attempts failed, 0 given up" in ended.err
    assert processes.work("note", queue).err.endswith("qdo: 0 done, 0 attempts failed, 0 given up\n")


def test_three_workers_divide_the_partitions_and_say_so(processes: WorkProcesses) -> None:
    queue, notes = fill(processes, 40)
    workers = [processes.start("work", "jobs:note", "--queue", queue) for _ in range(3)]

    def owners() -> list[int]:
        told = processes.run("status", "--json")
        return sorted(member["partitions"] for member in json.loads(told.text)["members"]) if told.code == 0 else []

    def members() -> list[Any]:
        found: list[Any] = json.loads(processes.run("status", "--json").text)["members"]
        return found

    eventually(lambda: owners() == [1, 1, 2], seconds=WAIT_SECONDS)
    processes.until_noted(*notes)
    eventually(lambda: sum(each["done"] or 0 for each in members()) == len(notes), seconds=WAIT_SECONDS)
    # A worker says that a job is done before it says that it is committed; one that came late may have had none to do.
    eventually(lambda: all(each["committed"] for each in members() if each["done"]), seconds=WAIT_SECONDS)
    for each in members():
        assert each["per_second"] >= 0
        assert (each["failed"], each["dead"], each["pid"] in {worker.pid for worker in workers}) == (0, 0, True)

    assert [processes.end(worker) for worker in workers] == [0, 0, 0]
    assert sorted(processes.notes) == sorted(notes)
    told = json.loads(processes.run("status", "--json").text)
    assert (told["members"], told["lag_messages"], told["lag_seconds"]) == ([], 0, 0.0)
    assert json.loads(processes.run("status", "-o", "json").text) == told
    by_line = [json.loads(line) for line in processes.run("status", "-o", "jsonl").text.splitlines()]
    assert by_line == told["partitions"]
    assert processes.run("check", "--max-lag", "0", "-o", "json").text == "[\n]\n"


@pytest.mark.drawn
def test_queues_that_come_grow_and_go_are_noticed_and_nobody_stops(processes: WorkProcesses) -> None:
    processes.server.create("p-old", partitions=2)
    workers = [processes.start("work", "jobs:note", "--queue", "p-*") for _ in range(2)]

    def statuses() -> dict[tuple[str, int], tuple[str, int]]:
        told = processes.run("status", "--json")
        rows = json.loads(told.text)["partitions"] if told.code == 0 else []
        return {(row["queue"], row["partition"]): (row["owner"], row["generation"]) for row in rows if row["owner"]}

    def work(queue: str, partition: int, text: str) -> None:
        processes.server.fill(queue, text, partition=partition)
        eventually(lambda: f"{partition} {text}" in processes.notes, seconds=WAIT_SECONDS)

    def old() -> list[tuple[str, int] | None]:
        return [statuses().get(("p-old", number)) for number in (1, 2)]

    eventually(
        lambda: len(statuses()) == 2 and len({owner for owner, _ in statuses().values()}) == 2, seconds=WAIT_SECONDS
    )
    before = old()

    processes.server.create("p-new", partitions=2)
    processes.server.create("p-old", partitions=4)
    work("p-new", 2, "new")
    work("p-old", 4, "grown")
    processes.server.call("DELETE", "p-new")
    eventually(lambda: {queue for queue, _ in statuses()} == {"p-old"}, seconds=WAIT_SECONDS)
    work("p-old", 1, "goes on")

    assert old() == before
    assert [processes.end(worker) for worker in workers] == [0, 0]


def test_two_groups_each_do_everything(processes: WorkProcesses) -> None:
    queue, notes = fill(processes, 8)

    for group in ("one", "two"):
        processes.work("note", queue, "--group", group)

    assert sorted(processes.notes) == sorted(notes * 2)


@pytest.mark.parametrize(
    ("job", "options"),
    [
        ("later", ()),
        ("many", ("--batch", "3")),
        ("note", ("--processes", "2")),
        ("note", ("--at-most-once",)),
        ("note", ("--strategy", "range", "--threads", "1")),
        ("note", ("--offsets", "queuey")),
    ],
)
def test_each_way_to_work_does_everything(processes: WorkProcesses, job: str, options: tuple[str, ...]) -> None:
    queue, notes = fill(processes, 40)

    first, second = processes.work(job, queue, *options), processes.work(job, queue, *options)

    assert (first.code, second.code) == (0, 0)
    assert sorted(processes.notes) == sorted(notes)
    assert in_order(processes.notes)


def test_groups_meet_in_zookeeper(processes: WorkProcesses, zookeeper: Reached) -> None:
    queue, notes = fill(processes, 8)
    processes.environment["QDO_ZOOKEEPER"] = f"{zookeeper.hosts}/{queue}"

    assert processes.work("note", queue).code == 0

    assert sorted(processes.notes) == sorted(notes)
    assert len(processes.run("offsets", "show").rows) == 4
    assert not (processes.folder / "state").exists()


@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGHUP], [signal.SIGTERM, signal.SIGTERM]])
def test_a_first_signal_lets_the_job_end_and_records_it(processes: WorkProcesses, numbers: list[int]) -> None:
    """Programs such as ``timeout`` send it twice: to the process, and to its group."""
    queue, _ = fill(processes, 2, partitions=1)
    worker = processes.start("work", "jobs:wait", "--queue", queue)
    processes.until_noted("begun 1-0")

    for number in numbers:
        worker.send_signal(number)
    eventually(lambda: "a second signal ends it at once" in processes.said(worker), seconds=WAIT_SECONDS)
    (processes.folder / "go").touch()

    assert worker.wait(WAIT_SECONDS) == 0
    assert processes.notes == ["begun 1-0", "1 1-0"]
    processes.work("note", queue)
    assert processes.notes[2:] == ["1 1-1"]


@pytest.mark.parametrize("options", [(), ("--reload",)])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_at_once_and_the_job_is_done_again(
    processes: WorkProcesses, number: int, code: int, options: tuple[str, ...]
) -> None:
    queue, _ = fill(processes, 1, partitions=1)
    worker = processes.start("work", "jobs:wait", "--queue", queue, *options)
    processes.until_noted("begun 1-0")

    worker.send_signal(number)
    eventually(lambda: "a second signal ends it at once" in processes.said(worker), seconds=WAIT_SECONDS)

    assert processes.end(worker, number) == code
    processes.work("note", queue)
    assert processes.notes == ["begun 1-0", "1 1-0"]


@pytest.mark.parametrize(
    ("job", "options"),
    [
        ("stubborn", ("--processes", "1")),
        ("leave_a_thread", ("--processes", "1")),
        ("block", ()),
        ("block", ("--lease",)),
    ],
)
def test_no_job_keeps_a_worker_that_ends(processes: WorkProcesses, job: str, options: tuple[str, ...]) -> None:
    queue, _ = fill(processes, 1, partitions=1)
    worker = processes.start("work", f"jobs:{job}", "--queue", queue, "--drain-seconds", "0.2", *options)
    processes.until_noted("begun")

    assert processes.end(worker) == 0


@pytest.mark.parametrize(
    ("job", "options"),
    [("fork", ()), ("fork", ("--lease",)), ("fork", ("--lease", "--processes", "1")), ("fork_in_a_loop", ("--lease",))],
)
def test_a_process_that_a_job_forks_does_not_work_on_as_the_worker(
    processes: WorkProcesses, job: str, options: tuple[str, ...]
) -> None:
    queue = processes.server.queue(partitions=1)
    processes.server.fill(queue, "return", "raise", "exit")

    ended = processes.work(job, queue, *options)

    assert (ended.code, sorted(processes.notes)) == (0, ["exit 3", "raise 1", "return 0"])
    assert ended.err.endswith("3 done, 0 attempts failed, 0 given up\n")


@pytest.mark.parametrize("options", [("--threads", "2"), ("--processes", "1"), ()])
def test_a_job_that_would_end_its_process_has_failed(processes: WorkProcesses, options: tuple[str, ...]) -> None:
    queue = processes.server.queue(partitions=1)
    processes.server.fill(queue, "exit", "after")

    ended = processes.work("exit_later" if options == () else "exit", queue, "--retries", "1", *options)

    assert ended.code == 7
    assert processes.notes == ["1 exit", "2 exit", "1 after"]
    assert "JobEnded: it called sys.exit(7): to end the worker, raise qdo.StopWorker" in ended.err
    assert "1 done, 2 attempts failed, 1 given up" in ended.err


def test_when_a_process_of_jobs_is_killed_its_message_is_tried_again_and_nothing_is_given_up(
    processes: WorkProcesses,
) -> None:
    queue, _ = fill(processes, 40, partitions=2)
    worker = processes.start("work", "jobs:whose", "--queue", queue, "--processes", "2", "--threads", "2")
    eventually(lambda: len(processes.notes) > 4, seconds=WAIT_SECONDS)
    os.kill(int(processes.notes[-1].split()[0]), signal.SIGKILL)

    def done() -> set[str]:
        return {note.split()[1] for note in processes.notes}

    eventually(lambda: len(done()) == 40, seconds=WAIT_SECONDS)

    assert "a process for jobs died: another one takes its place" in processes.said(worker)
    assert processes.end(worker) == 0
    assert "0 given up" in processes.said(worker)


def test_processes_of_jobs_end_with_a_worker_that_is_killed(processes: WorkProcesses) -> None:
    queue, _ = fill(processes, 40, partitions=2)
    worker = processes.start("work", "jobs:whose", "--queue", queue, "--processes", "2", "--threads", "2")
    eventually(lambda: len({note.split()[0] for note in processes.notes}) == 2, seconds=WAIT_SECONDS)
    children = {int(note.split()[0]) for note in processes.notes}

    worker.kill()
    worker.wait()

    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), seconds=WAIT_SECONDS)


def test_stop_worker_leaves_its_message(processes: WorkProcesses) -> None:
    queue = processes.server.queue(partitions=1)
    processes.server.fill(queue, "a", "stop", "b")

    ended = processes.run("work", "jobs:stop", "--queue", queue)

    assert (ended.code, processes.notes) == (0, ["1 a"])
    processes.work("note", queue)
    assert processes.notes == ["1 a", "1 stop", "1 b"]


def test_what_fails_again_and_again_is_a_dead_letter_and_can_be_retried(processes: WorkProcesses) -> None:
    queue = processes.server.queue(partitions=2)
    processes.server.fill(queue, "bad", "good", partition=2)

    ended = processes.work("fail", queue, "--retries", "1", "--group", "g")

    assert (ended.code, processes.notes) == (7, ["1 bad", "2 bad", "1 good"])
    assert "failed: ValueError: this one is bad" in ended.err
    assert 'raise ValueError("this one is bad\\nand has a second line")' in ended.err
    assert ended.err.endswith("1 done, 2 attempts failed, 1 given up\n")
    (letter,) = processes.run("dead", "ls", queue).rows
    assert (letter["partition"], letter["group"], letter["failures"]) == (2, "g", 2)
    assert letter["reason"] == "ValueError: this one is bad"
    shown = json.loads(processes.run("dead", "show", queue, str(letter["letter"])).text)
    assert 'raise ValueError("this one is bad\\nand has a second line")' in shown.pop("traceback")
    digest = hashlib.sha256(b"bad").hexdigest()
    unknown = dict.fromkeys(["first_delivered", "given_up", "content_type", "key"])
    assert shown == letter | unknown | {"headers": {}, "size": 3, "sha256": digest, "body": "bad"}
    assert processes.run("dead", "show", queue, str(letter["message_id"]), "--raw").out == b"bad"

    (processes.folder / "mended").touch()
    assert processes.run("dead", "retry", queue).code == 2
    assert processes.run("dead", "retry", queue, "nobody", "--yes").code == 3
    assert processes.run("dead", "retry", queue, "--all", "--reason", "other", "--yes").code == 3
    assert processes.run("dead", "retry", queue, "--all").code == 2
    assert processes.run("dead", "retry", queue, str(letter["letter"]), "--yes").code == 0

    processes.work("fail", queue, "--group", "g")
    assert processes.notes[3:] == ["1 bad"]
    assert processes.run("dead", "ls", queue).rows == []


def test_a_message_too_large_for_its_letter_is_shown_and_retried_from_its_queue(processes: WorkProcesses) -> None:
    queue, body = processes.server.queue(partitions=1), b"bad" + b"\xff" * ((1 << 20) - 3)
    processes.server.add(queue, body)

    assert processes.run("work", "jobs:refuse", "--queue", queue, "--retries", "0", "--exit-at-end").code == 7

    (letter,) = processes.run("dead", "ls", queue).rows
    shown = json.loads(processes.run("dead", "show", queue, str(letter["letter"])).text)
    assert (shown["size"], shown["sha256"], "body" in shown) == (len(body), hashlib.sha256(body).hexdigest(), False)
    assert processes.run("dead", "show", queue, str(letter["letter"]), "--raw").out == body
    processes.server.call("DELETE", queue, str(letter["message_id"]))
    gone = processes.run("dead", "retry", queue, "--all", "--yes")
    assert gone.code == 3
    assert "has lost 1 message that had no room" in gone.err
    assert len(processes.run("dead", "ls", queue).rows) == 1


def test_a_queue_that_a_pattern_leaves_out_is_not_done_at_the_end(processes: WorkProcesses) -> None:
    queue, long = processes.server.queue(partitions=1), "q-long".ljust(47, "x")
    processes.server.create(long)
    for name in (queue, long):
        processes.server.fill(name, "a")

    ended = processes.work("note", "q-*")

    assert (ended.code, processes.notes) == (7, ["1 a"])
    assert f"qdo: {long}: it is left out" in ended.err


@pytest.mark.parametrize("options", [(), ("--processes", "1")])
def test_a_job_that_ends_its_worker_before_the_end_has_left_messages(
    processes: WorkProcesses, options: tuple[str, ...]
) -> None:
    queue = processes.server.queue(partitions=1)
    processes.server.fill(queue, "a", "stop", "b")

    ended = processes.work("stop", queue, *options)

    assert (ended.code, processes.notes) == (7, ["1 a"])
    assert "not everything that was there is done" in ended.err


def test_a_signal_before_the_end_leaves_messages(processes: WorkProcesses) -> None:
    queue, _ = fill(processes, 8, partitions=2)
    worker = processes.start("work", "jobs:wait", "--queue", queue, "--exit-at-end")
    processes.until_noted("begun 1-0", "begun 2-0")
    worker.send_signal(signal.SIGTERM)
    eventually(lambda: "a second signal ends it at once" in processes.said(worker), seconds=WAIT_SECONDS)
    (processes.folder / "go").touch()

    assert worker.wait(WAIT_SECONDS) == 7


def test_what_stands_still_is_told_by_status_and_check(processes: WorkProcesses) -> None:
    """Here a queue whose dead letters no queue can take."""
    queue, long = processes.server.queue(partitions=1), "q-long".ljust(47, "x")
    processes.server.create(long)
    worker = processes.start("work", "jobs:note", "--queue", "q-*")

    line = f"{long} stands still: it is left out: the dead letters of queue {long} cannot be kept"
    eventually(lambda: line in processes.run("status").text, seconds=WAIT_SECONDS)
    checked = processes.run("check", "--max-lag", "1000", "--queue", queue)
    (trouble,) = json.loads(processes.run("status", "--json").text)["troubles"]

    assert (trouble["queue"], checked.code, checked.text.startswith(line)) == (long, 1, True)
    assert processes.end(worker) == 0


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("alone", "the job alone(message) cannot be called with (message, context): too many positional arguments"),
        ("lazy", "the job lazy is a generator"),
    ],
)
def test_a_job_that_cannot_do_its_work_is_refused_at_start(processes: WorkProcesses, job: str, said: str) -> None:
    queue, _ = fill(processes, 4)

    ended = processes.work(job, queue)

    assert (ended.code, processes.notes) == (2, [])
    assert said in ended.err
    assert processes.run("dead", "ls", queue).rows == []


@pytest.mark.drawn
def test_a_job_that_kills_its_process_costs_only_its_own_attempt(processes: WorkProcesses) -> None:
    queue = processes.server.queue(partitions=2)
    processes.server.fill(queue, "kill", partition=1)
    processes.server.fill(queue, *map(str, range(40)), partition=2)

    ended = processes.work("kill", queue, "--processes", "2", "--threads", "2", "--retries", "2")

    assert ended.code == 7
    assert "40 done, 3 attempts failed, 1 given up" in ended.err
    assert {note for note in processes.notes if note.endswith("kill")} == {"1 kill", "2 kill", "3 kill"}
    assert all(note.startswith("1 ") for note in processes.notes if not note.endswith("kill"))


def test_a_pattern_leaves_the_dead_letters_out(processes: WorkProcesses) -> None:
    queue = processes.server.queue(partitions=1)
    processes.server.fill(queue, "bad")
    processes.work("fail", queue, "--retries", "0")
    notes = processes.notes

    ended = processes.work("fail", "q-*", "--retries", "0")

    assert (ended.code, processes.notes) == (0, notes)


def test_without_dead_letters_it_is_passed_over(processes: WorkProcesses) -> None:
    queue = processes.server.queue(partitions=1)
    processes.server.fill(queue, "bad", "good")

    processes.work("fail", queue, "--retries", "0", "--dead-letters", "none")

    assert processes.notes == ["1 bad", "1 good"]
    assert processes.run("dead", "ls", queue).rows == []


def test_metrics_are_told_at_the_address_that_is_printed(processes: WorkProcesses) -> None:
    queue, notes = fill(processes, 8)
    worker = processes.start("work", "jobs:note", "--queue", queue, "--metrics", "127.0.0.1:0", "--log-json")
    processes.until_noted(*notes)
    found = re.search(r'"metrics at ([^"]+)"', processes.said(worker))
    assert found is not None

    def told() -> str:
        return requests.get(found[1], timeout=60).text

    eventually(lambda: 'qdo_jobs_total{result="done"} 8.0' in told(), seconds=WAIT_SECONDS)

    text = told()
    for line in ("qdo_partitions_owned 4.0", "qdo_job_duration_seconds_count 8.0", "qdo_coordinator_connected 1.0"):
        assert line in text
    assert queue not in text
    assert processes.end(worker) == 0
    logged = [json.loads(line) for line in processes.said(worker).splitlines()]
    assert {"joined", "8 done, 0 attempts failed, 0 given up"} <= {line["event"] for line in logged}


def test_what_came_after_the_beginning_at_the_end_is_not_lost_with_who_began_there(processes: WorkProcesses) -> None:
    queue = processes.server.queue(partitions=1)
    processes.server.fill(queue, "old")
    worker = processes.start("work", "jobs:wait", "--queue", queue, "--from-end", "--session-seconds", "2")
    eventually(lambda: processes.run("offsets", "show").code == 0, seconds=WAIT_SECONDS)
    processes.server.fill(queue, "new")
    processes.until_noted("begun new")

    worker.kill()
    worker.wait()

    assert processes.work("note", queue, "--from-end").code == 0
    assert processes.notes == ["begun new", "1 new"]


def test_a_queue_that_is_still_to_come_is_waited_for(processes: WorkProcesses) -> None:
    worker = processes.start("work", "jobs:note", "--queue", "q-late")
    eventually(lambda: "there is no queue q-late yet: waiting for it" in processes.said(worker), seconds=WAIT_SECONDS)

    processes.server.create("q-late", partitions=1)
    processes.server.fill("q-late", "x")

    processes.until_noted("1 x")
    assert processes.end(worker) == 0


@pytest.mark.parametrize("options", [(), ("--lease",)])
def test_a_worker_that_ends_waits_for_no_queue(processes: WorkProcesses, options: tuple[str, ...]) -> None:
    ended = processes.run("work", "jobs:note", "--queue", "q-none", "--exit-at-end", *options)

    assert ended.code == 0
    assert "there is no queue q-none yet: nothing to do there" in ended.err


def test_a_key_that_opens_nothing_is_told_at_once(processes: WorkProcesses) -> None:
    ended = processes.run("work", "jobs:note", "--queue", "q", QUEUEY_KEY="f" * 32)

    assert (ended.code, ended.err.partition(":")[0]) == (4, "InvalidApplicationKey")
