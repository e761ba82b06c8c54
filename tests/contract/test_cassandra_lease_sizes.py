"""Lease groups in Cassandra: no transaction is larger than a node takes, whatever its calls store."""

from __future__ import annotations

from uuid import uuid4

from queuey.model import IdempotencyKey, Retention
from queuey.model.lease_requests import Action, ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.storage.contract.common import done, draft
from queuey.storage.contract.lease_receiver import settle_of
from tests.support.lease_servers import LeaseServer

_TOO_MUCH = 17 << 20
"""Bytes that a node refuses."""


def test_pops_whose_answers_are_kept_with_their_messages_share_no_more_than_a_node_takes(first: LeaseServer) -> None:
    """A node refused all of them, and again whenever they were repeated."""
    body = b"x" * (900 << 10)
    number = _TOO_MUCH // len(body)
    for _ in range(number):
        first.log.add(body)
    first.log.queue = first.log.queue._replace(retention=Retention.ACKNOWLEDGED)
    jobs = first.jobs()
    group = GroupStep(jobs.queue, jobs.name, jobs.new, receive_from=jobs.numbers)
    pops = [
        LeaseStep([group], receive=ReceiveRequest(1, pop=True), attempt=IdempotencyKey(uuid4().hex, b""))
        for _ in range(number)
    ]
    assert [len(done(begun).handed) for begun in [first.leases.step(pop) for pop in pops]] == [1] * number


def test_rejects_with_long_reasons_share_no_more_than_a_node_takes(first: LeaseServer) -> None:
    """A reason may have a traceback below it."""
    reason, together = "ä" * 5000, 250
    number = _TOO_MUCH // (len(reason.encode()) * together) + 1
    first.log.append(*[draft(b"")] * (number * together))
    jobs = first.jobs()
    group = GroupStep(jobs.queue, jobs.name, jobs.new, jobs.token)
    handed = [jobs.receive(together, visibility_seconds=900.0) for _ in range(number)]
    settles = [{1: [settle_of(one, Action.REJECT, reason=reason) for one in some]} for some in handed]
    begun = [first.leases.step(LeaseStep([group._replace(settles=each)])) for each in settles]
    assert [len(done(one).given_up) for one in begun] == [together] * number
