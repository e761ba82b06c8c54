"""Very many small queues, divided by hash slots: as much in ZooKeeper as a few, and nothing lost when a worker dies (G16)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from qdo import Client, Context, Message, NewMessage, Worker
from qdo.groups.hash_slots import SLOTS
from qdo.groups.local import LocalCoordinator
from qdo.groups.offsets_in_queuey import OffsetsInQueuey
from qdo.worker import sweeps
from queuey.errors import ConfigurationError
from tests.support.client import new_name
from tests.support.member_work import member_of
from tests.support.servers import eventually
from tests.support.services.fixtures import Reached
from tests.support.slots import NotingJob, Run, both_stores, make_queues, moment, owner_of
from tests.support.work_processes import WAIT_SECONDS, WorkProcesses

MOST_NODES = 3 * SLOTS + 20
"""Claim, owner and offset of each slot; members, the plan and folders."""


def nodes_below(zookeeper: KazooClient, path: str) -> int:
    return 1 + sum(nodes_below(zookeeper, f"{path}/{child}") for child in zookeeper.get_children(path))


@pytest.mark.parametrize(
    ("server", "count"),
    [
        ("shipped", 1500),
        ("delayed", 300),
        pytest.param("shipped", 20_000, marks=pytest.mark.long),
    ],
    indirect=["server"],
)
@pytest.mark.drawn
def test_small_queues_are_all_worked_on_though_a_worker_dies(
    processes: WorkProcesses, make_client: Callable[[], Client], zookeeper: Reached, count: int
) -> None:
    names = make_queues(make_client, count)
    root = f"/slots-{new_name()}"
    processes.environment["QDO_ZOOKEEPER"] = zookeeper.hosts + root
    with make_client() as client:
        for name in names[::10]:
            client.append_batch(name, [f"{name} first", f"{name} second"])
        workers = [
            processes.start("work", "jobs:note", "--queue", "u*", "--slots", "--session-seconds", "2") for _ in range(3)
        ]
        eventually(lambda: len(processes.notes) > len(names) // 20, seconds=90)
        workers.pop().kill()
        for name in names[5::10]:
            client.append(name, f"{name} later")

    wanted = {f"1 {name} {which}" for name in names[::10] for which in ("first", "second")}
    wanted |= {f"1 {name} later" for name in names[5::10]}
    eventually(lambda: wanted <= set(processes.notes), seconds=150)
    with make_client() as client:
        late = client.create_queue("u-late", partitions=2).name
        client.append(late, "a queue that came later")
    eventually(lambda: any("came later" in note for note in processes.notes), seconds=150)

    assert [processes.end(worker) for worker in workers] == [0, 0]
    noted = Counter(processes.notes)
    assert set(noted) == wanted | {note for note in noted if "came later" in note}
    firsts = {name: processes.notes.index(f"1 {name} first") for name in names[::10]}
    assert all(processes.notes.index(f"1 {name} second") > at for name, at in firsts.items())
    observer = KazooClient(zookeeper.hosts)
    observer.start()
    assert nodes_below(observer, root) <= MOST_NODES
    observer.stop()
    observer.close()


@pytest.mark.drawn
@both_stores
def test_queues_that_come_grow_go_and_are_made_anew_are_worked_on(run: Run, make_client: Callable[[], Client]) -> None:
    active, inactive = make_queues(make_client, 2)
    noted = NotingJob()
    run(noted)
    with make_client() as client:
        client.append(active, "first")
        noted.until("first")
        for name in (active, inactive):
            client.create_queue(name, partitions=3)
            client.append(name, NewMessage(f"{name} grown", partition=3))
        noted.until(f"{active} grown", f"{inactive} grown")
        client.delete_queue(active)
        client.create_queue(active)
        client.append(active, "anew")
        client.create_queue("u-later", partitions=2)
        client.append("u-later", NewMessage("later", partition=2))
        noted.until("anew", "later")

    assert Counter(noted.texts) == Counter(["first", f"{active} grown", f"{inactive} grown", "anew", "later"])


def test_a_group_divides_slots_or_partitions_but_not_both(
    run: Run, tmp_path: Path, make_client: Callable[[], Client]
) -> None:
    make_queues(make_client, 1)
    first = run(NotingJob())
    eventually(lambda: member_of(first).group.settled, seconds=WAIT_SECONDS)
    other = Worker(print, ["u*"], LocalCoordinator("g", tmp_path, session_seconds=6.0), make_client, group="g")

    with pytest.raises(ConfigurationError, match="all of them work with --slots, or none"):
        other.run()

    eventually(lambda: member_of(first).group.settled, seconds=WAIT_SECONDS)  # a stall may have ended its session


def test_slots_may_begin_at_the_end_and_whoever_comes_next_begins_there(
    run: Run, make_client: Callable[[], Client], outside: OffsetsInQueuey
) -> None:
    """Also in queues in which nobody ever finished anything."""
    first, second, third = make_queues(make_client, 3)
    noted, later = NotingJob(), NotingJob()
    go, begun = threading.Event(), threading.Event()
    with make_client() as client:
        for name in (first, second, third):
            last = client.append_batch(name, ["old", "older"])[-1].id

        def hangs(message: Message, context: Context) -> None:
            begun.set()
            go.wait(120)
            noted(message, context)

        worker = run(hangs, from_end=True)
        eventually(lambda: moment(outside, first) > last.ticks, seconds=WAIT_SECONDS)
        client.append(first, "new")
        assert begun.wait(WAIT_SECONDS)
        worker.stop(at_once=True)
        client.append(second, "newer")
        eventually(lambda: not outside.members(), seconds=WAIT_SECONDS)
        run(later, from_end=True)
        later.until("new", "newer")
        client.append(third, "newest")
        later.until("newest")
    go.set()

    assert Counter(later.texts) == Counter(["new", "newer", "newest"])
    assert not {"old", "older"} & {*noted.texts, *later.texts}


def test_a_group_that_begins_at_the_end_before_there_is_a_queue_gets_all_that_comes(
    run: Run, make_client: Callable[[], Client]
) -> None:
    noted = NotingJob()
    slots = owner_of(run(noted, from_end=True))
    eventually(lambda: slots.table.slots and slots.at_end(), seconds=WAIT_SECONDS)

    (name,) = make_queues(make_client, 1)
    with make_client() as client:
        client.append(name, "first")

    noted.until("first")


@pytest.mark.parametrize("exits", [0, 30])
def test_a_backlog_in_slots_has_an_end(tmp_path: Path, make_client: Callable[[], Client], exits: int) -> None:
    names = make_queues(make_client, exits)
    noted = NotingJob()
    with make_client() as client:
        for name in names[::3]:
            client.append_batch(name, [f"{name} {number}" for number in range(5)])
    worker = Worker(noted, ["u*"], LocalCoordinator("g", tmp_path), make_client, slots=True, exit_at_end=True)

    worker.run()

    assert len(noted.texts) == len(names[::3]) * 5
    assert all(texts == sorted(texts) for texts in noted.places.values())


@both_stores
def test_a_worker_that_ends_does_what_its_jobs_send_to_idle_queues(
    tmp_path: Path, make_client: Callable[[], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "HEAR_SECONDS", 3600)  # the server does not say in time where there is something
    names = make_queues(make_client, 3)
    noted: list[str] = []

    def pass_on(message: Message, context: Context) -> None:
        noted.append(message.text)
        if number := int(message.text):
            with make_client() as client:
                client.append(names[number - 1], str(number - 1))

    with make_client() as client:
        client.append(names[2], "2")
    worker = Worker(pass_on, ["u*"], LocalCoordinator("g", tmp_path), make_client, slots=True, exit_at_end=True)

    worker.run()

    assert (noted, worker.all_done) == (["2", "1", "0"], True)
