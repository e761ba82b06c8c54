"""Offsets of queues in slots: set back, overtaken, and shown by the commands."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from qdo import Client, Context, Message
from qdo.groups.assign import Partition
from qdo.groups.hash_slots import SLOTS
from qdo.groups.offsets_in_queuey import OffsetsInQueuey
from qdo.groups.view import view_of
from qdo.worker.sweeps import RESETS
from tests.support.member_work import member_of
from tests.support.servers import eventually
from tests.support.slots import NotingJob, Run, both_stores, make_queues, moment, owner_of
from tests.support.work_processes import WAIT_SECONDS, WorkProcesses


@both_stores
@pytest.mark.drawn
def test_an_offset_that_is_set_back_is_found_by_who_is_at_work_and_by_who_comes(
    run: Run, make_client: Callable[[], Client], outside: OffsetsInQueuey
) -> None:
    """Though nothing new came: the slot's moment is set back with it."""
    (name,) = make_queues(make_client, 1)
    noted, again = NotingJob(), NotingJob()
    first = run(noted)
    with make_client() as client:
        last = client.append_batch(name, ["a", "b"])[-1].id
        noted.until("a", "b")
        eventually(lambda: moment(outside, name) > last.ticks, seconds=WAIT_SECONDS)

        outside.reset({Partition(name, 1): None})
        eventually(lambda: noted.texts == ["a", "b", "a", "b"], seconds=WAIT_SECONDS)
        eventually(lambda: moment(outside, name) > last.ticks, seconds=WAIT_SECONDS)
        first.stop()
        eventually(lambda: not outside.members(), seconds=WAIT_SECONDS)
        outside.reset({Partition(name, 1): None})
        run(again)

        again.until("a", "b")
        (offset,) = client.offsets(name, "g")
    assert again.texts == ["a", "b"]
    assert offset.generation > RESETS


@both_stores
def test_a_commit_that_was_overtaken_is_refused_and_the_queue_taken_over_anew(
    run: Run, make_client: Callable[[], Client]
) -> None:
    """G14: somebody set the offset of an active queue by REST alone, right under its owner."""
    (name,) = make_queues(make_client, 1)
    go, begun = threading.Event(), threading.Event()
    texts: list[str] = []

    def job(message: Message, context: Context) -> None:
        texts.append(message.text)
        begun.set()
        go.wait(120)

    worker = run(job)
    with make_client() as client:
        client.append_batch(name, ["a", "b"])
        assert begun.wait(WAIT_SECONDS)
        client.reset_offsets(name, "g", "beginning")
        go.set()
        eventually(lambda: texts.count("a") == 2 and texts.count("b") >= 1, seconds=WAIT_SECONDS)
        eventually(lambda: client.offsets(name, "g")[0].id is not None, seconds=WAIT_SECONDS)

    assert worker.counts.refused


@both_stores
def test_commands_tell_of_queues_in_slots_and_set_their_offsets(
    processes: WorkProcesses, make_client: Callable[[], Client]
) -> None:
    first, second, quiet = make_queues(make_client, 3)
    with make_client() as client:
        client.append(first, "one")
        client.append_batch(second, ["two", "three"])
        client.append(client.create_queue("u-dead").name, "a dead letter")
        eventually(lambda: client.news([first, second], 0)[0] == {first, second})
    work = ("work", "jobs:note", "--queue", "u*", "--slots", "--exit-at-end")
    assert processes.run(*work).code == 0

    shown = processes.run("offsets", "show")
    assert [(row["queue"], row["lag_messages"]) for row in shown.rows] == [(first, 0), (second, 0)]
    told = json.loads(processes.run("status", "--json").text)
    assert (told["members"], told["lag_messages"], told["cut"]) == ([], 0, False)
    assert [slot["slot"] for slot in told["slots"]] == list(range(1, SLOTS + 1))
    assert processes.run("offsets", "set", second, "--to", "beginning", "--yes").code == 0
    behind = processes.run("check", "--max-lag", "1")
    assert (behind.code, behind.text.partition(" messages")[0]) == (1, f"{second}:1: lag 2")
    assert processes.run("check", "--max-lag", "1", "--queue", first).code == 0
    again = processes.run(*work)

    assert again.code == 0
    assert sorted(processes.notes) == ["1 one", "1 three", "1 three", "1 two", "1 two"]
    assert quiet not in processes.run("status").text


def test_queues_in_slots_are_told_largest_lag_first_and_no_more_than_asked_for(
    processes: WorkProcesses, make_client: Callable[[], Client]
) -> None:
    names = make_queues(make_client, 5)
    with make_client() as client:
        for name in names[3:]:
            client.append(name, "x")
        worker = processes.start("work", "jobs:wait", "--queue", "u*", "--slots", "--threads", "2")
        processes.until_noted("begun x")
        for name in names[:3]:
            client.append_batch(name, ["x"] * 3)

    told = processes.run("status", "--most", "2")
    everything = json.loads(processes.run("status", "--json").text)

    assert "256 slots" in told.text
    assert "in 5 of 5 queues" in told.text
    assert "3 more partitions" in told.err
    assert {row.split()[0] for row in told.text.splitlines() if row.startswith(names[0][:4])} == set(names[3:])
    assert everything["lag_messages"] == 11
    (processes.folder / "go").touch()
    assert processes.end(worker) == 0


def test_what_is_looked_at_is_bounded_and_said_to_be(
    run: Run, make_client: Callable[[], Client], outside: OffsetsInQueuey, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = make_queues(make_client, 6)
    go = threading.Event()
    worker = run(lambda _message, _context: go.wait(120))
    with make_client() as client:
        for name in names:
            client.append(name, "x")
        eventually(lambda: len(owner_of(worker).table.slots) == SLOTS)
        whole = view_of(client, outside, "g")
        monkeypatch.setattr("qdo.groups.view.MOST_QUEUES", 4)
        monkeypatch.setattr("qdo.groups.view.MOST_LOOKED_AT", 2)
        part, few = view_of(client, outside, "g"), view_of(client, outside, "g", idle_too=True)
        named = view_of(client, outside, "g", names[5:])
    go.set()

    assert [each.partition.queue for each in whole.found] == names
    assert {(each.lag and each.lag.messages, each.owner) for each in whole.found} == {(1, member_of(worker).group.name)}
    assert (whole.queues, whole.cut) == (6, False)
    assert ([each.partition.queue for each in part.found], part.queues, part.cut) == (names[:2], 4, True)
    assert (few.queues, few.cut) == (2, True)
    assert ([each.partition.queue for each in named.found], named.cut) == (names[5:], False)
