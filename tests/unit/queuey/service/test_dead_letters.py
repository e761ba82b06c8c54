"""What becomes of messages that are given up."""

from __future__ import annotations

from queuey.clock import ManualClock
from queuey.future import run
from queuey.http.admission import EXEMPT
from queuey.http.answer_room import CountedRoom
from queuey.ids import ZERO_ID, IdGenerator
from queuey.model import AppendRequest, Draft
from queuey.model.lease_requests import Action, ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.settings import load_settings
from queuey.storage.contract.lease_receiver import settle_of
from queuey.storage.memory import MemoryStores


def test_a_message_that_is_gone_is_none_of_the_dead() -> None:
    clock = ManualClock()
    service = Service(
        load_settings(None, {}, {}), MemoryStores(clock, IdGenerator(clock)), clock=clock, waiters_by_hand=True
    )
    queue = run(service.queues.create("demo", "jobs", QueueSettings()))
    run(service.log.append(AppendRequest(queue, [Draft(1, b"short", 5), Draft(1, b"long", 900)])))
    new = service.leases.new_group(service.leases.default_settings, ZERO_ID)

    def step(group: GroupStep, receive: ReceiveRequest | None = None) -> LeaseOutcome:
        with CountedRoom(EXEMPT, receive) as room:
            return run(service.leases.step(LeaseStep([group], receive=receive), room))

    outcome = step(GroupStep(queue, "workers", new, receive_from=(1,)), ReceiveRequest(2))
    clock.advance(10)
    rejected = [settle_of(one, Action.REJECT, reason="not JSON") for one in outcome.handed]
    step(GroupStep(queue, "workers", None, outcome.tokens[0], {1: rejected}))

    counts = service.leases.count(queue, "workers").wait()[1]
    assert (counts.holes, counts.dead) == (0, 1)
    dead = run(service.queues.find("demo", "jobs-dead"))
    assert dead is not None
    assert run(service.queues.inspect(dead))[0].depth == 1
    service.close()
