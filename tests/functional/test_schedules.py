"""Schedules on a real server: each occurrence once, changes, pauses, missed ones, and the command line."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qdo import Client, NewMessage
from qdo.tasks import TaskWorker
from qdo.tasks.schedules import (
    ALARMS,
    ALARMS_GROUP,
    CHANGE_SECONDS,
    SCHEDULES,
    Alarm,
    Schedule,
    ScheduleBook,
    ScheduleNotFound,
    SchedulePause,
)
from qdo.tasks.worker import ALARM_THREADS
from queuey.errors import ConfigurationError, LeaseGroupNotFound, QueueyError
from queuey.model.schedules import pause_place
from tests.support.client import Server
from tests.support.commands import Ended, run_in
from tests.support.schedules import EVERY_MINUTE, MINUTE, occurrences, on_alarms, overdue
from tests.support.servers import RunningServer, eventually
from tests.support.worker_threads import at_work

ALARMS_AT_ONCE = 24


@pytest.fixture
def server(shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[Server]:
    with Server(shipped_server, next_fresh()) as found:
        yield found


@pytest.fixture
def environment(server: Server) -> dict[str, str]:
    return {"QUEUEY_URL": server.url, "QUEUEY_APPLICATION": server.application, "QUEUEY_KEY": server.key or ""}


@pytest.fixture
def client(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("qdo.worker.leases.due.WAIT_SECONDS", 0.2)
    monkeypatch.setattr("qdo.worker.leases.due.POLL_SECONDS", 0.1)
    with Client() as found:
        yield found


@pytest.fixture
def book(client: Client) -> ScheduleBook:
    return ScheduleBook(client)


def held(client: Client) -> int:
    """Alarms that a worker has, or still has to get; 1 as long as none has looked."""
    try:
        group = client.lease_group(ALARMS, ALARMS_GROUP)
    except LeaseGroupNotFound:
        return 1
    return sum(part.held + (part.done_up_to is None) for part in group.partitions)


def test_all_that_were_missed_are_sent_once_in_their_order(client: Client, book: ScheduleBook) -> None:
    first = overdue(client, replace(EVERY_MINUTE, missed="all"), 30)

    with on_alarms(3):
        eventually(lambda: len(occurrences(client)) >= 30)

    found = occurrences(client)
    assert found == [first + number * MINUTE for number in range(len(found))]
    assert len(found) in (30, 31), "the minute may have ended meanwhile"


def test_one_that_was_missed_is_sent_and_then_those_to_come(client: Client, book: ScheduleBook) -> None:
    first = overdue(client, EVERY_MINUTE, 30)

    with on_alarms(2):
        eventually(lambda: occurrences(client))
        eventually(lambda: client.queue_info(ALARMS).scheduled == 1)

    assert occurrences(client)[0] == first
    assert len(occurrences(client)) <= 2


def test_what_was_missed_may_be_left_out(client: Client, book: ScheduleBook) -> None:
    overdue(client, replace(EVERY_MINUTE, missed="none"), 30)

    with on_alarms():
        eventually(lambda: client.queue_info(ALARMS).scheduled == 1)

    assert all(moment > book.now() - 2 * MINUTE for moment in occurrences(client))


def test_what_is_less_than_a_minute_late_was_not_missed(
    client: Client, book: ScheduleBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the alarm that a worker gets is an older one."""
    overdue(client, replace(EVERY_MINUTE, missed="none"), 30)
    now = (int(book.now()) // MINUTE + 2) * MINUTE + 1
    monkeypatch.setattr(ScheduleBook, "lately", lambda _: float(now))

    with on_alarms():
        eventually(lambda: client.queue_info(ALARMS).scheduled == 1)

    assert occurrences(client) == [now - 1]


def test_a_worker_asks_once_for_each_alarm_and_for_several_at_once(
    client: Client, book: ScheduleBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked four times for each, one after the other: ten thousand at one moment took minutes."""
    for number in range(ALARMS_AT_ONCE):
        overdue(client, replace(EVERY_MINUTE, name=f"report {number}"), 2)
    asked, looks = Counter[str](), threading.Barrier(ALARM_THREADS, timeout=30)

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counts(*values: Any, **how: Any) -> Any:
            if threading.current_thread().name.startswith("job-"):
                asked[name] += 1
                if name == "get" and asked[name] <= ALARM_THREADS:
                    looks.wait()
            return call(*values, **how)

        return counts

    for name in ("get", "find_queue", "read"):
        monkeypatch.setattr(Client, name, counted(name, getattr(Client, name)))
    with at_work(TaskWorker(["tests.support.task_jobs"], drain_seconds=2)):
        eventually(lambda: len(occurrences(client)) >= ALARMS_AT_ONCE)

    assert len(occurrences(client)) == ALARMS_AT_ONCE
    assert asked["get"] == ALARMS_AT_ONCE
    assert asked["find_queue"] + asked["read"] <= 3 * ALARM_THREADS


def test_a_queue_that_is_deleted_between_two_alarms_is_made_again(client: Client, book: ScheduleBook) -> None:
    first = overdue(client, replace(EVERY_MINUTE, name="one"), 2)
    with on_alarms():
        eventually(lambda: occurrences(client))
        client.delete_queue("reports")
        overdue(client, replace(EVERY_MINUTE, name="two"), 2)
        eventually(lambda: occurrences(client))

    assert occurrences(client)[0] >= first


def test_schedules_that_are_made_anew_are_found_by_a_worker_that_knew_others(
    client: Client, book: ScheduleBook
) -> None:
    overdue(client, replace(EVERY_MINUTE, name="one"), 2)
    with on_alarms():
        eventually(lambda: occurrences(client))
        client.delete_queue(SCHEDULES)
        overdue(client, replace(EVERY_MINUTE, name="two"), 2)
        eventually(lambda: len(occurrences(client)) > 1)

    assert {message.headers["queuey-schedule"] for message in client.iterate("reports")} == {b"one", b"two"}


def test_a_message_has_what_the_schedule_says(client: Client, book: ScheduleBook) -> None:
    first = overdue(client, replace(EVERY_MINUTE, task="jobs.report", body='{"kind":"long"}'), 2)

    with on_alarms():
        eventually(lambda: occurrences(client))

    message = next(iter(client.iterate("reports")))
    assert (message.text, message.content_type) == ('{"kind":"long"}', "application/json")
    assert {name: value.decode() for name, value in message.headers.items()} == {
        "queuey-task": "jobs.report",
        "queuey-schedule": "report",
        "queuey-occurrence": str(first),
    }


def test_two_alarms_of_one_moment_are_one_occurrence_and_one_chain(client: Client, book: ScheduleBook) -> None:
    first = overdue(client, replace(EVERY_MINUTE, missed="all"), 5)
    found = book.get("report")
    assert found is not None
    again = Alarm.at(first, found).to_message(book.now())
    client.append(ALARMS, replace(again, idempotency_key="another"))

    with on_alarms(2):
        eventually(lambda: len(occurrences(client)) >= 5)

    assert sorted({*occurrences(client)}) == occurrences(client)


def test_setting_it_again_changes_nothing_and_a_change_leaves_no_moment_out(client: Client, book: ScheduleBook) -> None:
    wanted = replace(EVERY_MINUTE, missed="all")
    first = overdue(client, wanted, 10)
    assert not book.set(wanted)

    assert book.set(replace(wanted, body="changed"))
    changed = book.get("report")
    assert changed is not None
    # The alarms of what it was are its own up to the change, and no others.
    with on_alarms(2):
        eventually(lambda: len(occurrences(client)) >= (changed.since - first) // MINUTE + 1)

    before = [one for one in client.iterate("reports") if one.text == "go"]
    assert [int(one.headers["queuey-occurrence"]) for one in before] == [*range(first, changed.since + 1, MINUTE)]


@pytest.mark.parametrize("paused", [True, False])
def test_a_worker_that_keeps_a_schedule_undoes_no_change(client: Client, book: ScheduleBook, paused: bool) -> None:
    """It may have read this one before it was paused, resumed, changed or removed, and its answer may come late."""
    book.set(EVERY_MINUTE)
    book.pause("report", paused=not paused)
    before = book.get("report")
    assert before is not None
    later = before.written + 31 * 86_400

    book.pause("report", paused=paused)
    book.keep(before, later)
    found = book.get("report")
    assert (found is not None and found.paused, found is not None and found.copied > 0) == (paused, True)

    book.set(replace(EVERY_MINUTE, body="other"))
    book._start(before, before.line)
    book.keep(before, later)
    changed = book.get("report")
    assert (changed is not None and changed.body, changed is not None and changed.paused) == ("other", paused)

    book.remove("report")
    book.keep(before, later)
    assert book.get("report") is None
    assert [*book.all()] == []

    book.set(EVERY_MINUTE)
    made = book.get("report")
    assert made is not None
    assert not made.paused, "the copy is of the one that was removed"


def test_a_copy_counts_where_a_schedule_and_its_pause_have_expired(client: Client, book: ScheduleBook) -> None:
    book.set(EVERY_MINUTE)
    before = book.pause("report", paused=True)
    book.keep(before, before.written + 31 * 86_400)
    place = book._place("report")
    client.delete(SCHEDULES, [place, pause_place(place)])  # as if they had

    found = book.get("report")
    assert found is not None
    assert (found.paused, found.what, found.revision) == (True, before.what, before.revision)
    assert [one.name for one in book.all()] == ["report"]
    book.keep(found, found.copied + 29 * 86_400)
    assert book.set(replace(EVERY_MINUTE, body="other"))
    changed = book.get("report")
    assert changed is not None
    assert (changed.body, changed.paused) == ("other", True)
    assert not book.pause("report", paused=False).paused
    resumed = book.get("report")
    assert resumed is not None
    assert not resumed.paused


class SlowBook(ScheduleBook):
    """The server takes ten seconds to store what it writes first. The clock is the test's."""

    at = 0.0
    waits = 10.0

    def now(self) -> float:
        return self.at

    def _put(self, schedule: Schedule) -> None:
        super()._put(schedule)
        self.at, self.waits = self.at + self.waits, 0.0


def test_a_change_that_is_stored_late_leaves_no_moment_out(client: Client, book: ScheduleBook) -> None:
    """It was to take effect before it was there, so it is made again: what is due between the two is sent as well."""
    wanted = replace(EVERY_MINUTE, missed="all")
    book.set(wanted)
    first = int(book.now()) // MINUTE * MINUTE - 5 * MINUTE
    slow = SlowBook(client)
    slow.at = first - CHANGE_SECONDS - 3

    slow.set(replace(wanted, body="changed"))
    with on_alarms(2):
        eventually(lambda: len(occurrences(client)) >= 5)

    assert sorted(occurrences(client))[:5] == [first + number * MINUTE for number in range(5)]


def test_a_schedule_does_not_expire_before_an_occurrence_that_is_years_away(client: Client, book: ScheduleBook) -> None:
    """Its alarm comes each 300 days until then."""
    leap = replace(EVERY_MINUTE, cron="0 0 29 2 *", revision="first", started=True)
    book._make_queues()
    body = msgspec.json.encode(leap)  # written in 1970
    client.put(SCHEDULES, book._place(leap.name), NewMessage(body, ttl_seconds=3600, content_type="application/json"))
    moment = int(book.now()) + 1000 * 86_400
    client.append(ALARMS, NewMessage(msgspec.json.encode(Alarm.at(moment, leap)), content_type="application/json"))

    with on_alarms():
        eventually(lambda: client.queue_info(ALARMS).scheduled == 1)

    found = book.get(leap.name)
    assert found is not None
    assert found.copied > book.now() - MINUTE


def test_a_paused_schedule_sends_nothing_and_its_alarms_go_on(client: Client, book: ScheduleBook) -> None:
    first = overdue(client, replace(EVERY_MINUTE, missed="all"), 5)
    book.pause("report", paused=True)

    with on_alarms():
        eventually(lambda: client.queue_info(ALARMS).scheduled == 1)
    assert occurrences(client) == []

    book.set(replace(EVERY_MINUTE, missed="all", body="other"))
    found = book.get("report")
    assert (found is not None and found.paused, first > 0) == (True, True)
    assert not book.pause("report", paused=False).paused


@pytest.mark.parametrize("missed", ["one", "all"])
def test_what_came_due_in_a_pause_is_not_sent_after_it_though_no_worker_ran_in_it(
    client: Client, book: ScheduleBook, missed: str
) -> None:
    first = overdue(client, replace(EVERY_MINUTE, missed=missed), 10)
    ended = first + 5 * MINUTE
    book._put_pause("report", SchedulePause(until=ended))

    with on_alarms():
        eventually(lambda: client.queue_info(ALARMS).scheduled == 1)

    assert occurrences(client)[0] == ended + MINUTE


@pytest.mark.parametrize("paused", [True, False])
def test_a_pause_and_a_change_at_once_both_count(
    client: Client, book: ScheduleBook, paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each comes between what the other one reads and what it writes."""
    book.set(EVERY_MINUTE)
    book.pause("report", paused=not paused)
    stores = ScheduleBook._put_at

    def paused_first(self: ScheduleBook, place: str, body: bytes) -> None:
        monkeypatch.setattr(ScheduleBook, "_put_at", stores)
        book.pause("report", paused=paused)
        stores(self, place, body)

    def changed_first(self: ScheduleBook, place: str, body: bytes) -> None:
        monkeypatch.setattr(ScheduleBook, "_put_at", stores)
        book.set(replace(EVERY_MINUTE, body="third"))
        stores(self, place, body)

    monkeypatch.setattr(ScheduleBook, "_put_at", paused_first)
    ScheduleBook(client).set(replace(EVERY_MINUTE, body="second"))
    found = book.get("report")
    assert found is not None
    assert (found.paused, found.body) == (paused, "second")

    monkeypatch.setattr(ScheduleBook, "_put_at", changed_first)
    ScheduleBook(client).pause("report", paused=not paused)
    found = book.get("report")
    assert found is not None
    assert (found.paused, found.body) == (not paused, "third")


def test_what_is_no_schedule_is_passed_over(
    client: Client, book: ScheduleBook, environment: dict[str, str], tmp_path: Path
) -> None:
    """Somebody sends to the queue of schedules by mistake, and makes it with one partition."""
    client.create_queue(SCHEDULES)
    client.append_batch(SCHEDULES, ["hello", b'{"name": "\xff"}', '{"name": ' + "[" * 50_000])
    assert book.get("report") is None
    book.set(EVERY_MINUTE)
    client.put(SCHEDULES, book._place("other"), '{"name": "other"}')

    ended = run_in(environment, tmp_path, "schedule", "ls")

    assert ([row["name"] for row in ended.rows], ended.code) == (["report"], 0)
    assert book.get("other") is None
    assert book.pause("report", paused=True).paused


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"queue": "no/slash"}, "queue_name: must be 1 to 50"),
        ({"queue": ""}, "queue_name: must not be empty"),
        ({"name": ""}, "expected a name of 1 to 256"),
        ({"name": "two\nlines"}, "expected a name of 1 to 256"),
        ({"task": "shop.add\nx: y"}, "task is 'shop.add"),
        ({"task": ""}, "task is ''"),
        ({"missed": "never"}, "missed is 'never': expected one of one, all, none"),
    ],
)
def test_a_schedule_that_no_worker_could_send_is_refused(
    client: Client, book: ScheduleBook, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(QueueyError, match=said):
        book.set(replace(EVERY_MINUTE, **wrong))

    assert list(book.all()) == []


def test_a_schedule_that_was_removed_sends_nothing(client: Client, book: ScheduleBook) -> None:
    overdue(client, EVERY_MINUTE, 5)
    book.remove("report")

    with on_alarms():
        eventually(lambda: not held(client))

    assert (occurrences(client), list(book.all())) == ([], [])
    with pytest.raises(ScheduleNotFound, match="no schedule is named report"):
        book.remove("report")


def test_a_schedule_whose_first_alarm_was_never_stored_gets_it(
    client: Client, book: ScheduleBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that sets it dies in between."""
    with monkeypatch.context() as dying:
        dying.setattr(ScheduleBook, "_start", lambda *_: None)
        book.set(EVERY_MINUTE)
    assert client.queue_info(ALARMS).depth == 0

    assert not book.set(EVERY_MINUTE)
    assert client.queue_info(ALARMS).scheduled == 1


def test_an_occurrence_that_is_far_ahead_has_an_alarm_on_the_way(client: Client, book: ScheduleBook) -> None:
    """A leap day may be four years ahead, and a delivery time at most 366 days."""
    book.set(replace(EVERY_MINUTE, cron="0 0 29 2 *"))

    assert client.queue_info(ALARMS).scheduled == 1


def test_a_schedule_that_is_wrong_is_refused_before_anything_is_stored(client: Client, book: ScheduleBook) -> None:
    with pytest.raises(ConfigurationError, match="expected a time zone"):
        book.set(replace(EVERY_MINUTE, tz="Berlin"))

    assert list(client.queues()) == []


def test_the_command_line(environment: dict[str, str], tmp_path: Path) -> None:
    def run(*arguments: str) -> Ended:
        return run_in(environment, tmp_path, "schedule", *arguments)

    added = run("add", "ping", "hello", "--cron", "0 6 * * *", "--tz", "Europe/Berlin", "--queue", "pings")
    task = run(
        "add", "rep", "{}", "--cron", "*/5 * * * *", "--queue", "reports", "--task", "jobs.report", "--missed", "all"
    )
    paused = run("pause", "ping")

    assert (added.code, task.code, paused.code) == (0, 0, 0)
    rows = run("ls").rows
    assert [(row["name"], row["task"], row["missed"], row["paused"]) for row in rows] == [
        ("ping", None, "one", True),
        ("rep", "jobs.report", "all", False),
    ]
    assert (rows[0]["next"], str(rows[1]["next"]).endswith("0Z")) == (None, True)
    again = run("add", "ping", "hello", "--cron", "0 6 * * *", "--tz", "Europe/Berlin", "--queue", "pings")
    assert again.err == "ping was like this already\n"
    assert run("resume", "ping").rows[0]["paused"] is False
    assert run("rm", "ping", "--yes").code == 0
    assert (run("rm", "ping", "--yes").code, run("pause", "ping").code) == (3, 3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("x", "--cron", "* * * * *", "--queue", "q"), "Missing argument 'BODY'"),
        (("x", "no", "--cron", "* * * * *", "--queue", "q", "--task", "t"), "it is no JSON"),
        (("x", "[" * 100_000, "--cron", "* * * * *", "--queue", "q", "--task", "t"), "it is no JSON"),
        (("x", "[1]", "--cron", "* * * * *", "--queue", "q", "--task", "t"), "a JSON object of arguments"),
        (("x", "hello", "--cron", "61 * * * *", "--queue", "q"), "cron is '61 * * * *'"),
    ],
)
def test_what_is_wrong_on_the_line_is_refused(
    environment: dict[str, str], tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    ended = run_in(environment, tmp_path, "schedule", "add", *arguments)

    assert (ended.code, said in ended.err) == (2, True), ended.err
