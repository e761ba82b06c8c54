"""Lease groups in Cassandra: an unknown outcome is one only for a call that may have done something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.future import Future
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.storage.cassandra.session import CassandraSession, Rows
from queuey.storage.contract.common import done, draft
from queuey.storage.contract.lease_receiver import TOKEN, bodies
from tests.support.lease_servers import LeaseServer, LeaseServers, one_transaction
from tests.support.unsure_sessions import Unsure


def _reset(server: LeaseServer) -> bool:
    before, after = LeaseGroup(TOKEN), LeaseGroup(TOKEN + 1)
    return done(server.leases.keep_group(server.log.queue.uuid, "workers", after, before))


def test_a_look_beside_a_step_that_nobody_knows_of_has_done_nothing(
    lease_servers: LeaseServers, unsure: Unsure
) -> None:
    lossy, other = lease_servers.another(session=unsure), lease_servers.another()
    lossy.log.append(*[draft(b"%d" % number) for number in range(60)])
    here, there = lossy.jobs(), other.jobs(lossy)
    here.receive()
    unsure.follows = lambda: [there.receive() for _ in range(40)]
    group = GroupStep(here.queue, here.name, here.new, receive_from=[1])
    with one_transaction(lossy, group):
        step = lossy.leases.step(LeaseStep([group], receive=ReceiveRequest()))
        looks = lossy.leases.count(here.queue.uuid, here.name, [1])
    with pytest.raises(OutcomeUnknown):
        done(step)
    with pytest.raises(StorageUnavailable):
        done(looks)


@pytest.mark.parametrize("carries_out", [True, False])
def test_a_reset_whose_answer_is_lost_finds_out_what_became_of_it(
    lease_servers: LeaseServers, unsure: Unsure, carries_out: bool
) -> None:
    """One that got lost was unknown, though the life before went on."""
    lossy = lease_servers.another(session=unsure)
    lossy.log.add(b"0")
    assert lossy.jobs().receive()
    unsure.carries_out, unsure.follows = carries_out, lambda: None
    assert _reset(lossy)
    jobs = lossy.jobs()
    assert bodies(jobs.receive()) == [b"0"]
    assert jobs.outcome.tokens == [TOKEN + 1]


@pytest.mark.parametrize("begins", [lambda server: server.jobs().receive(), _reset])
def test_a_life_that_may_not_be_listed_does_not_begin(
    first: LeaseServer,
    session: CassandraSession,
    monkeypatch: pytest.MonkeyPatch,
    begins: Callable[[LeaseServer], object],
) -> None:
    """Its caller could not know that nothing was done."""
    first.log.add(b"0")
    if begins is _reset:
        first.jobs().receive()
    tells = CassandraSession.tell

    def unknown(self: CassandraSession, name: str, values: Sequence[Any], level: int) -> Future[Rows]:
        if name == "lease_list_keep":
            return Future.failed(OutcomeUnknown())
        return tells(self, name, values, level)

    monkeypatch.setattr(CassandraSession, "tell", unknown)
    with pytest.raises(StorageUnavailable):
        begins(first)
    monkeypatch.undo()
    assert begins(first)
