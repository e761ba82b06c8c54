"""The moment of a slot: what is not finished lies behind it, and a sweep finds what the server did not report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from qdo import ChangedQueues, Client, Context, Message, NewMessage, Worker
from qdo.groups.hash_slots import every_slot
from qdo.groups.local import LocalCoordinator
from qdo.groups.offsets_in_queuey import OffsetsInQueuey
from qdo.worker.slots import SlotTable
from tests.support.member_work import member_of
from tests.support.servers import eventually
from tests.support.slots import NotingJob, Run, both_stores, make_queues, moment, owner_of
from tests.support.work_processes import WAIT_SECONDS

MAX_TICKS = 1 << 59


@both_stores
@pytest.mark.drawn
def test_a_moment_never_passes_what_is_not_finished(
    run: Run, make_client: Callable[[], Client], outside: OffsetsInQueuey
) -> None:
    """Or the next owner would not look for it."""
    names = make_queues(make_client, 40)
    go, begun = threading.Event(), threading.Event()

    def hangs(message: Message, context: Context) -> None:
        if context.queue == names[0]:
            begun.set()
            go.wait(120)

    with make_client() as client:
        held = client.append(names[0], "held").id
        client.append(names[1], "other")
    first = run(hangs)
    assert begun.wait(WAIT_SECONDS)
    eventually(lambda: moment(outside, names[1]) > held.ticks, seconds=WAIT_SECONDS)
    assert moment(outside, names[0]) < held.ticks

    first.stop(at_once=True)
    noted = NotingJob()
    run(noted)

    noted.until("held")
    go.set()
    eventually(lambda: moment(outside, names[0]) > held.ticks, seconds=WAIT_SECONDS)
    assert "other" not in noted.texts


def test_a_moment_that_runs_ahead_is_found(
    run: Run, make_client: Callable[[], Client], outside: OffsetsInQueuey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test before would find: a slot that counts as finished what is under way."""
    monkeypatch.setattr(SlotTable, "floor_of", lambda _self, _queue: MAX_TICKS)
    (name,) = make_queues(make_client, 1)
    go = threading.Event()
    with make_client() as client:
        held = client.append(name, "held").id
    first = run(lambda _message, _context: go.wait(120))
    eventually(lambda: moment(outside, name) > held.ticks, seconds=WAIT_SECONDS)

    first.stop(at_once=True)
    eventually(lambda: not outside.members(), seconds=WAIT_SECONDS)
    noted = NotingJob()
    second = run(noted)
    eventually(lambda: member_of(second).group.settled and owner_of(second).at_end())

    assert noted.texts == []
    go.set()


def test_a_slot_that_goes_while_it_is_swept_keeps_its_moment(
    make_client: Callable[[], Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the sweep finds then is its next owner's."""
    names = make_queues(make_client, 3)
    coordinator = LocalCoordinator("g", tmp_path)
    worker = Worker(print, ["u*"], coordinator, make_client, slots=True)
    slots = owner_of(worker)
    coordinator.join({})
    claims = coordinator.claim(every_slot())
    slots.gained(claims)
    news = Client.news

    def goes_meanwhile(self: Client, queues: Sequence[str], since_ticks: int) -> tuple[set[str], int]:
        if len(queues) == len(names):
            slots.losing(list(claims))
        return news(self, queues, since_ticks)

    with make_client() as client:
        client.append(names[0], "found too late")
        monkeypatch.setattr(Client, "news", goes_meanwhile)
        slots.sweeper.sweep(client, threading.Event())

    assert set(slots.drained(list(claims))) == set(claims)
    assert coordinator.offsets() == {}
    coordinator.close()


@pytest.mark.drawn
def test_news_need_no_sweep(run: Run, make_client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """A million queues are swept for minutes; what the server tells is worked on at once."""
    monkeypatch.setattr("qdo.worker.sweeps.LEAST_REST_SECONDS", 3600.0)
    inactive, grown, gone = make_queues(make_client, 3)
    noted = NotingJob()
    slots = owner_of(run(noted))
    eventually(lambda: slots.table.slots and slots.at_end(), seconds=WAIT_SECONDS)
    before = [slot.sweeps for slot in slots.table.slots.values()]
    with make_client() as client:
        client.append(gone, "gone")
        client.append(grown, "grows")
        noted.until("gone", "grows")
        client.append_batch(gone, [f"gone {number}" for number in range(3000)])
        client.delete_queue(gone)
        client.create_queue(grown, partitions=4)
        client.append(grown, NewMessage("grown", partition=4))
        client.append(inactive, "inactive")
        client.create_queue("other")
        client.append("other", "not meant")
        client.create_queue("u-new", partitions=2)
        client.append("u-new", NewMessage("new", partition=2))
        client.append("u-new", NewMessage("later", delay_seconds=2))
        noted.until("grown", "inactive", "new", "later")
        eventually(lambda: not slots.table.active, seconds=WAIT_SECONDS)

    assert [slot.sweeps for slot in slots.table.slots.values()] == before
    assert "not meant" not in noted.texts


def test_who_takes_over_is_told_what_came_lately_and_waits_for_no_sweep(
    run: Run, make_client: Callable[[], Client], outside: OffsetsInQueuey
) -> None:
    left, done = make_queues(make_client, 2)
    go, begun = threading.Event(), threading.Event()

    def hangs(message: Message, context: Context) -> None:
        if context.queue == left:
            begun.set()
            go.wait(120)

    first = run(hangs)
    eventually(lambda: owner_of(first).table.slots and owner_of(first).at_end(), seconds=WAIT_SECONDS)
    with make_client() as client:
        client.append(done, "done")
        client.append(left, "left")
        assert begun.wait(WAIT_SECONDS)
        eventually(lambda: client.offsets(done, "g")[0].id is not None, seconds=WAIT_SECONDS)
    first.stop(at_once=True)
    eventually(lambda: not outside.members(), seconds=WAIT_SECONDS)

    noted = NotingJob()
    second = run(noted, sweeps=False)

    noted.until("left")
    go.set()
    eventually(lambda: second.counts.done == 1)
    assert noted.texts == ["left"]


def test_a_sweep_finds_what_the_server_did_not_tell(
    run: Run, make_client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "arrivals", lambda *_, **__: ChangedQueues((), "", more=False, complete=False))
    (name,) = make_queues(make_client, 1)
    noted = NotingJob()
    slots = owner_of(run(noted))
    eventually(lambda: slots.table.slots and slots.at_end(), seconds=WAIT_SECONDS)

    with make_client() as client:
        client.append(name, "untold")

    noted.until("untold")
