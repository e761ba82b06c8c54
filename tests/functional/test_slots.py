"""Very many small queues, divided by hash slots: as much in ZooKeeper as a few, and nothing lost when a worker dies (G16)."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from qdo import ChangedQueues, Client, Context, Message, NewMessage, Worker
from qdo.groups.assign import Partition
from qdo.groups.hash_slots import ALL, SLOTS, every_slot, slot_of
from qdo.groups.local import LocalCoordinator
from qdo.groups.offsets_in_queuey import OffsetsInQueuey
from qdo.groups.view import view_of
from qdo.worker.job import Job
from qdo.worker.owners import SlotOwner
from qdo.worker.slots import SlotTable
from qdo.worker.sweeps import RESETS
from queuey.errors import ConfigurationError
from tests.support.client import Server, new_name
from tests.support.servers import RunningServer, eventually
from tests.support.services.fixtures import Reached
from tests.support.work_processes import WAIT_SECONDS, WorkProcesses, processes_in

MOST_NODES = 3 * SLOTS + 20
"""Claim, owner and offset of each slot; members, the plan and folders."""
MAX_TICKS = 1 << 59
Run = Callable[..., Worker]


@pytest.fixture
def server(request: pytest.FixtureRequest, next_fresh: Callable[[], str]) -> Iterator[Server]:
    """An application without any queue, embedded; a test of :data:`both_stores` also runs over Cassandra, with its read delay."""
    running = request.getfixturevalue(f"{getattr(request, 'param', 'shipped')}_server")
    assert isinstance(running, RunningServer)
    with Server(running, next_fresh()) as found:
        yield found


both_stores = pytest.mark.parametrize("server", ["shipped", "delayed"], indirect=True)


@pytest.fixture
def make_client(server: Server) -> Callable[[], Client]:
    return lambda: Client(server.url, server.application, server.key)


@pytest.fixture
def processes(tmp_path: Path, server: Server) -> Iterator[WorkProcesses]:
    with processes_in(tmp_path, server) as found:
        yield found


def make_queues(make_client: Callable[[], Client], count: int, prefix: str = "u") -> list[str]:
    names = [f"{prefix}{number:05d}" for number in range(count)]

    def make(some: list[str]) -> None:
        with make_client() as client:
            for name in some:
                client.create_queue(name, partitions=1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, (names[at::8] for at in range(8))))
    return names


def owner_of(worker: Worker) -> SlotOwner:
    assert isinstance(worker._owner, SlotOwner)
    return worker._owner


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


# One process, and a group of this machine


@pytest.fixture
def run(tmp_path: Path, make_client: Callable[[], Client]) -> Iterator[Callable[..., Worker]]:
    """A worker in a thread of its own; ended with the test."""
    started: list[tuple[Worker, threading.Thread]] = []

    def start(job: Job, *, sweeps: bool = True, **more: Any) -> Worker:
        worker = Worker(
            job,
            ["u*"],
            LocalCoordinator("g", tmp_path, session_seconds=6.0),
            make_client,
            group="g",
            slots=True,
            **more,
        )
        if not sweeps:
            owner_of(worker).sweeper._list_queues = lambda client: iter(())
        thread = threading.Thread(target=worker.run)
        thread.start()
        started.append((worker, thread))
        return worker

    yield start
    for worker, thread in started:
        worker.stop(at_once=True)
        thread.join(90)


@pytest.fixture
def outside(tmp_path: Path, make_client: Callable[[], Client]) -> Iterator[OffsetsInQueuey]:
    """Who looks at the group."""
    found = OffsetsInQueuey(LocalCoordinator("g", tmp_path), make_client(), "g")
    yield found
    found.close()


class NotingJob:
    """A job that notes what it got."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.places: dict[tuple[str, int], list[str]] = {}

    def __call__(self, message: Message, context: Context) -> None:
        self.texts.append(message.text)
        self.places.setdefault((context.queue, context.partition), []).append(message.text)

    def until(self, *texts: str) -> None:
        eventually(lambda: set(texts) <= set(self.texts), seconds=WAIT_SECONDS)


def moment(outside: OffsetsInQueuey, queue: str) -> int:
    at = outside.offsets().get(Partition(ALL, slot_of(queue)))
    return 0 if at is None else at.message_id.ticks


@both_stores
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
    eventually(lambda: second.group.settled and owner_of(second).at_end())

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


@both_stores
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


def test_a_group_divides_slots_or_partitions_but_not_both(
    run: Run, tmp_path: Path, make_client: Callable[[], Client]
) -> None:
    make_queues(make_client, 1)
    first = run(NotingJob())
    eventually(lambda: first.group.settled, seconds=WAIT_SECONDS)
    other = Worker(print, ["u*"], LocalCoordinator("g", tmp_path, session_seconds=6.0), make_client, group="g")

    with pytest.raises(ConfigurationError, match="all of them work with --slots, or none"):
        other.run()

    eventually(lambda: first.group.settled, seconds=WAIT_SECONDS)  # a stall may have ended its session


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
def test_commands_tell_of_queues_in_slots_and_set_their_offsets(
    processes: WorkProcesses, make_client: Callable[[], Client]
) -> None:
    first, second, quiet = make_queues(make_client, 3)
    with make_client() as client:
        client.append(first, "one")
        client.append_batch(second, ["two", "three"])
        client.append(client.create_queue("u.dead").name, "a dead letter")
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
    assert {(each.lag and each.lag.messages, each.owner) for each in whole.found} == {(1, worker.group.name)}
    assert (whole.queues, whole.cut) == (6, False)
    assert ([each.partition.queue for each in part.found], part.queues, part.cut) == (names[:2], 4, True)
    assert (few.queues, few.cut) == (2, True)
    assert ([each.partition.queue for each in named.found], named.cut) == (names[5:], False)
