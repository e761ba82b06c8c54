"""What lease groups leave in the tables of Cassandra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from queuey.errors import StorageUnavailable
from queuey.future import Future
from queuey.ids import ZERO_ID
from queuey.model import IdempotencyKey, OffsetChange
from queuey.model.lease_groups import ORDER_BY_KEY, LeaseGroup
from queuey.model.lease_requests import ReceiveRequest
from queuey.storage.cassandra import CassandraLeases, lease_memory, lease_rows, leases, offsets
from queuey.storage.cassandra.session import CassandraSession, Rows
from queuey.storage.contract.common import QueueLog, done, draft
from queuey.storage.contract.lease_receiver import TOKEN, Receiver, bodies, settle_of
from tests.support.lease_servers import LeaseServer, LeaseServers, rows_of

# What is stored


def test_a_server_that_knows_nothing_goes_on_where_others_were(
    lease_servers: LeaseServers, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through folds, and with keys."""
    monkeypatch.setattr(lease_memory, "FOLD_BYTES", 2000)
    log = lease_servers.another().log
    log.append(*[draft(b"%d" % at, key=f"{at % 7}") for at in range(150)])
    kept, found = [], []
    while True:
        server = lease_servers.another()
        server.log.queue = log.queue
        jobs = server.jobs(order=ORDER_BY_KEY)
        for _ in range(6):
            handed = jobs.receive(4, visibility_seconds=99999.0)
            found += bodies(handed)
            settled = [one for one in handed if one.message.key != "3"]
            kept += [one for one in handed if one.message.key == "3"]
            jobs.step({1: [settle_of(one) for one in settled]})
        if not handed:
            break
    assert sorted(map(int, found)) == [at for at in range(150) if at % 7 != 3 or at == 3]
    assert [key for key in {int(body) % 7: None for body in found} if key != 3]
    assert 1 <= rows_of(session, log, "and kind = 0") < 60
    assert lease_servers.another().jobs(server).count()[2:6] == (1, 1, 0, 1)
    assert lease_servers.another().jobs(server).settle(kept[0])


def test_a_group_that_ends_and_a_dropped_queue_leave_nothing(
    session: CassandraSession, first: LeaseServer, second: LeaseServer
) -> None:
    first.log.add(b"0", b"1")
    here, there = first.jobs(), second.jobs(first)
    here.step(receive=ReceiveRequest(), attempt=IdempotencyKey("a", b""))
    assert rows_of(session, first.log) == 3
    done(second.leases.forget_group(first.log.queue.uuid, "workers"))
    assert rows_of(session, first.log) == 0
    here.new = LeaseGroup(TOKEN + 1)
    assert bodies(here.receive()) == [b"0"]
    done(first.stores.messages.drop(first.log.queue.uuid))
    assert rows_of(session, first.log) == 0
    assert done(second.leases.list_groups(first.log.queue.uuid)) == []
    assert there.new is not None


def test_the_end_of_a_queue_steps_over_no_group_that_it_has_ended(
    session: CassandraSession, first: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node refuses a read that steps over 100,000 removed rows."""
    for module in (lease_rows, offsets):
        monkeypatch.setattr(module, "_PAGE", 2)
    queue, names = first.log.queue.uuid, [f"group-{number}" for number in range(5)]
    for name in names:
        assert done(first.leases.keep_group(queue, name, LeaseGroup(TOKEN), None))
        done(first.stores.offsets.change_offsets(queue, name, OffsetChange({1: ZERO_ID})))
    asked: dict[str, list[str]] = {"lease_list": [], "group_list": []}
    ask = session.ask

    def noted(name: str, values: Sequence[Any], level: int) -> Future[Rows]:
        if name in asked:
            asked[name].append(values[1])
        return ask(name, values, level)

    monkeypatch.setattr(session, "ask", noted)
    done(first.stores.messages.drop(queue))
    assert asked == {name: ["", *names[1::2]] for name in asked}


def test_a_damaged_change_is_refused_and_not_believed(
    session: CassandraSession, first: LeaseServer, second: LeaseServer
) -> None:
    first.log.add(b"0", b"1")
    first.jobs().receive()
    text = f"update {session.options.keyspace}.lease_states set data = %s where queue = %s and name = 'workers' and kind = 0 and part = 1 and number = 65536 and label = ''"  # noqa: S608
    session.driver.execute(text, (b"\x00", first.log.queue.uuid))
    with pytest.raises(StorageUnavailable, match="checksum"):
        second.jobs(first).receive()


def test_rows_that_come_back_from_a_former_life_or_from_before_a_fold_count_no_more(
    session: CassandraSession, first: LeaseServer, second: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was away may bring them back, since their deletions are forgotten soon."""
    monkeypatch.setattr(lease_memory, "FOLD_BYTES", 800)
    table = f"{session.options.keyspace}.lease_states"
    first.log.append(*[draft(b"%d" % number) for number in range(60)])
    queue, seen = first.log.queue.uuid, {}
    columns = "queue, name, kind, part, number, label, life, base, checksum, data"

    def note() -> None:
        text = f"select {columns} from {table} where queue = %s and name = 'workers' and kind = 0"  # noqa: S608
        seen.update({tuple(row[:7]): row for row in session.driver.execute(text, (queue,))})

    jobs = first.jobs()
    for life in (TOKEN, TOKEN + 1):
        jobs.new = LeaseGroup(life)
        for _ in range(20):
            (handed,) = jobs.receive()
            note()
            jobs.step({1: [settle_of(handed)]}, token=life)
            note()
        before = (jobs.count(), done(first.leases.held(queue, "workers", 1, after=ZERO_ID, limit=99))[1])
        if life == TOKEN:
            done(first.leases.forget_group(queue, "workers"))
    assert len(seen) > 40
    places = ", ".join(["%s"] * 10)
    text = f"select {columns} from {table} where queue = %s and name = 'workers' and kind = 0"  # noqa: S608
    now = {tuple(row[:5]) for row in session.driver.execute(text, (queue,))}
    for row in seen.values():
        if tuple(row[:5]) not in now:
            session.driver.execute(f"insert into {table} ({columns}) values ({places})", tuple(row))  # noqa: S608
    there = second.jobs(first)
    assert (there.count(), done(second.leases.held(queue, "workers", 1, after=ZERO_ID, limit=99))[1]) == before
    assert bodies(there.receive()) == [b"20"]


def test_room_for_new_groups_is_made_for_many_at_a_time(first: LeaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """To find what was used longest ago takes a look at each."""
    monkeypatch.setattr(leases, "MOST_GROUPS", 30)
    monkeypatch.setattr(leases, "_TRIM_STEPS", 10)
    queue, trims, trim = first.log.queue.uuid, 0, CassandraLeases._trim

    def counted(store: CassandraLeases) -> None:
        nonlocal trims
        trims += 1
        trim(store)

    monkeypatch.setattr(CassandraLeases, "_trim", counted)
    first.leases._until_trim = 10
    for number in range(200):
        done(first.leases.count(queue, f"{number}", [1]))
        assert len(first.leases._lines) <= 30
    assert trims == 20


def test_groups_that_read_much_ahead_leave_memory_before_there_are_many(
    first: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of groups may be begun, and each reads some messages of each partition."""
    bound, body = 4 << 20, b"x" * (100 << 10)
    monkeypatch.setattr(leases, "MOST_AHEAD_BYTES", bound)
    monkeypatch.setattr(leases, "_TRIM_BYTES", bound // 4)
    log = first.log = QueueLog(first.stores.messages, first.clock, partitions=8)
    for partition in range(1, 9):
        log.append(*[draft(body, partition)] * 3)
    most = 0
    for number in range(12):
        assert Receiver(first.leases, log, f"{number}").receive()
        most = max(most, sum(line.memory.ahead_bytes for line in first.leases._lines.values()))
    (one,) = [line.memory.ahead_bytes for line in [*first.leases._lines.values()][-1:]]
    assert one > bound // 4
    assert most <= bound + bound // 4 + 2 * one
