"""The lists of names on a real node: what is removed from them is forgotten soon, and harms nobody if it comes back."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from queuey.clock import ManualClock
from queuey.future import Future
from queuey.ids import IdGenerator
from queuey.model import Queue
from queuey.model.tasks import StoredTask
from queuey.storage.cassandra.names import EVERYBODY, list_place
from queuey.storage.cassandra.queue_rows import _Stored
from queuey.storage.cassandra.schema import LISTED_SECONDS
from queuey.storage.cassandra.session import ALL_CENTRES, CassandraSession, Rows
from queuey.storage.contract.common import done
from tests.support.cassandra_stores import CassandraStores

LISTS = ("lease_groups", "names", "offset_groups", "open_tasks", "removals")
FIVE_MINUTES = 300.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stores(session: CassandraSession, clock: ManualClock) -> Iterator[CassandraStores]:
    stores = CassandraStores(session, clock, IdGenerator(clock))
    yield stores
    stores.close()


@pytest.fixture
def queue(clock: ManualClock) -> Queue:
    return Queue(f"app-{uuid4().hex[:8]}", "q", uuid4(), clock.now_ticks(), principals=("bid:a@example.com",))


@pytest.mark.parametrize("table", LISTS)
def test_a_list_keeps_what_is_removed_for_an_hour_and_not_for_ten_days(session: CassandraSession, table: str) -> None:
    """A list of which 100,000 names were removed could not be read for ten days."""
    text = (
        "select gc_grace_seconds, memtable_flush_period_in_ms, compaction from system_schema.tables "
        "where keyspace_name = %s and table_name = %s"
    )
    grace, flushed, compaction = session.driver.execute(text, (session.options.keyspace, table)).one()

    assert (grace, flushed) == (LISTED_SECONDS, 1000 * LISTED_SECONDS)
    assert "Leveled" in compaction["class"]


def test_a_name_that_comes_back_with_a_node_is_of_no_queue(
    session: CassandraSession, stores: CassandraStores, queue: Queue
) -> None:
    done(stores.metadata.create_queue(queue))
    done(stores.metadata.remove_queue(queue))
    for who in (EVERYBODY, *queue.principals):
        session.tell("name_insert", (*list_place(queue, who), 1 << 60), ALL_CENTRES).wait()

    assert done(stores.metadata.list_queues(queue.application)) == []
    assert done(stores.metadata.list_named(queue.application, queue.principals[0])) == []
    done(stores.metadata.create_queue(queue._replace(uuid=uuid4())))
    assert [one.name for one in done(stores.metadata.list_queues(queue.application))] == ["q"]


def test_a_removal_that_comes_back_removes_nothing_of_the_queue_that_is_there(
    session: CassandraSession, stores: CassandraStores, queue: Queue
) -> None:
    done(stores.metadata.create_queue(queue))
    done(stores.metadata.remove_queue(queue))
    done(stores.metadata.forget_removed(queue.uuid))
    new = queue._replace(uuid=uuid4())
    done(stores.metadata.create_queue(new))
    _remove_again(session, queue.uuid, queue)

    assert queue.uuid in done(stores.metadata.removed(1000))
    done(stores.metadata.forget_removed(queue.uuid))

    assert done(stores.metadata.find_queue(queue.application, queue.name)) == new
    assert queue.uuid not in done(stores.metadata.removed(1000))


def listed(session: CassandraSession, statement: str, *values: int) -> set[UUID]:
    """The queues of a list."""
    return {queue for queue, *_ in session.ask(statement, values, ALL_CENTRES).wait()}


def test_a_group_or_task_that_comes_back_is_none(
    session: CassandraSession, stores: CassandraStores, clock: ManualClock, queue: Queue
) -> None:
    life = uuid4()
    session.tell("lease_list_keep", (queue.uuid, "workers", 1), ALL_CENTRES).wait()
    session.tell("group_keep", (queue.uuid, "workers", life), ALL_CENTRES).wait()
    session.tell("tasks_open_keep", (0, queue.uuid, "purge", life, clock.now_ticks()), ALL_CENTRES).wait()

    assert done(stores.leases.list_groups(queue.uuid)) == []
    assert done(stores.offsets.list_groups(queue.uuid)) == []
    assert queue.uuid not in {task.queue for task in done(stores.tasks.open_tasks())}
    clock.advance(FIVE_MINUTES + 1)
    done(stores.tasks.open_tasks())
    assert queue.uuid not in listed(session, "tasks_open_list", 0, 1000)


def test_a_task_that_is_listed_anew_while_it_is_looked_up_stays(
    session: CassandraSession,
    stores: CassandraStores,
    clock: ManualClock,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where, find = (0, queue.uuid, "purge", uuid4()), stores.tasks._find

    def add() -> Future[Rows]:
        return session.tell("tasks_open_keep", (*where, clock.now_ticks()), ALL_CENTRES)

    async def found(of: UUID, name: str) -> StoredTask | None:
        if of == queue.uuid:
            await add()
        return await find(of, name)

    add().wait()
    clock.advance(FIVE_MINUTES + 1)
    monkeypatch.setattr(stores.tasks, "_find", found)
    done(stores.tasks.open_tasks())

    assert queue.uuid in listed(session, "tasks_open_list", 0, 1000)


def test_a_removal_that_is_announced_anew_while_its_queue_is_looked_up_stays(
    session: CassandraSession,
    stores: CassandraStores,
    clock: ManualClock,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that died in the middle of that removal left it to nobody."""
    rows, where = stores.metadata._queues, (queue.application, queue.name)
    shard, stored = queue.uuid.int % 16, rows._stored

    def announce() -> Future[Rows]:
        return session.tell("removal_keep", (shard, queue.uuid, *where, clock.now_ticks()), ALL_CENTRES)

    async def found(application: str, name: str) -> _Stored | None:
        if (application, name) == where:
            await announce()
        return await stored(application, name)

    done(stores.metadata.create_queue(queue))
    announce().wait()
    clock.advance(FIVE_MINUTES)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(rows, "_stored", found)
        assert queue.uuid not in done(stores.metadata.removed(1000))
    assert queue.uuid in listed(session, "removal_list", shard)

    clock.advance(FIVE_MINUTES)
    assert queue.uuid not in done(stores.metadata.removed(1000))
    assert queue.uuid not in listed(session, "removal_list", shard), "nobody has decided it"


def test_no_more_removals_are_looked_up_than_are_asked_for(
    session: CassandraSession, stores: CassandraStores, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of very many that were left, all were looked up for each hundred of them."""
    rows, looked = stores.metadata._queues, list[str]()
    stored = rows._stored

    async def counted(application: str, name: str) -> _Stored | None:
        looked.append(application)
        return await stored(application, name)

    gone = [uuid4() for _ in range(20)]
    for uuid in gone:
        _remove_again(session, uuid, queue)
    monkeypatch.setattr(rows, "_stored", counted)

    assert len(done(stores.metadata.removed(3))) == 3
    assert looked.count(queue.application) <= 3
    assert {*gone} <= {*done(stores.metadata.removed(1000))}
    for uuid in gone:
        done(stores.metadata.forget_removed(uuid))


def _remove_again(session: CassandraSession, uuid: UUID, queue: Queue) -> None:
    session.tell("removal_keep", (uuid.int % 16, uuid, queue.application, queue.name, 0), ALL_CENTRES).wait()
