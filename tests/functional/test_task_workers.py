"""Tasks on a real server: sent, worked on, tried again, given up, answered and chained."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

import pytest

from qdo import Client, NewMessage, TaskFailed
from qdo.aio import AsyncClient
from qdo.groups.local import LocalCoordinator
from qdo.tasks import DeclaredTask, TaskWorker
from qdo.worker.dead_letters import DeadLetter, letters
from queuey.errors import ConfigurationError, InvalidParameter
from tests.support import async_task_jobs, task_jobs, worker_threads
from tests.support.client import Server
from tests.support.servers import RunningServer, eventually
from tests.support.task_jobs import (
    NOTES,
    Order,
    add,
    double,
    endless,
    fail,
    later,
    no_json,
    note,
    note_number,
    note_once,
    pass_on,
    refuse,
    ship,
)

MODULE = "tests.support.task_jobs"
WAIT = 60


@pytest.fixture
def server(shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[Server]:
    """An application without queues."""
    with Server(shipped_server, next_fresh()) as found:
        yield found


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """The client that the environment names; tasks use the same one."""
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("qdo.worker.leases.due.WAIT_SECONDS", 0.2)
    monkeypatch.setattr("qdo.worker.leases.due.POLL_SECONDS", 0.1)
    NOTES.clear()
    async_task_jobs.NOTES.clear()
    task_jobs.GO.clear()
    with Client() as found:
        yield found


@contextmanager
def at_work(*modules: str, **options: Any) -> Iterator[TaskWorker]:
    worker = TaskWorker(modules or [MODULE], drain_seconds=2, **options)
    with worker_threads.at_work(worker):
        yield worker


def done(*tasks: Callable[[], object], **options: Any) -> TaskWorker:
    """Work until nothing is left."""
    worker = TaskWorker([MODULE], exit_at_end=True, **options)
    worker.run()
    return worker


def test_a_worker_may_drain_without_an_end(client: Client) -> None:
    note.send("any")

    assert done(drain_seconds=inf).counts.done == 1


def test_a_task_is_called_with_what_was_sent(client: Client) -> None:
    note.send("first")
    ship.send(Order(7, date(2026, 11, 26)))
    note.send_many([{"text": f"{number}"} for number in range(3)])

    worker = done()

    assert sorted(NOTES) == ["0", "1", "2", "7 due 2026-11-26", "first"]
    assert (worker.counts.done, worker.all_done) == (5, True)


def test_what_is_wrong_is_refused_before_it_is_sent(client: Client) -> None:
    with pytest.raises(InvalidParameter, match="Expected `str`, got `int`"):
        note.send(1)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="missing a required argument: 'text'; it takes text"):
        note.send_many([{"text": "fine"}, {"txt": "typing error"}])

    assert client.find_queue("mail") is None


def test_any_language_can_send_one(client: Client, server: Server) -> None:
    client.create_queue("mail")
    headers = {"Content-Type": "application/json", "Queuey-Header-queuey-task": note.name}
    answer = server.call("POST", "mail", data=b'{"text": "by hand"}', headers=headers)

    done()

    assert (answer.status_code, NOTES) == (201, ["by hand"])


def test_an_asyncio_program_appends_the_message_with_its_own_client(client: Client) -> None:
    async def send() -> None:
        async with AsyncClient() as other:
            await other.append(note.queue, note.message("from a loop"))

    client.create_queue("mail")
    asyncio.run(send())

    done()

    assert NOTES == ["from a loop"]


def test_a_unique_task_is_stored_once(client: Client) -> None:
    ids = {note_once.send("same").id for _ in range(3)} | {note_once.send("other").id}

    done()

    assert (len(ids), sorted(NOTES)) == (2, ["other", "same"])


def test_a_scheduled_task_runs_at_its_time_and_a_cancelled_one_never(client: Client) -> None:
    gone = note.schedule(in_=1).send("cancelled")
    note.cancel(gone.id)
    began = time.monotonic()
    note.schedule(at=datetime.now(UTC) + timedelta(seconds=1.2)).send("at its time")

    with at_work():
        eventually(lambda: NOTES)

    assert (NOTES, time.monotonic() - began > 1) == (["at its time"], True)


def test_a_task_that_fails_is_tried_again_and_then_a_dead_letter_with_its_traceback(client: Client) -> None:
    sent = fail.send("it")

    worker = done()

    assert NOTES == ["1 it", "2 it", "3 it"]
    assert (worker.counts.dead, worker.all_done) == (1, False)
    ((_, letter),) = letters(client, "mail-dead")
    assert (letter.story.reason, letter.story.failures) == ("ValueError: it is bad", 2)
    assert letter.story.traceback.startswith("Traceback (most recent call last):")
    assert 'raise ValueError(f"{text} is bad")\nValueError: it is bad' in letter.story.traceback
    assert "another exception" not in letter.story.traceback
    with pytest.raises(TaskFailed, match=r"^ValueError: it is bad$"):
        sent.get(WAIT)


def test_the_last_attempt_may_succeed(client: Client) -> None:
    sent = fail.send("it", until=3)

    assert done().all_done
    assert sent.get(0) == "it"


def test_a_task_may_say_when_it_is_tried_again_or_that_it_never_is(client: Client) -> None:
    later.send("later")
    refused = refuse.send("this")

    assert done().counts.dead == 2
    assert sorted(NOTES) == ["1 later", "2 later", "this"]
    assert {letter.story.reason for _, letter in letters(client, "mail-dead")} == {"again in 0 s", "this is none"}
    with pytest.raises(TaskFailed, match=r"^this is none$"):
        refused.get(WAIT)


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        ({}, "{}", "not a task: it has no header queuey-task"),
        ({"queuey-task": note.name}, "{}", f"task {note.name}: Object missing required field `text`"),
        ({"queuey-task": note.name}, "no JSON", f"task {note.name}: JSON is malformed"),
        ({"queuey-task": note.name}, b'{"text": "\xff"}', f"task {note.name}: 'utf-8' codec can't decode"),
        (
            {"queuey-task": note.name, "queuey-task-then": "{}"},
            '{"text": "a"}',
            "header queuey-task-then: Expected `array`",
        ),
    ],
)
def test_a_message_that_can_never_be_a_task_is_a_dead_letter_at_once(
    client: Client, headers: dict[str, str], body: str | bytes, said: str
) -> None:
    client.create_queue("mail")
    client.append("mail", NewMessage(body, headers=headers))

    done()

    assert told_of(client)[0].startswith(said)
    assert not NOTES


def test_whoever_waits_for_a_result_hears_that_there_will_be_none(client: Client) -> None:
    sent = add.send(1, 2)
    (message,) = client.read("numbers").messages
    client.put("numbers", message, NewMessage('{"x": "one"}', headers=message.headers))

    done()

    with pytest.raises(TaskFailed, match="Expected `int`, got `str`"):
        sent.get(WAIT)


def told_of(client: Client) -> list[str]:
    return [letter.story.reason for _, letter in letters(client, "mail-dead")]


def test_a_task_that_this_worker_does_not_know_yet_waits_for_one_that_does(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qdo.worker.job.UNKNOWN_ATTEMPTS", 2)
    client.create_queue("mail")
    client.append("mail", NewMessage("{}", headers={"queuey-task": "of.tomorrow"}))

    worker = done()

    assert (worker.counts.failed, told_of(client)) == (1, [f"no task is named of.tomorrow in {MODULE}"])


def test_a_log_names_the_task_and_says_when_it_is_tried_again(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    sent = fail.send("x")

    done()

    name = re.escape(f"task {fail.name}, message {sent.id.rpartition(':')[2]} in mail")
    assert re.search(rf"{name}: attempt 1 failed, again in [0-9.]+ s: ", caplog.text)
    assert re.search(rf"{name} is rejected after attempt ", caplog.text)


def test_whether_there_is_a_result_is_asked_at_the_server(client: Client) -> None:
    sent = add.send(1, 2)
    before = sent.is_ready

    done()

    assert (before, sent.is_ready) == (False, True), "nobody has read it yet"
    assert add.result(sent.id).is_ready
    assert sent.get(0) == 3
    with pytest.raises(ConfigurationError, match="stores no result"):
        assert note.send("x").is_ready
    with pytest.raises(AttributeError, match="has no attribute 'ready': here it is is_ready"):
        sent.ready()  # type: ignore[attr-defined]


def test_what_send_gave_can_be_cancelled(client: Client) -> None:
    sent = add.send(1, 2)

    add.cancel(sent)

    assert not client.read("numbers").messages


def test_an_attempt_that_takes_too_long_is_ended(client: Client) -> None:
    sent = endless.send()

    done()

    with pytest.raises(TaskFailed, match=r"TaskTimeout: it took longer than 0\.1 s"):
        sent.get(WAIT)


def test_results_come_back_with_their_type(client: Client) -> None:
    numbers = add.send_many([{"x": number, "y": 1} for number in range(5)])
    order = task_jobs.order_of.send(7)
    with pytest.raises(TimeoutError, match="no result of task numbers/"):
        order.get(timeout=0)

    done()

    assert [one.get(WAIT) for one in numbers] == [1, 2, 3, 4, 5]
    assert order.get(WAIT) == Order(7, date(2026, 11, 26))
    assert add.result(numbers[3].id).get(0) == 4  # another process knows the id alone
    assert len(list(client.iterate("numbers-results"))) == 6


def test_another_process_finds_a_result_behind_many_others(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It read the first of them again and again."""
    monkeypatch.setattr("qdo.tasks.results.MOST_A_READ", 2)
    numbers = add.send_many([{"x": number, "y": 1} for number in range(9)])
    done()

    assert [add.result(one.id).get(0) for one in numbers] == [number + 1 for number in range(9)]


def test_a_call_that_is_sent_again_has_the_result_of_the_first(client: Client) -> None:
    """Which was read already, while others were waited for."""
    waits = add.schedule(in_=3000).send(3, 4)
    first = add.schedule(unique="a sum").send(1, 2)
    done()
    assert first.get(WAIT) == 3

    again = add.schedule(unique="a sum").send(1, 2)

    assert (again.id, again.get(0)) == (first.id, 3)
    assert not waits.is_ready


def test_a_result_without_a_form_in_json_is_a_failure_with_what_to_do(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    sent = no_json.send()

    done()

    with pytest.raises(
        TaskFailed, match="InvalidParameter: result: Encoding objects of type object is unsupported: send"
    ):
        sent.get(WAIT)
    assert f"task {no_json.name}, message " in caplog.text
    assert "Traceback" not in caplog.text, "no line of the task raised it"
    with pytest.raises(ConfigurationError, match=r"declare it with @task\(results=True\)"):
        note.send("x").get(0)


@pytest.mark.parametrize("place", ["threads", "processes", "owned"])
def test_a_result_that_the_server_refuses_is_told_to_whoever_waits_and_in_the_dead_letter(
    client: Client, place: str, tmp_path: Path
) -> None:
    """It said that the last attempt did not end."""
    sent = task_jobs.too_large.send()
    by_place: dict[str, dict[str, Any]] = {
        "threads": {},
        "processes": {"processes": 1, "threads": 1},
        "owned": {"owned": True, "coordinator": LocalCoordinator("tasks", tmp_path)},
    }

    # A worker with offsets has the refusal before it lets the message go; one with leases is refused with its acknowledgement.
    said = "a message's body is" if place == "owned" else "see its dead letter$"
    with at_work(**by_place[place]), pytest.raises(TaskFailed, match=f"^its results are refused: {said}"):
        sent.get(WAIT)

    (reason,) = [DeadLetter.from_message(one).story.reason for one in client.iterate("mail-dead")]
    assert re.fullmatch("its results are refused: .* is 2097[0-9]* bytes; this server takes 1048576", reason), reason
    if place != "processes":
        assert NOTES == ["1 large", "2 large"]


def test_steps_of_a_chain_follow_each_other(client: Client) -> None:
    sent = add.then(double).then(add, y=100).send(1, 2)

    with at_work():
        assert sent.get(WAIT) == 106


@pytest.mark.parametrize("owned", [False, True], ids=["leased", "owned"])
def test_a_worker_that_ends_when_all_is_done_does_what_its_tasks_send(
    owned: bool, client: Client, tmp_path: Path
) -> None:
    add.then(double).then(add, y=100).then(note_number).send(1, 2)
    pass_on.send("on", 3)

    worker = done(owned=owned, coordinator=LocalCoordinator("default", tmp_path) if owned else None)

    assert sorted(NOTES) == ["0 on", "1 on", "106", "2 on", "3 on"]
    assert worker.all_done


def test_a_queue_for_results_that_was_deleted_is_made_again(client: Client) -> None:
    """Or each task would be run again and again, and end as a dead letter."""
    with at_work():
        first = add.send(1, 2)
        assert first.get(WAIT) == 3
        client.set_lease_group("numbers", "default", backoff={"first": 0, "most": 0})
        client.delete_queue("numbers-results")

        assert add.send(3, 4).get(WAIT) == 7


def test_a_step_that_fails_ends_its_chain(client: Client) -> None:
    sent = add.then(double).then(refuse, text="this").then(double).send(1, 2)

    with at_work(), pytest.raises(TaskFailed, match="this is none"):
        sent.get(WAIT)


def test_coroutines_run_at_once_and_functions_beside_them(client: Client) -> None:
    module = "tests.support.async_task_jobs"
    sent = async_task_jobs.meet.send_many([{"text": "a"}, {"text": "b"}])
    slow, plain = async_task_jobs.sleep.send(), async_task_jobs.plain.send()

    with at_work(module):
        assert [one.get(WAIT) for one in sent] == ["async", "async"]
        assert plain.get(WAIT) is False
        with pytest.raises(TaskFailed, match=r"it took longer than 0\.05 s"):
            slow.get(WAIT)


def test_coroutines_run_in_processes_too(client: Client) -> None:
    slow = async_task_jobs.sleep.send()

    with (
        at_work("tests.support.async_task_jobs", processes=1, threads=1),
        pytest.raises(TaskFailed, match=r"it took longer than 0\.05 s"),
    ):
        slow.get(WAIT)


def test_tasks_run_in_processes(client: Client) -> None:
    good, bad = add.then(double).send(1, 2), refuse.send("this")

    with at_work(processes=1, threads=1):
        assert good.get(WAIT) == 6
        with pytest.raises(TaskFailed, match="this is none"):
            bad.get(WAIT)


def test_owned_partitions_run_tasks_too(client: Client, tmp_path: Path) -> None:
    sent, bad = add.then(double).send(1, 2), refuse.send("this")

    with at_work(owned=True, coordinator=LocalCoordinator("tasks", tmp_path)):
        assert sent.get(WAIT) == 6
        with pytest.raises(TaskFailed, match="this is none"):
            bad.get(WAIT)
    assert [DeadLetter.from_message(one).story.reason for one in client.iterate("mail-dead")] == ["this is none"]


def test_a_worker_takes_queues_in_their_order(client: Client) -> None:
    note.send_many([{"text": "mail"}] * 30)
    task_jobs.urgent.send_many([{"text": "urgent"}] * 30)

    done(queues=["urgent", "mail"], in_order=True, threads=1)

    assert NOTES == ["urgent"] * 30 + ["mail"] * 30


def test_weights_let_every_queue_have_its_turn(client: Client) -> None:
    note.send_many([{"text": "mail"}] * 100)
    task_jobs.urgent.send_many([{"text": "urgent"}] * 100)

    done(queues=["urgent", "mail"], weights={"urgent": 1000}, threads=1, prefetch_messages=1)

    assert sorted(NOTES) == ["mail"] * 100 + ["urgent"] * 100
    assert NOTES[:50].count("urgent") > 25


def test_more_retries_than_the_group_allows_raise_what_it_allows(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_queue("mail")
    client.set_lease_group("mail", "default", max_failures=1)

    with at_work():
        eventually(lambda: client.lease_group("mail", "default").settings["max_failures"] == 6)


@pytest.mark.parametrize(
    ("modules", "options", "said"),
    [
        (["no.such"], {}, "module no.such cannot be imported"),
        (["no/such.py"], {}, r"module no/such.py cannot be imported: .*; a module has a name, no path: no\.such"),
        (["json"], {}, "module json has no task"),
        ([MODULE], {"queues": ["nail"]}, "no task is sent to queue nail: expected mail"),
        ([MODULE], {"lease": True}, "lease is no option of a worker on tasks"),
        ([MODULE], {"in_order": True, "weights": {"mail": 2}}, "in_order leaves nothing to draw"),
        ([MODULE], {"weights": {"mail": 0}}, "weight of queue mail is 0: expected 1 to 1000"),
        ([MODULE], {"owned": True, "in_order": True}, "for queues that workers lease from"),
    ],
)
def test_what_is_wrong_is_refused_at_start(modules: list[str], options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        TaskWorker(modules, **options)


def test_a_message_has_the_form_that_the_page_describes(client: Client) -> None:
    add.then(double, number=3).send(1, 2)

    (message,) = client.read("numbers").messages
    assert (json.loads(message.body), message.content_type) == ({"x": 1, "y": 2}, "application/json")
    assert {name: value.decode() for name, value in message.headers.items()} == {
        "queuey-task": add.name,
        "queuey-task-results": "numbers-results",
        "queuey-task-then": json.dumps(
            [{"task": double.name, "queue": "numbers", "arguments": {"number": 3}, "into": None}],
            separators=(",", ":"),
        ),
    }
    assert isinstance(add, DeclaredTask)
