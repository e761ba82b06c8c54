"""Offsets in Cassandra: several servers, what a former life of a group leaves, and what a drop leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from cassandra import ConsistencyLevel, Unavailable

from queuey.clock import ManualClock
from queuey.errors import OutcomeUnknown, StaleGeneration, StorageUnavailable
from queuey.future import Future, start
from queuey.ids import IdGenerator
from queuey.model import OffsetChange
from queuey.storage.cassandra.session import CassandraSession, Change, Rows
from queuey.storage.contract.common import done
from queuey.storage.contract.offsets import Group, at
from tests.support.cassandra_stores import CassandraStores


def server(session: CassandraSession) -> CassandraStores:
    clock = ManualClock()
    return CassandraStores(session, clock, IdGenerator(clock))


@pytest.fixture
def stores(session: CassandraSession) -> Iterator[CassandraStores]:
    """One server's."""
    stores = server(session)
    yield stores
    stores.close()


@pytest.fixture
def first(stores: CassandraStores) -> Group:
    """A group through one server."""
    return Group(stores.offsets)


@pytest.fixture
def second(session: CassandraSession, first: Group) -> Iterator[Group]:
    """The same through another one, which has not heard of the first."""
    stores = server(session)
    yield Group(stores.offsets, first.name, first.queue)
    stores.close()


def rows(session: CassandraSession, group: Group) -> tuple[int, int]:
    """Rows of a group's offsets, and of the list of its queue."""
    found = [
        session.driver.execute(f"select * from {session.options.keyspace}.{table} where {where}", values).all()  # noqa: S608
        for table, where, values in (
            ("offsets", "queue = %s and name = %s", (group.queue, group.name)),
            ("offset_groups", "queue = %s", (group.queue,)),
        )
    ]
    return len(found[0]), len(found[1])


def test_servers_see_each_others_changes_at_once(first: Group, second: Group) -> None:
    for number in range(5):
        first.commit({1: at(2 * number)}, number)
        assert second.ids() == {1: at(2 * number)}
        second.commit({1: at(2 * number + 1)}, number)
        assert first.ids() == {1: at(2 * number + 1)}

    second.take_over(1, generation=9)
    with pytest.raises(StaleGeneration):
        first.commit({1: at(20)}, 8)


def test_a_group_that_ends_leaves_nothing(session: CassandraSession, first: Group, second: Group) -> None:
    first.commit({1: at(1), 2: at(1)})
    second.forget()
    assert rows(session, first) == (0, 0)

    first.commit({2: at(0)})

    assert rows(session, first) == (1, 1)
    assert second.ids() == {2: at(0)}


def test_a_dropped_queue_leaves_nothing(
    session: CassandraSession, stores: CassandraStores, first: Group, second: Group
) -> None:
    others = [Group(first.store, f"group-{number}", first.queue) for number in range(120)]
    for group in (first, *others):
        group.take_over(1, 2, generation=1)

    done(stores.messages.drop(first.queue))

    assert [rows(session, group) for group in (first, *others)] == [(0, 0)] * 121
    assert second.offsets() == {}


LATER_MICROSECONDS = 4_102_444_800_000_000
"""The date of what a server writes whose clock is at the year 2100."""


@pytest.mark.parametrize(("table", "value"), [("offset_groups", "life"), ("lease_groups", "tag")])
def test_a_drop_ends_though_a_server_with_a_wrong_clock_has_listed_a_group(
    session: CassandraSession, stores: CassandraStores, first: Group, table: str, value: str
) -> None:
    """It went on removing the name for as long as that clock was ahead."""
    life = "now()" if value == "life" else "1"
    session.driver.execute(
        f"insert into {session.options.keyspace}.{table} (queue, name, {value}) values (%s, 'g', {life}) "  # noqa: S608
        f"using timestamp {LATER_MICROSECONDS}",
        (first.queue,),
    )

    stores.messages.drop(first.queue).wait(60)


def late_refusal(answer: Any) -> Any:
    """An answer of a node that has carried a transaction out, and then sees too few copies to write what is decided."""

    class Refused:
        attempted_hosts = answer.attempted_hosts

        def add_callbacks(self, answered: Any, failed: Any, errback_args: Any) -> None:
            error = Unavailable("too few", consistency=ConsistencyLevel.QUORUM)
            answer.add_callbacks(lambda _: failed(error, *errback_args), failed, errback_args=errback_args)

    return Refused()


def test_a_change_that_a_node_refuses_after_it_was_decided_is_done(
    session: CassandraSession, first: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered as refused, though it was stored."""
    send = session.driver.execute_async

    def sends(statement: Any, **how: Any) -> Any:
        answer = send(statement, **how)
        return answer if statement.serial_consistency_level is None else late_refusal(answer)

    monkeypatch.setattr(session.driver, "execute_async", sends)

    first.commit({1: at(1)})

    assert first.ids() == {1: at(1)}


def test_groups_that_are_forgotten_and_made_anew_at_once_are_listed(first: Group, second: Group) -> None:
    """The list never misses a group, whichever life it is in."""
    over = threading.Event()

    def forget() -> None:
        while not over.is_set():
            # Two that change one row again and again may keep each other from it for longer than a node waits (G10).
            with suppress(OutcomeUnknown, StorageUnavailable):
                second.forget()

    thread = threading.Thread(target=forget)
    thread.start()
    for _ in range(30):
        with suppress(OutcomeUnknown, StorageUnavailable):
            first.take_over(1, generation=1)
    over.set()
    thread.join()
    first.take_over(1, generation=1)

    assert done(second.store.list_groups(first.queue)) == [first.name]


class Unsure(CassandraSession):
    """Transactions whose answers are lost: they are carried out, and ``follows`` happens before anybody looks."""

    follows: Group | None = None
    carries_out = True

    def compare_and_set_together(self, changes: Sequence[Change]) -> Future[Rows]:
        if self.follows is None:
            return super().compare_and_set_together(changes)
        follows, self.follows = self.follows, None
        return start(self._lose(changes, follows))

    async def _lose(self, changes: Sequence[Change], follows: Group) -> Rows:
        if self.carries_out:
            await super().compare_and_set_together(changes)
        await follows.store.change_offsets(follows.queue, follows.name, OffsetChange({1: None}, 9))
        raise OutcomeUnknown


@pytest.fixture
def unsure(session: CassandraSession) -> Iterator[Unsure]:
    unsure = Unsure(session.options)
    yield unsure
    unsure.close()


@pytest.mark.parametrize("carries_out", [True, False])
def test_what_may_have_been_stored_before_a_take_over_is_not_refused(
    unsure: Unsure, second: Group, carries_out: bool
) -> None:
    """G10: nobody can tell whether the commit was there before another owner came."""
    group = Group(server(unsure).offsets, second.name, second.queue)
    group.commit({1: at(1)}, 1)
    unsure.follows, unsure.carries_out = second, carries_out

    with pytest.raises(OutcomeUnknown):
        group.commit({1: at(2)}, 1)

    assert second.ids() == {1: at(2 if carries_out else 1)}
    with pytest.raises(StaleGeneration):
        group.commit({1: at(3)}, 1)


def test_a_store_that_is_full_of_calls_refuses(session: CassandraSession, first: Group) -> None:
    busy = CassandraSession(replace(session.options, most_calls=0))
    stores = server(busy)

    with pytest.raises(StorageUnavailable):
        Group(stores.offsets, first.name, first.queue).commit({1: at(1)})

    assert first.offsets() == {}
    stores.close()
    busy.close()
