"""Lease groups in Cassandra: their states are stored anew, and no transaction is larger than a node takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queuey.future import start
from queuey.ids import ZERO_ID
from queuey.model import holes
from queuey.model.lease_codec import encode_change
from queuey.model.lease_requests import Action
from queuey.model.lease_state import changes_of
from queuey.storage.cassandra import lease_access, lease_memory
from queuey.storage.cassandra.lease_heads import GroupPlace
from queuey.storage.cassandra.lease_memory import GroupMemory
from queuey.storage.cassandra.lease_rows import LeaseRows
from queuey.storage.cassandra.lease_turns import LeaseTurns
from queuey.storage.cassandra.session import CassandraSession, Rows
from queuey.storage.contract.common import QueueLog, done, draft, drive_histories
from queuey.storage.contract.lease_receiver import Receiver, bodies, settle_of
from queuey.storage.leasing import changes as leasing_changes
from tests.support.lease_servers import LeaseServer, LeaseServers, SharedHistory, rows_of

_TOO_MUCH = 17 << 20
"""Bytes that a node refuses."""


def _fold_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_memory, "FOLD_BYTES", 1600)


def _fold_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state is large: it is folded all the time, a block in each transaction."""
    monkeypatch.setattr(holes, "_CHUNK", 2)
    monkeypatch.setattr(lease_memory, "FOLD_BYTES", 16)
    monkeypatch.setattr(lease_access, "_MOST_WHOLE", -1)
    monkeypatch.setattr(leasing_changes, "_BLOCKS_TOGETHER", 1)
    monkeypatch.setattr(leasing_changes, "_MOST_BLOCKS", 1)


def test_any_history_of_large_states_is_as_the_model_says(
    first: LeaseServer, second: LeaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fold_in_portions(monkeypatch)
    used = [first, second]
    drive_histories(lambda: SharedHistory(used, used.reverse), 12)


def _states(server: LeaseServer, jobs: Receiver) -> list[list[bytes]]:
    """What a server has in memory of each partition."""
    (group,) = server.leases._line(server.log.queue.uuid, jobs.name).memory.book.groups()
    return [[encode_change(one) for one in changes_of(book.state)] for _, book in sorted(group.partitions.items())]


@pytest.mark.parametrize("fold", [_fold_soon, _fold_in_portions])
def test_servers_that_meet_read_only_what_is_new(
    lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch, fold: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Also while they fold, and of partitions that only one of them has used."""
    fold(monkeypatch)
    wholes: list[GroupPlace] = []
    whole = LeaseRows.whole

    async def counted(rows: LeaseRows, place: GroupPlace, **how: Any) -> Any:
        wholes.append(place)
        return await whole(rows, place, **how)

    monkeypatch.setattr(LeaseRows, "whole", counted)
    several = [lease_servers.another() for _ in range(3)]
    log = several[0].log = QueueLog(several[0].stores.messages, several[0].clock, partitions=2)
    log.append(*[draft(b"%d" % number, 1 + number % 2) for number in range(160)])
    receivers = [server.jobs(several[0]) for server in several]
    found: list[bytes] = []
    for turn in range(20):
        for at, jobs in enumerate(receivers):
            handed = jobs.receive(2, partitions=[1] if at or turn < 5 else [2], visibility_seconds=900.0)
            found += bodies(handed)
            action = Action.REJECT if turn == 5 else Action.ACKNOWLEDGE
            if turn % 4:
                assert not jobs.step({one.partition: [settle_of(one, action)] for one in handed[:1]}).stale
    assert len(found) == len({*found}) > 100
    for jobs in receivers:
        jobs.count()
        jobs.count(2)
    anew = lease_servers.another()
    others = anew.jobs(several[0])
    others.count()
    others.count(2)
    for server, jobs in zip(several, receivers, strict=True):
        assert _states(server, jobs) == _states(anew, others)
    assert len(wholes) < 9


def test_that_test_finds_a_server_that_learns_nothing(
    lease_servers: LeaseServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupMemory, "_learn", lambda memory, news, known: None)
    monkeypatch.setattr(LeaseTurns, "left", lambda turns, now: 0.0)  # it would learn while it lets others go first
    with pytest.raises((AssertionError, ValueError)):
        test_servers_that_meet_read_only_what_is_new(lease_servers, monkeypatch, _fold_soon)


def test_what_was_folded_over_several_transactions_goes(
    first: LeaseServer, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fold_in_portions(monkeypatch)
    monkeypatch.setattr(leasing_changes, "_FOLD_AT", 2)
    first.log.append(*[draft(b"")] * 40)
    jobs = first.jobs()
    for _ in range(20):
        held = jobs.receive(visibility_seconds=9999.0)
    for _ in range(300):
        assert jobs.settle(held[0], Action.EXTEND, seconds=9999.0)
    assert rows_of(session, first.log, "and kind = 0") < 60


def test_a_group_whose_state_is_larger_than_a_node_takes_goes_on(lease_servers: LeaseServers) -> None:
    """Once it was to be folded, each step was refused, and no dead letter could be moved any more."""
    server = lease_servers.another()
    reason, together = "r" * 4900, 500
    number = _TOO_MUCH // (len(reason) * together) + 4
    for _ in range(number):
        server.log.append(*[draft(b"")] * together)
    jobs = server.jobs()
    for _ in range(number):
        handed = jobs.receive(together, visibility_seconds=9999.0)
        assert not jobs.step({1: [settle_of(one, Action.REJECT, reason=reason) for one in handed]}).stale
    there = lease_servers.another().jobs(server)
    page = done(there.store.held(there.queue.uuid, there.name, 1, after=ZERO_ID, limit=number * together))
    assert [*page.reasons.values()] == [reason] * (number * together)


@pytest.mark.parametrize(("letters", "most_pages"), [(10, 2), (100_000, 10)])
def test_a_group_is_read_in_pages_that_a_node_can_answer(
    first: LeaseServer, second: LeaseServer, monkeypatch: pytest.MonkeyPatch, letters: int, most_pages: int
) -> None:
    """A page had 200 changes, however large: hundreds of megabytes, where the reasons for rejects were long."""
    monkeypatch.setattr(lease_memory, "FOLD_BYTES", 1 << 30)
    jobs, pages, asks = first.jobs(), list[Rows](), CassandraSession.ask
    first.log.append(*[draft(b"")] * 200)
    for one in jobs.receive(200, visibility_seconds=9999.0):
        assert jobs.settle(one, Action.REJECT, reason="r" * letters)

    async def noted(session: CassandraSession, name: str, *values: Any, **how: Any) -> Rows:
        found = await asks(session, name, *values, **how)
        if name == "lease_changes":
            pages.append(found)
        return found

    monkeypatch.setattr(CassandraSession, "ask", lambda *what, **how: start(noted(*what, **how)))
    assert second.jobs(first).count().holes == 200
    assert sum(map(len, pages)) == 201
    assert len(pages) <= most_pages
    assert max(sum([len(data) for *_, data in page]) for page in pages) < 5 << 20
